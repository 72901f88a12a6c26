package keepalive_test

import (
	"context"
	"errors"
	"log"
	"net"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"ttrpc-keepalive/interop/keepalive"
)

// A call that runs out of time says nothing about its peer; the connection does.
func ExampleClient() {
	conn, err := net.Dial("unix", "/run/plugin.sock")
	if err != nil {
		log.Fatal(err)
	}
	alive := keepalive.Client(conn, keepalive.Config{
		ReadIdleTimeout: 10 * time.Second,
		PingTimeout:     10 * time.Second,
	})
	client := ttrpc.NewClient(alive)
	defer client.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var reply wrapperspb.StringValue
	err = client.Call(ctx, "demo.Echo", "Say", wrapperspb.String("hello"), &reply)
	switch {
	case err == nil:
		log.Print(reply.Value)
	case errors.Is(alive.Err(), keepalive.ErrPingTimeout):
		log.Print("the peer is dead: ", alive.Err())
	case errors.Is(err, context.DeadlineExceeded):
		log.Print("the peer is slow; its connection is as good as before")
	default:
		log.Print(err)
	}
}

// An interceptor judges all unary calls of a client, also to a peer that knows nothing of PING.
func ExampleConn_Judge() {
	conn, err := net.Dial("unix", "/run/plugin.sock")
	if err != nil {
		log.Fatal(err)
	}
	alive := keepalive.Client(conn, keepalive.Config{})
	judged := func(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, _ *ttrpc.UnaryClientInfo, next ttrpc.Invoker) error {
		return alive.Judge(ctx, func(ctx context.Context) error { return next(ctx, req, resp) })
	}
	client := ttrpc.NewClient(alive, ttrpc.WithUnaryClientInterceptor(judged))
	defer client.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var reply wrapperspb.StringValue
	err = client.Call(ctx, "demo.Echo", "Say", wrapperspb.String("hello"), &reply)
	var late *keepalive.LateError
	if errors.As(err, &late) {
		switch late.Verdict {
		case keepalive.VerdictSlow, keepalive.VerdictReads:
			log.Print("keep it: ", err)
		case keepalive.VerdictNotReading, keepalive.VerdictUnresponsive:
			log.Print("close it: ", err)
		default:
			log.Print("nobody knows: ", err)
		}
	}
}

func ExampleNewListener() {
	listener, err := net.Listen("unix", "/run/plugin.sock")
	if err != nil {
		log.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	// The zero Config answers PINGs and sends none.
	log.Fatal(server.Serve(context.Background(), keepalive.NewListener(listener, keepalive.Config{})))
}

func ExampleNewHandshaker() {
	config := keepalive.Config{ReadIdleTimeout: 10 * time.Second, PingTimeout: 10 * time.Second}
	sameUser := ttrpc.UnixSocketRequireSameUser()
	server, err := ttrpc.NewServer(
		ttrpc.WithServerHandshaker(keepalive.NewHandshaker(sameUser, config)),
	)
	if err != nil {
		log.Fatal(err)
	}
	_ = server
}
