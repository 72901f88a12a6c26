package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The names of the services; the one in interop/rust is the same.
const (
	service = "interop.Unary"
	streams = "interop.Streams"
)

func unary[Q, R any](handle func(context.Context, *Q) (*R, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		request := new(Q)
		if err := unmarshal(request); err != nil {
			return nil, err
		}
		reply, err := handle(ctx, request)
		if err != nil {
			return nil, err
		}
		return reply, nil
	}
}

func register(server *ttrpc.Server) {
	server.Register(service, map[string]ttrpc.Method{
		// Say gives its message back.
		"Say": unary(func(_ context.Context, text *StringValue) (*StringValue, error) { return text, nil }),
		// Bytes gives its message back.
		"Bytes": unary(func(_ context.Context, bytes *BytesValue) (*BytesValue, error) { return bytes, nil }),
		// Grow gives as many bytes as it is asked for.
		"Grow": unary(func(_ context.Context, size *Int64Value) (*BytesValue, error) {
			return &BytesValue{Value: make([]byte, size.Value)}, nil
		}),
		// Sleep gives its message back after as many milliseconds, whatever the deadline is.
		"Sleep": unary(func(_ context.Context, ms *Int64Value) (*Int64Value, error) {
			time.Sleep(time.Duration(ms.Value) * time.Millisecond)
			return ms, nil
		}),
		// Remaining gives the nanoseconds left, 0 without a deadline.
		"Remaining": unary(func(ctx context.Context, _ *StringValue) (*Int64Value, error) {
			deadline, ok := ctx.Deadline()
			if !ok {
				return &Int64Value{}, nil
			}
			return &Int64Value{Value: int64(time.Until(deadline))}, nil
		}),
		// Metadata gives the values of a key, with commas between.
		"Metadata": unary(func(ctx context.Context, key *StringValue) (*StringValue, error) {
			metadata, _ := ttrpc.GetMetadata(ctx)
			return &StringValue{Value: strings.Join(metadata[key.Value], ",")}, nil
		}),
		// Fail ends with the code it is given.
		"Fail": unary(func(_ context.Context, code *Int64Value) (*StringValue, error) {
			return nil, failure(code.Value)
		}),
	})
	registerStreams(server)
}

func failure(code int64) error {
	return withDetail(status.New(codes.Code(code), fmt.Sprintf("failed with %d", code)))
}
