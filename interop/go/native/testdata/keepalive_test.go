package ttrpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

// rawPeer is the other end of a connection, frame by frame.
type rawPeer struct {
	*testing.T
	net.Conn
}

func rawFrame(kind byte, streamID uint32, p []byte) []byte {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(p)))
	frame = binary.BigEndian.AppendUint32(frame, streamID)
	return append(append(frame, kind, 0), p...)
}

func numbered(kind messageType, number uint64) []byte {
	return rawFrame(byte(kind), pingStreamID, binary.BigEndian.AppendUint64(nil, number))
}

func (r *rawPeer) send(p []byte) {
	r.Helper()
	if _, err := r.Write(p); err != nil {
		r.Fatal(err)
	}
}

// frame reads the next frame, with its header, or nil if none comes for so long.
func (r *rawPeer) frame(d time.Duration) []byte {
	r.Helper()
	r.SetReadDeadline(time.Now().Add(d))
	frame := make([]byte, 10)
	if _, err := io.ReadFull(r.Conn, frame); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	} else if err != nil {
		r.Fatal(err)
	}
	frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
	if _, err := io.ReadFull(r.Conn, frame[10:]); err != nil {
		r.Fatal(err)
	}
	return frame
}

func (r *rawPeer) expect(want []byte) {
	r.Helper()
	if got := r.frame(5 * time.Second); !bytes.Equal(got, want) {
		r.Fatalf("% x came, not % x", got, want)
	}
}

func (r *rawPeer) expectType(want messageType) []byte {
	r.Helper()
	frame := r.frame(5 * time.Second)
	if frame == nil || frame[8] != byte(want) {
		r.Fatalf("% x came, not a %v", frame, want)
	}
	return frame
}

func requestOf(t *testing.T, streamID uint32, method string) []byte {
	payload, err := codec{}.Marshal(&Request{Service: "demo.Echo", Method: method})
	if err != nil {
		t.Fatal(err)
	}
	return rawFrame(byte(messageTypeRequest), streamID, payload)
}

// serveRaw gives a connection to a server whose method Wait never answers.
func serveRaw(t *testing.T) *rawPeer {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := NewServer()
	if err != nil {
		t.Fatal(err)
	}
	stuck := make(chan struct{})
	server.Register("demo.Echo", map[string]Method{
		"Say": func(_ context.Context, unmarshal func(any) error) (any, error) {
			message := &wrapperspb.StringValue{}
			return message, unmarshal(message)
		},
		"Wait": func(context.Context, func(any) error) (any, error) { <-stuck; return nil, context.Canceled },
	})
	go server.Serve(context.Background(), listener)
	conn, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(stuck); conn.Close(); server.Close() })
	return &rawPeer{t, conn}
}

func TestKeepaliveServerAnswersWhileItsHandlerIsStuck(t *testing.T) {
	peer := serveRaw(t)
	peer.send(requestOf(t, 1, "Wait"))
	for number := range uint64(3) {
		peer.send(numbered(messageTypePing, number))
		peer.expect(numbered(messageTypePong, number))
	}
}

func TestKeepalivePongGoesAheadOfTheAnswerToWhatCameBehindThePing(t *testing.T) {
	peer := serveRaw(t)
	for number := range uint32(200) {
		ping := numbered(messageTypePing, uint64(number))
		peer.send(append(ping, requestOf(t, 2*number+1, "Say")...))
		peer.expect(numbered(messageTypePong, uint64(number)))
		peer.expectType(messageTypeResponse)
	}
}

// dialRaw gives a client that asks, and its peer.
func dialRaw(t *testing.T, keepalive Keepalive) (*Client, *rawPeer) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	client := NewClient(dialed, WithKeepalive(keepalive))
	t.Cleanup(func() { client.Close(); conn.Close() })
	return client, &rawPeer{t, conn}
}

func callWithin(client *Client, limit time.Duration) <-chan error {
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	go func() {
		defer cancel()
		ended <- client.Call(ctx, "demo.Echo", "Say", &wrapperspb.StringValue{}, &wrapperspb.StringValue{})
	}()
	return ended
}

var asks = Keepalive{BeforeDeadline: 250 * time.Millisecond}

func expectPeerState(t *testing.T, err error, want PeerState) {
	t.Helper()
	var late *DeadlineError
	if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) || late.Peer != want {
		t.Errorf("%v, not %q", err, want)
	}
}

func TestKeepaliveLateCallSaysWhatThePeerIs(t *testing.T) {
	for _, c := range []struct {
		want    PeerState
		answers bool
		flags   byte
	}{{Slow, true, 0}, {HandlersStalled, true, flagHandlersStalled}, {Unresponsive, false, 0}} {
		t.Run(string(c.want), func(t *testing.T) {
			client, peer := dialRaw(t, asks)
			ended := callWithin(client, time.Second)
			peer.expect(numbered(messageTypePing, 1))
			peer.expectType(messageTypeRequest)
			peer.send(numbered(messageTypePong, 1))
			peer.expect(numbered(messageTypePing, 2))
			if c.answers {
				pong := numbered(messageTypePong, 2)
				pong[9] = c.flags
				peer.send(pong)
			}
			expectPeerState(t, <-ended, c.want)
		})
	}
}

func TestKeepalivePeerThatDoesNotKnowPingIsAskedOnce(t *testing.T) {
	client, peer := dialRaw(t, asks)
	ended := callWithin(client, 10*time.Second)
	peer.expect(numbered(messageTypePing, 1))
	peer.expectType(messageTypeRequest)
	peer.send(rawFrame(byte(messageTypeResponse), 1, nil))
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	ended = callWithin(client, 500*time.Millisecond)
	peer.expectType(messageTypeRequest)
	expectPeerState(t, <-ended, Unknown)
	if frame := peer.frame(50 * time.Millisecond); frame != nil {
		t.Errorf("% x came", frame)
	}
}

func TestKeepaliveZeroValueAsksNobody(t *testing.T) {
	client, peer := dialRaw(t, Keepalive{})
	ended := callWithin(client, 200*time.Millisecond)
	peer.expectType(messageTypeRequest)
	if err := <-ended; err != context.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	if frame := peer.frame(50 * time.Millisecond); frame != nil {
		t.Errorf("% x came", frame)
	}
}

// The PONGs that a server answers to the vectors on PING and PONG.
func TestKeepaliveVectors(t *testing.T) {
	for _, name := range []string{"ping.json", "pong.json"} {
		text, err := os.ReadFile(filepath.Join(os.Getenv("VECTORS"), name))
		if err != nil {
			t.Fatal(err)
		}
		var vectors []struct {
			Name, Role string
			FramesIn   []string          `json:"frames_in"`
			FramesOut  []json.RawMessage `json:"frames_out"`
		}
		if err := json.Unmarshal(text, &vectors); err != nil {
			t.Fatal(err)
		}
		for _, vector := range vectors {
			if vector.Role != "server" {
				continue
			}
			t.Run(vector.Name, func(t *testing.T) {
				peer := serveRaw(t)
				for _, piece := range vector.FramesIn {
					peer.send(unhex(t, piece))
				}
				for _, answer := range vector.FramesOut {
					var exact string
					if json.Unmarshal(answer, &exact) != nil {
						continue // One that is optional: an older PING of two.
					}
					frame := peer.frame(5 * time.Second)
					if vector.Name == "two_pings" && frame[17] == 1 {
						frame = peer.frame(5 * time.Second)
					}
					if !bytes.Equal(frame, unhex(t, exact)) {
						t.Errorf("% x came, not %s", frame, exact)
					}
				}
				peer.send(numbered(messageTypePing, 99))
				peer.expect(numbered(messageTypePong, 99))
			})
		}
	}
}

func unhex(t *testing.T, text string) (all []byte) {
	for _, token := range strings.Fields(text) {
		digits, count, _ := strings.Cut(token+"*1", "*")
		once, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		times, err := strconv.Atoi(strings.TrimSuffix(count, "*1"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes.Repeat(once, times)...)
	}
	return all
}
