package keepalive

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
)

// confirming is a handshaker that looks at the socket itself, as that for the user's id does.
type confirming struct{}

func (confirming) Handshake(_ context.Context, conn net.Conn) (net.Conn, any, error) {
	if _, ok := conn.(*net.UnixConn); !ok {
		return nil, nil, errors.New("a unix socket is wanted")
	}
	return conn, "confirmed", nil
}

func TestListenerAndHandshakerWrapWhatIsAccepted(t *testing.T) {
	for name, accept := range map[string]func(net.Listener) (net.Conn, any, error){
		"listener": func(listener net.Listener) (net.Conn, any, error) {
			conn, err := NewListener(listener, Config{}).Accept()
			return conn, "confirmed", err
		},
		"handshaker": func(listener net.Listener) (net.Conn, any, error) {
			conn, err := listener.Accept()
			if err != nil {
				return nil, nil, err
			}
			return NewHandshaker(confirming{}, Config{}).Handshake(t.Context(), conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			far, err := net.Dial("unix", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			conn, info, err := accept(listener)
			if err != nil || info != "confirmed" {
				t.Fatal(info, err)
			}
			defer conn.Close()
			if _, ok := conn.(*Conn).NetConn().(*net.UnixConn); !ok {
				t.Error("the socket cannot be had")
			}
			peer := peer{t: t, conn: far}
			peer.send(ping(7))
			peer.expect(pong(7))
		})
	}
}
