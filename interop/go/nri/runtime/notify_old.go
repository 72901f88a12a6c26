//go:build nri0.8

package main

import (
	"context"
	"fmt"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// notify tells of an event that has no answer. Before 0.12.0 all have one call.
func notify(ctx context.Context, r *adaptation.Adaptation, event string, pod *api.PodSandbox, container *api.Container) error {
	change := &api.StateChangeEvent{Pod: pod, Container: container}
	switch event {
	case "RunPodSandbox":
		return r.RunPodSandbox(ctx, change)
	case "StopPodSandbox":
		return r.StopPodSandbox(ctx, change)
	case "RemovePodSandbox":
		return r.RemovePodSandbox(ctx, change)
	case "PostCreateContainer":
		return r.PostCreateContainer(ctx, change)
	case "StartContainer":
		return r.StartContainer(ctx, change)
	case "PostStartContainer":
		return r.PostStartContainer(ctx, change)
	case "PostUpdateContainer":
		return r.PostUpdateContainer(ctx, change)
	case "RemoveContainer":
		return r.RemoveContainer(ctx, change)
	}
	return fmt.Errorf("no event %q", event)
}
