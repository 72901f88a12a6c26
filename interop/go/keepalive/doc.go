// Package keepalive gives PING and PONG to ttrpc clients and servers that know nothing of them.
//
// It wraps the connection, not the protocol: a [Conn] is a [net.Conn] for the ttrpc on one side, and
// a peer that knows PING for the one on the other. It answers PINGs, sends them when nothing has been
// read for a while, and closes the connection of a peer that does not answer. The wrapped side sees
// neither PING nor PONG, and its own frames pass unchanged.
//
// A client:
//
//	conn, err := net.Dial("unix", address)
//	...
//	alive := keepalive.Client(conn, keepalive.Config{
//		ReadIdleTimeout: 10 * time.Second,
//		PingTimeout:     10 * time.Second,
//	})
//	client := ttrpc.NewClient(alive)
//
// A server:
//
//	server.Serve(ctx, keepalive.NewListener(listener, config))
//
// or, where a handshaker looks at the socket itself:
//
//	ttrpc.NewServer(ttrpc.WithServerHandshaker(
//		keepalive.NewHandshaker(ttrpc.UnixSocketRequireSameUser(), config)))
//
// # What it tells
//
// A call that is late says nothing about the process that should answer it. A PING does: it is
// answered by the peer's reader, whatever its handlers do. So a peer that is slow keeps its
// connection, and one that is stopped, deadlocked or gone loses it within
// ReadIdleTimeout + PingTimeout. When a connection was closed for that, ttrpc's calls fail as on any
// closed connection, and [Conn.Err] says why it was.
//
// # A call that runs out of time
//
// Those timeouts are long for a call with a limit of two seconds. [Conn.Judge] runs a call, asks the peer
// shortly before the deadline, and if the call is late wraps its context.DeadlineExceeded in a [LateError]
// that says what the peer did. On Linux and over a unix socket it does that for peers that know nothing of
// PING, too: the kernel tells whether the process at the other end reads what it is sent. So a runtime can
// tell a plugin of today that is slow from one that is stopped, with nothing changed on the other side.
// [Conn.Peer] says in a word whether to call it again, and [Conn.State] has what was found last.
//
// # Peers that do not know PING
//
// A client whose ReadIdleTimeout is set sends a PING in front of its first request, or when nothing has
// been read for so long before that. Until it is decided the PING is repeated, each time after twice as
// long. If the first response comes without a PONG before it, the peer does not know PING: it is sent no
// more of them but by [Conn.Judge], and is never taken for dead. A server sends no PING before it has
// received one.
//
// # Limits
//
// A PONG proves that the peer reads and writes, not that its handlers do well. What the wrapped side
// has not read yet is kept up to Config.ReadBuffer; then the Conn stops reading, finds no PINGs behind
// it, and judges nobody. RFC KA-50 allows that to a server only; a client comes to it where ttrpc's own
// reader waits, which since 1.2.9 it does for a second at most. The wrapped side must not speak PING
// itself.
//
// The rules are those of RFC.md in this repository; KA-n in comments are their ids.
package keepalive
