package keepalive

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// FuzzReceived takes any bytes in pieces of any size: what reaches the wrapped side is the same, no
// more than was sent, and nothing of a control frame.
func FuzzReceived(f *testing.F) {
	for _, vector := range vectors(f) {
		var in []byte
		for _, piece := range vector.FramesIn {
			in = append(in, vectorBytes(f, piece)...)
		}
		if len(in) < 1<<12 {
			f.Add(in, uint8(3))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		whole, wholeErr := receivedInPieces(in, max(len(in), 1))
		pieces, err := receivedInPieces(in, int(size)+1)
		if !bytes.Equal(whole, pieces) || (wholeErr == nil) != (err == nil) {
			t.Fatalf("% x, %v in one piece; % x, %v in many", whole, wholeErr, pieces, err)
		}
		var s scanner
		for left := whole; len(left) > 0; {
			n, part := s.advance(left)
			if kind := s.header.kind(); part == endOfHeader && (kind < typeRequest || kind > typeData) {
				t.Fatalf("a frame of type %d reaches the wrapped side", kind)
			}
			left = left[n:]
		}
	})
}

func receivedInPieces(in []byte, size int) (passed []byte, err error) {
	near, far := net.Pipe()
	defer far.Close()
	c := &Conn{inner: near, config: Config{}, monitor: newMonitor(Config{}, true, time.Time{})}
	c.changed.L = &c.mu
	for len(in) > 0 && err == nil {
		n := min(size, len(in))
		err = c.received(in[:n])
		in = in[n:]
	}
	return c.inbox.bytes, err
}

// FuzzWritten takes any bytes in pieces of any size: what the peer gets is the same, and a PONG may
// stand in it only where a frame has ended.
func FuzzWritten(f *testing.F) {
	f.Add(append(request(1), response(3)...), uint8(4))
	f.Add(raw(typeData, 1, 0, make([]byte, 300)), uint8(7))
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		var s scanner
		for left := in; len(left) > 0; {
			piece := left[:min(int(size)+1, len(left))]
			span := s.span(piece)
			if span < 1 || span > len(piece) {
				t.Fatalf("a span of %d", span)
			}
			before := s
			s.follow(piece[:span])
			// It ends inside of the frame, or exactly with it.
			for cut := 1; cut < span; cut++ {
				inside := before
				inside.follow(piece[:cut])
				if inside.between() {
					t.Fatalf("a frame ends %d bytes into a span of %d", cut, span)
				}
			}
			left = left[span:]
		}
	})
}
