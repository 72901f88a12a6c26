// Command plugin is a plugin with Go's stub as it is. It does what the name of a container says, and prints a
// line for all that it is told.
//
//	plugin SOCKET [validates | fails]
//
// It may be a validator, or ask to have requests fail that it does not answer in time.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// slow is more than the 2 s that a runtime waits, and inTime is less.
const slow, inTime = 3 * time.Second, 1500 * time.Millisecond

type plugin struct {
	stub stub.Stub
}

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: plugin SOCKET [validates | fails]")
		os.Exit(2)
	}
	plugin := &plugin{}
	options := []stub.Option{stub.WithPluginName("go"), stub.WithPluginIdx("10"),
		stub.WithSocketPath(os.Args[1]), stub.WithOnClose(func() { fmt.Println("closed") })}
	if does("fails") {
		options = append(options, failing)
	}
	served, err := stub.New(plugin, options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	plugin.stub = served
	go func() { // It ends with whoever started it.
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		}
		os.Exit(0)
	}()
	if err := served.Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Println("ended")
	select {}
}

func does(what string) bool {
	return len(os.Args) == 3 && os.Args[2] == what
}

func (p *plugin) Configure(_ context.Context, config, runtime, version string) (api.EventMask, error) {
	fmt.Println("configured", runtime, version, p.stub.RegistrationTimeout(), p.stub.RequestTimeout())
	return wanted(does("validates")), nil
}

func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	fmt.Println("synchronized", len(pods), len(containers))
	return nil, nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return told("RunPodSandbox", pod.GetId())
}

func (p *plugin) UpdatePodSandbox(_ context.Context, pod *api.PodSandbox, _, _ *api.LinuxResources) error {
	return told("UpdatePodSandbox", pod.GetId())
}

func (p *plugin) PostUpdatePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return told("PostUpdatePodSandbox", pod.GetId())
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return told("StopPodSandbox", pod.GetId())
}

func (p *plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return told("RemovePodSandbox", pod.GetId())
}

func (p *plugin) CreateContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	name := container.GetName()
	err := told("CreateContainer", name)
	if name == "update" {
		go p.update()
	}
	if name == "empty" { // A plugin that answers for itself before the runtime gives up.
		time.Sleep(inTime)
		return nil, nil, nil
	}
	adjustment := &api.ContainerAdjustment{}
	adjustment.AddEnv("GO", name)
	adjustment.AddMount(&api.Mount{Destination: "/go", Source: "/", Type: "bind", Options: []string{"ro"}})
	adjustment.SetLinuxCPUShares(512)
	update := &api.ContainerUpdate{}
	update.SetContainerId("other")
	update.SetLinuxMemoryLimit(1 << 20)
	return adjustment, []*api.ContainerUpdate{update}, err
}

func (p *plugin) update() {
	update := &api.ContainerUpdate{}
	update.SetContainerId("late")
	update.SetLinuxCPUShares(7)
	failed, err := p.stub.UpdateContainers([]*api.ContainerUpdate{update})
	fmt.Println("updated", len(failed), err)
}

func (p *plugin) PostCreateContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	return told("PostCreateContainer", container.GetName())
}

func (p *plugin) StartContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	return told("StartContainer", container.GetName())
}

func (p *plugin) PostStartContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	return told("PostStartContainer", container.GetName())
}

func (p *plugin) UpdateContainer(_ context.Context, _ *api.PodSandbox, container *api.Container, _ *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	update := &api.ContainerUpdate{}
	update.SetContainerId(container.GetId())
	update.SetLinuxCPUShares(256)
	return []*api.ContainerUpdate{update}, told("UpdateContainer", container.GetName())
}

func (p *plugin) PostUpdateContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	return told("PostUpdateContainer", container.GetName())
}

func (p *plugin) StopContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, told("StopContainer", container.GetName())
}

func (p *plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	return told("RemoveContainer", container.GetName())
}

// told prints what came, and does what its name says.
func told(event, name string) error {
	fmt.Println("got", event, name)
	switch {
	case strings.HasPrefix(name, "slow"):
		time.Sleep(slow)
	case strings.HasPrefix(name, "error"):
		return errors.New("not this one")
	case strings.HasPrefix(name, "deadline"):
		return context.DeadlineExceeded
	}
	return nil
}
