// Command multiplex has containerd/nri's multiplexer at one end of a unix socket: it serves an echo on
// connection 1, and on connection 2 it is a client of one. It is told by lines what to have echoed, and says
// what became of it.
//
//	multiplex SOCKET
//	  calls AT_ONCE SIZE...    requests of these sizes, so many at a time
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const service = "demo.Echo"

func main() {
	trunk, err := net.Dial("unix", os.Args[1])
	check(err)
	mux := multiplex.Multiplex(trunk)
	server, err := ttrpc.NewServer()
	check(err)
	server.Register(service, map[string]ttrpc.Method{
		"Say": func(_ context.Context, unmarshal func(interface{}) error) (interface{}, error) {
			request := &wrapperspb.BytesValue{}
			err := unmarshal(request)
			return request, err
		},
	})
	listener, err := mux.Listen(multiplex.LowestConnID)
	check(err)
	go server.Serve(context.Background(), listener)
	conn, err := mux.Open(multiplex.LowestConnID + 1)
	check(err)
	client := ttrpc.NewClient(conn)
	fmt.Println("ready")

	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		fmt.Println(calls(client, words[1], words[2:]))
	}
}

// calls says "ok" if all of them were answered with what was sent.
func calls(client *ttrpc.Client, most string, sizes []string) string {
	limit, err := strconv.Atoi(most)
	check(err)
	var callers sync.WaitGroup
	places := make(chan struct{}, limit)
	failed := make(chan error, len(sizes))
	for _, text := range sizes {
		size, err := strconv.Atoi(text)
		check(err)
		places <- struct{}{}
		callers.Add(1)
		go func() {
			defer callers.Done()
			if err := call(client, size); err != nil {
				failed <- fmt.Errorf("%d bytes: %w", size, err)
			}
			<-places
		}()
	}
	callers.Wait()
	select {
	case err := <-failed:
		return fmt.Sprint("FAIL ", err)
	default:
		return fmt.Sprint("ok ", len(sizes), " calls")
	}
}

func call(client *ttrpc.Client, size int) error {
	request := &wrapperspb.BytesValue{Value: bytes.Repeat([]byte{byte(size)}, size)}
	answer := &wrapperspb.BytesValue{}
	if err := client.Call(context.Background(), service, "Say", request, answer); err != nil {
		return err
	}
	if !bytes.Equal(answer.Value, request.Value) {
		return fmt.Errorf("other bytes")
	}
	return nil
}

func check(err error) {
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
}
