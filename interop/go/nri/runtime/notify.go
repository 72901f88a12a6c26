//go:build !nri0.8

package main

import (
	"context"
	"fmt"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// notify tells of an event that has no answer. From 0.12.0 on each has a call of its own.
func notify(ctx context.Context, r *adaptation.Adaptation, event string, pod *api.PodSandbox, container *api.Container) error {
	switch event {
	case "RunPodSandbox":
		return r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod})
	case "UpdatePodSandbox":
		_, err := r.UpdatePodSandbox(ctx, &api.UpdatePodSandboxRequest{Pod: pod})
		return err
	case "PostUpdatePodSandbox":
		return r.PostUpdatePodSandbox(ctx, &api.PostUpdatePodSandboxRequest{Pod: pod})
	case "StopPodSandbox":
		return r.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: pod})
	case "RemovePodSandbox":
		return r.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: pod})
	case "PostCreateContainer":
		return r.PostCreateContainer(ctx, &api.PostCreateContainerRequest{Pod: pod, Container: container})
	case "StartContainer":
		return r.StartContainer(ctx, &api.StartContainerRequest{Pod: pod, Container: container})
	case "PostStartContainer":
		return r.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: pod, Container: container})
	case "PostUpdateContainer":
		return r.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Pod: pod, Container: container})
	case "RemoveContainer":
		return r.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: pod, Container: container})
	}
	return fmt.Errorf("no event %q", event)
}
