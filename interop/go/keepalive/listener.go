package keepalive

import (
	"context"
	"net"
)

// NewListener gives a listener whose connections are wrapped by [Server].
//
// A handshaker that looks at the socket, such as ttrpc.UnixSocketRequireSameUser, does not know a
// [Conn]: with one, use [NewHandshaker] and a plain listener.
func NewListener(inner net.Listener, config Config) net.Listener {
	return &listener{Listener: inner, config: config}
}

type listener struct {
	net.Listener
	config Config
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Server(conn, l.config), nil
}

// Handshaker is the one of ttrpc.
type Handshaker interface {
	Handshake(ctx context.Context, conn net.Conn) (net.Conn, any, error)
}

// NewHandshaker gives a handshaker that does what the inner one does, and then wraps the connection
// by [Server]. The inner one may be nil.
func NewHandshaker(inner Handshaker, config Config) Handshaker {
	return &handshaker{inner: inner, config: config}
}

type handshaker struct {
	inner  Handshaker
	config Config
}

func (h *handshaker) Handshake(ctx context.Context, conn net.Conn) (net.Conn, any, error) {
	var info any
	if h.inner != nil {
		var err error
		if conn, info, err = h.inner.Handshake(ctx, conn); err != nil {
			return nil, nil, err
		}
	}
	return Server(conn, h.config), info, nil
}
