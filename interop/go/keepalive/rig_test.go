package keepalive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

const (
	idle    = 10 * time.Second
	timeout = 4 * time.Second
)

var watched = Config{ReadIdleTimeout: idle, PingTimeout: timeout}

// peer is the other end of a Conn, byte by byte. Its pipe holds nothing: who writes waits for who
// reads.
type peer struct {
	t    *testing.T
	conn net.Conn
}

// pair wraps one end of a pipe, and closes both at the end of the test.
func pair(t *testing.T, wrap func(net.Conn, Config) *Conn, config Config) (*Conn, *peer) {
	near, far := net.Pipe()
	conn := wrap(near, config)
	t.Cleanup(func() {
		conn.Close()
		far.Close()
	})
	return conn, &peer{t: t, conn: far}
}

// raw gives a frame of any type.
func raw(kind byte, streamID uint32, flags byte, payload []byte) []byte {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))
	frame = binary.BigEndian.AppendUint32(frame, streamID)
	return append(append(frame, kind, flags), payload...)
}

func ping(number uint64) []byte {
	return raw(typePing, pingStreamID, 0, binary.BigEndian.AppendUint64(nil, number))
}

func pong(number uint64) []byte {
	return raw(typePong, pingStreamID, 0, binary.BigEndian.AppendUint64(nil, number))
}

func request(streamID uint32) []byte  { return raw(typeRequest, streamID, 0, []byte("request")) }
func response(streamID uint32) []byte { return raw(typeResponse, streamID, 0, []byte("answer")) }

func (p *peer) send(frames ...[]byte) {
	p.t.Helper()
	if _, err := p.conn.Write(bytes.Join(frames, nil)); err != nil {
		p.t.Fatalf("the peer cannot write: %v", err)
	}
}

// expect reads exactly this.
func (p *peer) expect(frames ...[]byte) {
	p.t.Helper()
	want := bytes.Join(frames, nil)
	got := make([]byte, len(want))
	if n, err := io.ReadFull(p.conn, got); err != nil {
		p.t.Fatalf("the peer reads %s and then %v, not %s", short(got[:n]), err, short(want))
	}
	if !bytes.Equal(got, want) {
		p.t.Fatalf("the peer reads %s, not %s", short(got), short(want))
	}
}

// expectNothing reads for so long.
func (p *peer) expectNothing(d time.Duration) {
	p.t.Helper()
	if got := p.collect(d); len(got) > 0 {
		p.t.Fatalf("the peer reads %s, not nothing", short(got))
	}
}

// collect reads what comes until nothing has come for so long.
func (p *peer) collect(d time.Duration) []byte {
	var all []byte
	piece := make([]byte, 1<<16)
	for {
		p.conn.SetReadDeadline(time.Now().Add(d))
		n, err := p.conn.Read(piece)
		all = append(all, piece[:n]...)
		if err != nil {
			p.conn.SetReadDeadline(time.Time{})
			return all
		}
	}
}

// answer takes the PING that comes next and answers it.
func (p *peer) answer(number uint64) {
	p.t.Helper()
	p.expect(ping(number))
	p.send(pong(number))
}

// drain reads what a wrapped side reads until nothing has come for so long.
func drain(t *testing.T, conn *Conn, d time.Duration) ([]byte, error) {
	t.Helper()
	var all []byte
	piece := make([]byte, 1<<16)
	for {
		conn.SetReadDeadline(time.Now().Add(d))
		n, err := conn.Read(piece)
		all = append(all, piece[:n]...)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			conn.SetReadDeadline(time.Time{})
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// startWrite has the wrapped side write; it waits for the peer to read.
func startWrite(t *testing.T, conn *Conn, frames ...[]byte) {
	all := bytes.Join(frames, nil)
	go func() {
		if _, err := conn.Write(all); err != nil {
			t.Errorf("the wrapped side cannot write: %v", err)
		}
	}()
}

func short(b []byte) string {
	if len(b) > 64 {
		return fmt.Sprintf("% x and %d bytes more", b[:64], len(b)-64)
	}
	return fmt.Sprintf("% x", b)
}
