// Command peer is an unmodified containerd/ttrpc that an interop run talks to: a server, a client
// that plays a scenario, or a client that does what it reads.
//
// It is built with several versions of ttrpc, by go build -modfile; those before 1.2 have no streams
// and other message types, for which there is the build tag ttrpc1.0.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"
	"ttrpc-keepalive/interop/keepalive"
)

const usage = `usage: peer [-idle D] [-timeout D] serve ADDRESS     until its input ends; "shutdown" on it shuts down
       peer [-idle D] [-timeout D] script ADDRESS    makes the calls it reads from its input
       peer [-idle D] [-timeout D] play ADDRESS NAME plays a scenario

ADDRESS is the path of a unix socket. With -idle the connection is wrapped by package keepalive.`

var (
	idle    = flag.Duration("idle", 0, "ReadIdleTimeout; wraps the connection")
	timeout = flag.Duration("timeout", 0, "PingTimeout")
)

func main() {
	flag.Usage = func() { fmt.Fprintln(os.Stderr, usage) }
	flag.Parse()
	// What is written to a connection that ended is an error there, and no reason to end.
	signal.Ignore(syscall.SIGPIPE)
	var err error
	switch args := flag.Args(); {
	case len(args) == 2 && args[0] == "serve":
		err = serve(args[1])
	case len(args) == 2 && args[0] == "script":
		err = script(args[1])
	case len(args) == 3 && args[0] == "play":
		err = play(args[1], args[2])
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
}

func config() keepalive.Config {
	return keepalive.Config{ReadIdleTimeout: *idle, PingTimeout: *timeout}
}

func serve(address string) error {
	listener, err := net.Listen("unix", address)
	if err != nil {
		return err
	}
	if *idle > 0 {
		listener = keepalive.NewListener(listener, config())
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	register(server)
	go server.Serve(context.Background(), listener)
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		if input.Text() == "shutdown" {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			fmt.Println("down", server.Shutdown(ctx) == nil)
			cancel()
		}
	}
	return input.Err()
}

// connect gives a client, and its connection if that is wrapped.
func connect(address string) (*ttrpc.Client, *keepalive.Conn, error) {
	conn, err := net.Dial("unix", address)
	if err != nil {
		return nil, nil, err
	}
	if *idle == 0 {
		return ttrpc.NewClient(conn), nil, nil
	}
	wrapped := keepalive.Client(conn, config())
	return ttrpc.NewClient(wrapped), wrapped, nil
}

// script makes one call for each line: "say TEXT", "sleep MILLISECONDS" or "stream"; one after
// another, or meanwhile if the line begins with "&". It prints the line and what became of it.
func script(address string) error {
	client, _, err := connect(address)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		line, together := strings.CutPrefix(input.Text(), "&")
		if together {
			go func() { fmt.Println(line, outcome(client, line)) }()
		} else {
			fmt.Println(line, outcome(client, line))
		}
	}
	return input.Err()
}

func outcome(client *ttrpc.Client, line string) string {
	name, argument, _ := strings.Cut(line, " ")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	switch name {
	case "say":
		var text string
		if text, err = say(ctx, client, argument); err == nil && text != argument {
			err = fmt.Errorf("answered %q", text)
		}
	case "sleep":
		var ms int64
		if ms, err = strconv.ParseInt(argument, 10, 64); err == nil {
			err = client.Call(ctx, service, "Sleep", &Int64Value{Value: ms}, new(Int64Value))
		}
	case "stream":
		err = countTo(ctx, client, 5)
	default:
		err = errors.New("no such call")
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return "ok"
}

func say(ctx context.Context, client *ttrpc.Client, text string) (string, error) {
	reply := new(StringValue)
	err := client.Call(ctx, service, "Say", &StringValue{Value: text}, reply)
	return reply.Value, err
}
