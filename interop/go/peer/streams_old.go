//go:build ttrpc1.0

package main

import (
	"context"
	"errors"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"
)

func registerStreams(*ttrpc.Server) {}

func countTo(context.Context, *ttrpc.Client, int64) error {
	return errors.New("no streams in this version")
}

func play(string, string) error { return errors.New("no scenarios for this version") }

func withDetail(failure *status.Status) error { return failure.Err() }
