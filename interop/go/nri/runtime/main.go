// Command runtime is a runtime with Go's adaptation as it is. It tells plugins of the events that it is told on
// its input, "EVENT NAME" with the name of a pod or a container, and prints what became of each, how long it
// took in seconds, and what plugins do by themselves.
//
//	runtime SOCKET PLUGINS PODS
//
// PLUGINS is the folder of plugins that it starts, PODS how many pods of 1 MiB there are, beside 50 containers.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("usage: runtime SOCKET PLUGINS PODS")
	}
	count, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	pods := make([]*api.PodSandbox, count)
	for at := range pods {
		pods[at] = pod(strconv.Itoa(at))
		pods[at].Annotations = map[string]string{"large": strings.Repeat("x", 1<<20)}
	}
	// It cannot make parts of few containers.
	containers := make([]*api.Container, 50)
	for at := range containers {
		containers[at] = container("there-" + strconv.Itoa(at))
	}
	runtime, err := adaptation.New("interop", "1.0",
		func(ctx context.Context, synchronize adaptation.SyncCB) error {
			updates, err := synchronize(ctx, pods, containers)
			if err != nil {
				fmt.Println("not synchronized", err)
				return err
			}
			fmt.Println("synchronized", len(updates))
			return nil
		},
		func(_ context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
			for _, update := range updates {
				fmt.Println("updated", update.ContainerId, resources(update.GetLinux().GetResources()))
			}
			return nil, nil
		},
		adaptation.WithPluginPath(arguments[1]), adaptation.WithPluginConfigPath(arguments[1]),
		adaptation.WithSocketPath(arguments[0]))
	if err != nil {
		return err
	}
	if err := runtime.Start(); err != nil {
		return err
	}
	fmt.Println("ready")
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		event, name, _ := strings.Cut(input.Text(), " ")
		begin := time.Now()
		became, err := tell(runtime, event, name)
		if err != nil {
			became = "failed: " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Printf("%s %s %.2f %s\n", event, name, time.Since(begin).Seconds(), became)
	}
	runtime.Stop()
	return nil
}

// tell tells the plugins of an event, and returns what became of it.
func tell(runtime *adaptation.Adaptation, event, name string) (string, error) {
	ctx := context.Background()
	switch event {
	case "CreateContainer":
		answer, err := runtime.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod(name), Container: container(name)})
		return adjusted(answer), err
	case "UpdateContainer":
		answer, err := runtime.UpdateContainer(ctx, &api.UpdateContainerRequest{Pod: pod(name), Container: container(name), LinuxResources: &api.LinuxResources{}})
		return updated(answer.GetUpdate()), err
	case "StopContainer":
		answer, err := runtime.StopContainer(ctx, &api.StopContainerRequest{Pod: pod(name), Container: container(name)})
		return updated(answer.GetUpdate()), err
	}
	return "told", notify(ctx, runtime, event, pod(name), container(name))
}

func adjusted(answer *api.CreateContainerResponse) string {
	env := answer.GetAdjust().GetEnv()
	shares := answer.GetAdjust().GetLinux().GetResources()
	if len(env) == 0 && shares.GetCpu().GetShares() == nil {
		return "plain"
	}
	parts := []string{"adjusted"}
	for _, variable := range env {
		parts = append(parts, variable.Key+"="+variable.Value)
	}
	return strings.Join(append(parts, resources(shares)), " ")
}

func updated(updates []*api.ContainerUpdate) string {
	parts := []string{"updates"}
	for _, update := range updates {
		if update == nil { // That of the container itself, where nobody changes it.
			continue
		}
		parts = append(parts, update.ContainerId, resources(update.GetLinux().GetResources()))
	}
	return strings.Join(parts, " ")
}

func resources(r *api.LinuxResources) string {
	return fmt.Sprintf("shares=%d memory=%d", r.GetCpu().GetShares().GetValue(), r.GetMemory().GetLimit().GetValue())
}

func pod(name string) *api.PodSandbox {
	return &api.PodSandbox{Id: name, Name: name}
}

func container(name string) *api.Container {
	return &api.Container{Id: name, Name: name, PodSandboxId: name}
}
