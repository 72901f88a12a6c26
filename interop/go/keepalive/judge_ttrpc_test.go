package keepalive_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"ttrpc-keepalive/interop/keepalive"
)

// An unmodified server whose handler sleeps.
func TestLateCallToAServerOfTodaySaysThatItReads(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this kernel cannot tell")
	}
	t.Parallel()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.Register("demo.Sleep", map[string]ttrpc.Method{
		"Sleep": func(ctx context.Context, unmarshal func(any) error) (any, error) {
			var request emptypb.Empty
			if err := unmarshal(&request); err != nil {
				return nil, err
			}
			time.Sleep(1500 * time.Millisecond)
			return &request, nil
		},
	})
	go server.Serve(context.Background(), listener)
	conn, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	alive := keepalive.Client(conn, keepalive.Config{})
	judged := func(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, _ *ttrpc.UnaryClientInfo, next ttrpc.Invoker) error {
		return alive.Judge(ctx, func(ctx context.Context) error { return next(ctx, req, resp) })
	}
	client := ttrpc.NewClient(alive, ttrpc.WithUnaryClientInterceptor(judged))
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = client.Call(ctx, "demo.Sleep", "Sleep", &emptypb.Empty{}, &emptypb.Empty{})
	var late *keepalive.LateError
	if !errors.As(err, &late) || late.Verdict != keepalive.VerdictReads || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	// It has lost nothing by the PING.
	if err := client.Call(t.Context(), "demo.Sleep", "Sleep", &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
		t.Error(err)
	}
}
