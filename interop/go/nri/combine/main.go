// Command combine has Go's runtime side combine what plugins answer. Each line that it reads has a container and the
// answers of one plugin after another, in base64; it prints what all want together, or "conflict" and the error.
//
//	combine FOLDER
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/adaptation/builtin"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "combine:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	var answers []*api.CreateContainerResponse
	var plugins []*builtin.BuiltinPlugin
	for at, name := range []string{"a", "b", "c"} {
		plugins = append(plugins, &builtin.BuiltinPlugin{
			Base: name, Index: fmt.Sprintf("%d0", at+1),
			Handlers: builtin.BuiltinHandlers{CreateContainer: func(context.Context, *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
				return answers[at], nil
			}},
		})
	}
	runtime, err := adaptation.New("interop", "1.0",
		func(ctx context.Context, synchronize adaptation.SyncCB) error {
			_, err := synchronize(ctx, nil, nil)
			return err
		},
		func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithPluginPath(folder), adaptation.WithPluginConfigPath(folder),
		adaptation.WithSocketPath(filepath.Join(folder, "combine.sock")),
		adaptation.WithBuiltinPlugins(plugins...))
	if err != nil {
		return err
	}
	if err := runtime.Start(); err != nil {
		return err
	}
	defer runtime.Stop()
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<24)
	for input.Scan() {
		parts := strings.Fields(input.Text())
		container := &api.Container{}
		if err := decode(parts[0], container); err != nil {
			return err
		}
		answers = nil
		for _, part := range parts[1:] {
			answer := &api.CreateContainerResponse{}
			if err := decode(part, answer); err != nil {
				return err
			}
			answers = append(answers, answer)
		}
		created, err := runtime.CreateContainer(context.Background(), &adaptation.CreateContainerRequest{
			Pod: &api.PodSandbox{Id: "pod"}, Container: container,
		})
		if err != nil {
			fmt.Println("conflict", err)
			continue
		}
		encoded, err := proto.Marshal(created)
		if err != nil {
			return err
		}
		fmt.Println("created", base64.StdEncoding.EncodeToString(encoded))
	}
	return input.Err()
}

// decode takes a text that has a mark in front, so that nothing is a text too.
func decode(text string, into proto.Message) error {
	encoded, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "="))
	if err != nil {
		return err
	}
	return proto.Unmarshal(encoded, into)
}
