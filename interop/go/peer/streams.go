//go:build !ttrpc1.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func registerStreams(server *ttrpc.Server) {
	server.RegisterService(streams, &ttrpc.ServiceDesc{Streams: map[string]ttrpc.Stream{
		// Sum gives the sum of what it receives.
		"Sum": {StreamingClient: true, Handler: func(_ context.Context, stream ttrpc.StreamServer) (any, error) {
			sum := new(Int64Value)
			for {
				number := new(Int64Value)
				if err := stream.RecvMsg(number); errors.Is(err, io.EOF) {
					return sum, nil
				} else if err != nil {
					return nil, err
				}
				sum.Value += number.Value
			}
		}},
		// Count sends 0 and so on, as many as it is asked for.
		"Count": {StreamingServer: true, Handler: func(_ context.Context, stream ttrpc.StreamServer) (any, error) {
			limit := new(Int64Value)
			if err := stream.RecvMsg(limit); err != nil {
				return nil, err
			}
			for i := range limit.Value {
				if err := stream.SendMsg(&Int64Value{Value: i}); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}},
		// Chat sends back what it receives. "fail" ends it with ABORTED.
		"Chat": {StreamingClient: true, StreamingServer: true, Handler: func(_ context.Context, stream ttrpc.StreamServer) (any, error) {
			for {
				text := new(StringValue)
				if err := stream.RecvMsg(text); errors.Is(err, io.EOF) {
					return nil, nil
				} else if err != nil {
					return nil, err
				}
				if text.Value == "fail" {
					return nil, failure(int64(codes.Aborted))
				}
				if err := stream.SendMsg(text); err != nil {
					return nil, err
				}
			}
		}},
		// Refuse ends at once, whatever is sent to it.
		"Refuse": {StreamingClient: true, Handler: func(context.Context, ttrpc.StreamServer) (any, error) {
			return nil, failure(int64(codes.PermissionDenied))
		}},
	}})
}

func countTo(ctx context.Context, client *ttrpc.Client, limit int64) error {
	stream, err := client.NewStream(ctx, &ttrpc.StreamDesc{StreamingServer: true}, streams, "Count", &Int64Value{Value: limit})
	if err != nil {
		return err
	}
	for want := int64(0); ; want++ {
		number := new(Int64Value)
		if err := stream.RecvMsg(number); errors.Is(err, io.EOF) && want == limit {
			return nil
		} else if err != nil {
			return err
		}
		if number.Value != want {
			return fmt.Errorf("%d came for %d", number.Value, want)
		}
	}
}

func withDetail(failure *status.Status) error {
	detailed, err := failure.WithDetails(&StringValue{Value: "detail"})
	if err != nil {
		return err
	}
	return detailed.Err()
}
