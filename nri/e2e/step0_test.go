package e2e

import (
	"strings"
	"testing"
	"time"

	"ttrpc-keepalive/e2e/node"
)

// A runtime that asks the kernel before it closes a late plugin, and one that does not; both with plugins
// on Go's stub as it is. docs/nri-step-0.md is about it.

var step0 = newTable("docs/nri-step-0.md", "Written by `nri/e2e/run --write`.", `
| containerd 2.4.2 | slow plugin | stopped plugin |
|---|---|---|`,
	"| as it is | {containerd slow} | {containerd stopped} |",
	"| with the lines | {containerd-step0 slow} | {containerd-step0 stopped} |")

func TestStockClosesASlowPlugin(t *testing.T) {
	shows := row(t, "containerd 2.4.2, slow Go plugin")
	shows("%s", slow(t, "containerd", false))
}

func TestStep0KeepsASlowPlugin(t *testing.T) {
	shows := row(t, "containerd 2.4.2 with step 0, slow Go plugin")
	shows("%s", slow(t, "containerd-step0", true))
}

func TestStockClosesAStoppedPlugin(t *testing.T) {
	shows := row(t, "containerd 2.4.2, stopped Go plugin")
	shows("%s", stopped(t, "containerd"))
}

func TestStep0ClosesAStoppedPlugin(t *testing.T) {
	shows := row(t, "containerd 2.4.2 with step 0, stopped Go plugin")
	shows("%s", stopped(t, "containerd-step0"))
}

func slow(t *testing.T, containerd string, kept bool) string {
	n, plugin := withGoPlugin(t, containerd)
	pod := n.Pod("pod")
	created := pod.Create("slow")
	claimAfterTheLimit(t, created)
	if kept {
		plugin.Wait("answers CreateContainer slow")
	}
	next := pod.Create("next")
	claim(t, next.Err == nil, "the next container: %v", next.Err)
	claim(t, next.Sees(adjusted) == kept, "the next container is adjusted: %v", !kept)
	if !kept {
		step0.fill(containerd+" slow", "closed")
		return closed(t, n, plugin, created)
	}
	plugin.Wait("got CreateContainer next")
	claim(t, plugin.Lives(), "the plugin has ended")
	claim(t, len(n.Containerd.With("closing plugin")) == 0, "containerd says %q", n.About("10-go"))
	step0.fill(containerd+" slow", "**kept, and the next container adjusted**")
	return took(created) + "; kept, and the next container adjusted"
}

func stopped(t *testing.T, containerd string) string {
	n, plugin := withGoPlugin(t, containerd)
	pod := n.Pod("pod")
	plugin.Stop()
	created := pod.Create("stopped")
	claimAfterTheLimit(t, created)
	next := pod.Create("next")
	claim(t, next.Err == nil && next.Took < time.Second, "the next container took %v: %v", next.Took, next.Err)
	plugin.Continue()
	step0.fill(containerd+" stopped", "closed")
	return closed(t, n, plugin, created)
}

// withGoPlugin starts a node with the plugin on Go's stub.
func withGoPlugin(t *testing.T, containerd string) (*node.Node, *node.Process) {
	n := node.Start(t, node.Options{Containerd: containerd})
	plugin := node.Run(t, node.Program("plugin"), n.Socket)
	plugin.Wait("got Synchronize")
	return n, plugin
}

// closed claims that containerd has closed the plugin and says so.
func closed(t *testing.T, n *node.Node, plugin *node.Process, created *node.Container) string {
	t.Helper()
	line := n.Containerd.Wait("closing plugin 10-go, failed to handle CreateContainer request")
	claim(t, strings.Contains(line, "deadline exceeded"), "containerd says %q", line)
	plugin.Wait("ended:")
	claim(t, len(plugin.With("got CreateContainer next")) == 0, "it got the next event")
	return took(created) + "; closed"
}

// took is how long CreateContainer took.
func took(created *node.Container) string {
	return "the event took " + created.Took.Round(10*time.Millisecond).String()
}
