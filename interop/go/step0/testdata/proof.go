// Command proof plays a runtime, or a plugin that is told by the name of a container what to do.
//
//	proof plugin SOCKET
//	proof runtime FOLDER PROGRAM slow|stopped
//
// The plugin is PROGRAM, built with a release as it is.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

func main() {
	err := fmt.Errorf("usage: proof plugin SOCKET | runtime FOLDER PROGRAM slow|stopped")
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "plugin":
		err = servePlugin(args[1])
	case len(args) == 4 && args[0] == "runtime":
		err = playRuntime(args[1], args[2], args[3])
	}
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
}

type plugin struct{}

func (plugin) CreateContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	fmt.Println("got", container.GetName())
	if strings.HasPrefix(container.GetName(), "slow") {
		time.Sleep(3 * time.Second)
	}
	return nil, nil, nil
}

func servePlugin(socket string) error {
	served, err := stub.New(plugin{}, stub.WithPluginName("proof"), stub.WithPluginIdx("10"),
		stub.WithSocketPath(socket), stub.WithOnClose(func() { fmt.Println("closed") }))
	if err != nil {
		return err
	}
	return served.Run(context.Background())
}

func playRuntime(folder, program, does string) error {
	socket := filepath.Join(folder, "s")
	synchronized := make(chan struct{}, 2)
	runtime, err := adaptation.New("proof", "1",
		func(ctx context.Context, synchronize adaptation.SyncCB) error {
			_, err := synchronize(ctx, nil, nil)
			synchronized <- struct{}{}
			return err
		},
		func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithPluginPath(folder), adaptation.WithPluginConfigPath(folder),
		adaptation.WithSocketPath(socket))
	if err != nil {
		return err
	}
	if err := runtime.Start(); err != nil {
		return err
	}
	defer runtime.Stop()
	<-synchronized // Those plugins that it starts itself: none.
	command := exec.Command(program, "plugin", socket)
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	defer command.Process.Kill()
	says := make(chan string, 100)
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			says <- lines.Text()
		}
		close(says)
	}()
	select {
	case <-synchronized:
	case <-time.After(10 * time.Second):
		return fmt.Errorf("no plugin registered")
	}
	time.Sleep(200 * time.Millisecond)
	create := func(name string) (time.Duration, error) {
		begin := time.Now()
		_, err := runtime.CreateContainer(context.Background(), &adaptation.CreateContainerRequest{
			Pod:       &api.PodSandbox{Id: "pod", Name: "pod"},
			Container: &api.Container{Id: name, PodSandboxId: "pod", Name: name},
		})
		return time.Since(begin), err
	}
	if _, err := create("first"); err != nil {
		return err
	}
	late := "slow"
	if does == "stopped" {
		late = "stopped"
		if err := stop(command.Process); err != nil {
			return err
		}
	}
	took, err := create(late)
	if err != nil {
		return err
	}
	if does == "stopped" {
		command.Process.Signal(syscall.SIGCONT)
	}
	time.Sleep(1500 * time.Millisecond)
	if _, err := create("next"); err != nil {
		return err
	}
	fmt.Printf("the event took %.2f s; %s\n", took.Seconds(), becomes(says))
	return nil
}

// stop waits until each thread is stopped: a signal is on its way for a while.
func stop(process *os.Process) error {
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for try := 0; try < 2000; try++ {
		if isStopped(process.Pid) {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("the plugin does not stop")
}

func isStopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		stat, _ := os.ReadFile(thread)
		// The state follows the name, which is in brackets.
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

// becomes waits for what tells what became of the plugin: the next event, or its end. A plugin whose
// connection is closed may exit before its stub says so.
func becomes(says <-chan string) string {
	enough := time.After(10 * time.Second)
	for {
		select {
		case line, lives := <-says:
			switch {
			case line == "got next":
				return "kept, and got the next event"
			case line == "closed" || !lives:
				return "closed"
			}
		case <-enough:
			return "the plugin got nothing more"
		}
	}
}
