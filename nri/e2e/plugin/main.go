// Command plugin is an NRI plugin on Go's stub as it is. It prints each event that it gets, and sets
// NRI_PROBE=was-here in each container. One whose name begins with slow it answers after 3 s.
//
//	plugin SOCKET
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

type plugin struct{}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: plugin SOCKET")
		os.Exit(2)
	}
	served, err := stub.New(plugin{}, stub.WithPluginName("go"), stub.WithPluginIdx("10"),
		stub.WithSocketPath(os.Args[1]), stub.WithOnClose(func() { fmt.Println("closed") }))
	if err == nil {
		err = served.Run(context.Background())
	}
	fmt.Println("ended:", err)
}

func (plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	fmt.Printf("got Synchronize with %d pods, %d containers\n", len(pods), len(containers))
	return nil, nil
}

func (plugin) CreateContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	fmt.Println("got CreateContainer", container.GetName())
	if strings.HasPrefix(container.GetName(), "slow") {
		time.Sleep(3 * time.Second)
	}
	adjustment := &api.ContainerAdjustment{}
	adjustment.AddEnv("NRI_PROBE", "was-here")
	fmt.Println("answers CreateContainer", container.GetName())
	return adjustment, nil, nil
}

func (plugin) PostCreateContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	fmt.Println("got PostCreateContainer", container.GetName())
	return nil
}
