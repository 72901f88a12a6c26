// Package node runs a containerd of its own for a test, with CRI and NRI and without a registry, a network
// or anything of the machine's, and takes pods through it. It works in the namespaces that
// nri/e2e/namespaces makes.
package node

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"text/template"

	containerd "github.com/containerd/containerd/v2/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var programs = flag.String("programs", "", "folder with the programs that nri/e2e/run builds")

// Program is the path of one of the programs that nri/e2e/run builds.
func Program(name string) string { return filepath.Join(*programs, name) }

// Options are what a node may have other than by default.
type Options struct {
	// Containerd is one of the programs, and "containerd" if it is empty: the release as it is.
	Containerd string
	// Shim is the path of the runtime's shim, by default that of the release for runc.
	Shim string
	// Launched are plugins that containerd starts itself: their programs by their names there, as
	// "10-name". They may have arguments.
	Launched map[string]string
}

// Node is a containerd that runs.
type Node struct {
	// Containerd is its process, which writes its log.
	Containerd *Process
	// Socket is that of NRI, to which plugins connect.
	Socket string

	t       testing.TB
	options Options
	folder  string
	groups  string
	cri     cri.RuntimeServiceClient
}

var started atomic.Int32

// Start starts a containerd, which has the image of all pods when this returns. It ends with the test.
func Start(t testing.TB, options Options) *Node {
	t.Helper()
	if options.Containerd == "" {
		options.Containerd = "containerd"
	}
	if options.Shim == "" {
		options.Shim = Program("containerd-shim-runc-v2")
	}
	number := started.Add(1)
	node := &Node{
		t:       t,
		options: options,
		// Short, since the path of a socket ends after some 107 bytes, and /run is a place of our own.
		folder: fmt.Sprintf("/run/e2e/%d", number),
		groups: fmt.Sprintf("/%s/%d", os.Getenv("NODE_GROUPS"), number),
	}
	node.Socket = node.path("nri.sock")
	for _, folder := range []string{"cni", "logs", "nri.conf.d", "nri.d"} {
		Must(t, os.MkdirAll(node.path(folder), 0o755))
	}
	for name, program := range options.Launched {
		// containerd would drop what they write.
		script := fmt.Sprintf("#!/bin/sh\nexec %s >%s 2>&1\n", program, node.launchedLog(name))
		Must(t, os.WriteFile(filepath.Join(node.path("nri.d"), name), []byte(script), 0o755))
	}
	node.configure()
	node.run()
	Must(t, node.loadImage())
	address := "unix://" + node.path("c.sock")
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	Must(t, err)
	t.Cleanup(func() { connection.Close() })
	node.cri = cri.NewRuntimeServiceClient(connection)
	images := cri.NewImageServiceClient(connection)
	Until(t, "CRI has the image", func() bool {
		ctx, cancel := soon()
		defer cancel()
		status, err := images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
		return err == nil && status.GetImage() != nil
	})
	return node
}

func (n *Node) path(name string) string { return filepath.Join(n.folder, name) }

//go:embed containerd.toml
var settings string

func (n *Node) configure() {
	n.t.Helper()
	var text bytes.Buffer
	err := template.Must(template.New("").Parse(settings)).Execute(&text, map[string]string{
		"Folder": n.folder,
		"Shim":   n.options.Shim,
		"Image":  image,
	})
	Must(n.t, err)
	Must(n.t, os.WriteFile(n.path("containerd.toml"), text.Bytes(), 0o644))
}

func (n *Node) run() {
	n.t.Helper()
	n.Containerd = Run(n.t, Program(n.options.Containerd), "-c", n.path("containerd.toml"))
	n.Containerd.Wait("containerd successfully booted")
}

// Restart ends containerd in order, and starts it again with the same state. What it logs from then on is
// in a new Process.
func (n *Node) Restart() {
	n.t.Helper()
	n.Containerd.Terminate()
	n.run()
}

// Crash ends containerd by SIGKILL, and starts it again as Restart does.
func (n *Node) Crash() {
	n.t.Helper()
	n.Containerd.Kill()
	n.run()
}

// LaunchedLines are what a plugin has written that containerd has launched.
func (n *Node) LaunchedLines(name string) []string {
	n.t.Helper()
	return strings.Split(read(n.t, n.launchedLog(name)), "\n")
}

func (n *Node) launchedLog(name string) string { return n.path("logs/" + name + ".log") }

// About are the lines of containerd's log about a plugin, by part of its name.
func (n *Node) About(plugin string) (about []string) {
	for _, line := range n.Containerd.With("plugin") {
		if strings.Contains(line, plugin) {
			about = append(about, line)
		}
	}
	return about
}

func (n *Node) loadImage() error {
	tar, err := imageOf(Program("box"))
	if err != nil {
		return err
	}
	client, err := containerd.New(n.path("c.sock"), containerd.WithDefaultNamespace("k8s.io"))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	loaded, err := client.Import(ctx, bytes.NewReader(tar))
	if err != nil {
		return err
	}
	for _, one := range loaded {
		if err := containerd.NewImage(client, one).Unpack(ctx, "overlayfs"); err != nil {
			return err
		}
	}
	return nil
}

// Device makes a device node that nobody else has: another /dev/null.
func (n *Node) Device() (path string) {
	n.t.Helper()
	path = n.path("device")
	Must(n.t, syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|3))
	return path
}

// Shim is the process id and the address of the shim of a pod.
func (n *Node) Shim(pod *Pod) (pid int, address string) {
	n.t.Helper()
	bundle := n.path("state/io.containerd.runtime.v2.task/k8s.io/" + pod.ID)
	var bootstrap struct{ Address string }
	Must(n.t, json.Unmarshal([]byte(read(n.t, filepath.Join(bundle, "bootstrap.json"))), &bootstrap))
	running, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range running {
		arguments, _ := os.ReadFile(path)
		if bytes.Contains(arguments, []byte("-id\x00"+pod.ID)) {
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid, bootstrap.Address
		}
	}
	n.t.Fatalf("pod %s has no shim", pod.ID)
	return 0, ""
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	Must(t, err)
	return string(text)
}
