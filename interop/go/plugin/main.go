// Command plugin is a plugin of `cargo run --example slow_or_dead -- --old-peers go`, served by
// containerd/ttrpc as it is. It dials its runtime, serves on what it has dialled, and prints what it does
// and when, as the plugins in Rust do.
//
//	plugin NAME SOCKET
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// work says how long an event takes a plugin, as in the example. A handler that blocks for as long has its
// own goroutine here: to others it is one that is slow.
var work = map[string]map[uint32]time.Duration{
	"slow":   {3: 5 * time.Second},
	"wedged": {4: 5 * time.Second},
	"frozen": {5: time.Second},
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: plugin NAME SOCKET")
		os.Exit(2)
	}
	go func() { // It ends with its runtime, whose end of the pipe is closed then.
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		if err := serve(os.Args[1], os.Args[2]); err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// serve serves one connection until it ends.
func serve(name, socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	note("connected")
	server.Register("demo.Plugin", map[string]ttrpc.Method{
		"Register": func(_ context.Context, unmarshal func(any) error) (any, error) {
			err := unmarshal(&emptypb.Empty{})
			return wrapperspb.String(fmt.Sprintf("%s %d", name, os.Getpid())), err
		},
		"HandleEvent": func(_ context.Context, unmarshal func(any) error) (any, error) {
			var event wrapperspb.UInt32Value
			if err := unmarshal(&event); err != nil {
				return nil, err
			}
			note("got", event.Value)
			time.Sleep(work[name][event.Value])
			note("ended", event.Value)
			return &emptypb.Empty{}, nil
		},
	})
	dialled := &dialled{conn: conn, ended: make(chan struct{})}
	go func() {
		<-dialled.ended
		server.Close()
	}()
	err = server.Serve(context.Background(), dialled)
	note("disconnected", err)
	return nil
}

// note prints a line with the reading of the clock that all processes of this machine share.
func note(deed ...any) {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	fmt.Print(now.Nano(), " ", fmt.Sprintln(deed...))
}

// dialled is a listener at which one connection has come: that which was dialled.
type dialled struct {
	conn  net.Conn
	ended chan struct{}
	taken bool
}

func (d *dialled) Accept() (net.Conn, error) {
	if d.taken {
		<-d.ended
		return nil, net.ErrClosed
	}
	d.taken = true
	return &watched{d.conn, d.ended}, nil
}

func (d *dialled) Close() error   { return nil }
func (d *dialled) Addr() net.Addr { return d.conn.LocalAddr() }

// watched says when the server has done with a connection.
type watched struct {
	net.Conn
	ended chan struct{}
}

func (w *watched) Close() error {
	select {
	case <-w.ended:
	default:
		close(w.ended)
	}
	return w.Conn.Close()
}
