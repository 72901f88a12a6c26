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

func TestSlowGoPluginIsKeptByStep0Alone(t *testing.T) {
	t.Parallel()
	for _, build := range []*build{stock, newer, asking} {
		t.Run(build.program, func(t *testing.T) {
			shows := row(t, build.name+", Go plugin takes 3 s")
			n, plugin := withGoPlugin(t, build)
			pod := n.Pod("pod")
			created := pod.Create("slow")
			claimAfterTheLimit(t, created)
			if build.asks {
				plugin.Wait("answers CreateContainer slow")
			}
			next := pod.Create("next")
			claim(t, next.Err == nil, "the next container: %v", next.Err)
			claim(t, next.Sees(adjusted) == build.asks, "the next container is adjusted: %v", !build.asks)
			if !build.asks {
				step0.fill(build.program+" slow", "closed")
				build.fill("go slow", afterTheLimit, madeWithout, "closed; its process ends")
				shows("%s", closed(t, n, plugin, created))
				return
			}
			plugin.Wait("got CreateContainer next")
			claim(t, plugin.Lives(), "the plugin has ended")
			claim(t, len(n.Containerd.With("closing plugin")) == 0, "containerd says %q", n.About("10-go"))
			step0.fill(build.program+" slow", "**"+kept+"**")
			shows("%s; %s", took(created), kept)
		})
	}
}

func TestStoppedGoPluginIsClosed(t *testing.T) {
	t.Parallel()
	for _, build := range []*build{stock, newer, asking} {
		t.Run(build.program, func(t *testing.T) {
			shows := row(t, build.name+", Go plugin is stopped")
			n, plugin := withGoPlugin(t, build)
			pod := n.Pod("pod")
			plugin.Stop()
			created := pod.Create("stopped")
			claimAfterTheLimit(t, created)
			next := pod.Create("next")
			claim(t, next.Err == nil && next.Took < 1800*time.Millisecond, "the next took %v: %v", next.Took, next.Err)
			plugin.Continue()
			step0.fill(build.program+" stopped", "closed")
			build.fill("go stopped", afterTheLimit, madeWithout, "closed; its process ends when it continues")
			shows("%s", closed(t, n, plugin, created))
		})
	}
}

// withGoPlugin starts a node with the plugin on Go's stub.
func withGoPlugin(t *testing.T, build *build) (*node.Node, *node.Process) {
	n := node.Start(t, node.Options{Containerd: build.program})
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
