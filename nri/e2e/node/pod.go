package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod runs. It is removed with its test.
type Pod struct {
	ID string

	node   *Node
	config *cri.PodSandboxConfig
}

// Container is what CreateContainer of CRI made, or why it did not.
type Container struct {
	ID string
	// Err is what CreateContainer returned, and Took how long it took.
	Err  error
	Took time.Duration

	pod *Pod
	log string
}

// Pod runs a pod with the node's network.
func (n *Node) Pod(name string) *Pod {
	n.t.Helper()
	pod := &Pod{node: n, config: &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		LogDirectory: filepath.Join(n.path("logs"), name),
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: n.groups,
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE},
			},
		},
	}}
	ctx, cancel := soon()
	defer cancel()
	run, err := n.cri.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod.config})
	Must(n.t, err)
	pod.ID = run.GetPodSandboxId()
	n.t.Cleanup(pod.remove)
	return pod
}

// remove is not what is tested: what is left ends with the namespaces.
func (p *Pod) remove() {
	ctx, cancel := soon()
	defer cancel()
	p.node.cri.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.ID})
	p.node.cri.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.ID})
}

// Create creates a container, and starts it if that went well. Annotations are pairs of key and value.
func (p *Pod) Create(name string, annotations ...string) *Container {
	p.node.t.Helper()
	pairs := map[string]string{}
	for i := 1; i < len(annotations); i += 2 {
		pairs[annotations[i-1]] = annotations[i]
	}
	container := &Container{pod: p, log: filepath.Join(p.config.LogDirectory, name+".log")}
	ctx, cancel := soon()
	defer cancel()
	begin := time.Now()
	created, err := p.node.cri.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId:  p.ID,
		SandboxConfig: p.config,
		Config: &cri.ContainerConfig{
			Metadata:    &cri.ContainerMetadata{Name: name},
			Image:       &cri.ImageSpec{Image: image},
			Command:     []string{"/box", "show"},
			Annotations: pairs,
			LogPath:     name + ".log",
			Linux:       &cri.LinuxContainerConfig{},
		},
	})
	container.Took, container.Err, container.ID = time.Since(begin), err, created.GetContainerId()
	if err == nil {
		_, err = p.node.cri.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: container.ID})
		Must(p.node.t, err)
	}
	return container
}

// Sees says whether this variable is in the environment that the container itself has written to its log.
func (c *Container) Sees(variable string) bool {
	c.pod.node.t.Helper()
	var log string
	Until(c.pod.node.t, "the container has written its log", func() bool {
		text, err := os.ReadFile(c.log)
		log = string(text)
		return err == nil && strings.Contains(log, " ready\n")
	})
	return strings.Contains(log, " env "+variable+"\n")
}

// Group is what a file of its cgroup says, as in Group("cpu", "cpu.shares").
func (c *Container) Group(controller, file string) string {
	c.pod.node.t.Helper()
	path := filepath.Join("/sys/fs/cgroup", controller, c.pod.node.groups, c.ID, file)
	return strings.TrimSpace(read(c.pod.node.t, path))
}

// Exec runs the image's program in the container once more, and returns what it writes.
func (c *Container) Exec(arguments ...string) (string, error) {
	ctx, cancel := soon()
	defer cancel()
	done, err := c.pod.node.cri.ExecSync(ctx, &cri.ExecSyncRequest{
		ContainerId: c.ID,
		Cmd:         append([]string{"/box"}, arguments...),
		Timeout:     int64(Patience.Seconds()),
	})
	return string(done.GetStdout()), err
}

// Stop stops the container.
func (c *Container) Stop() error {
	ctx, cancel := soon()
	defer cancel()
	_, err := c.pod.node.cri.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.ID, Timeout: 5})
	return err
}

// Remove removes it.
func (c *Container) Remove() error {
	ctx, cancel := soon()
	defer cancel()
	_, err := c.pod.node.cri.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: c.ID})
	return err
}

func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*Patience)
}
