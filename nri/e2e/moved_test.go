package e2e

import (
	"syscall"
	"testing"

	"ttrpc-keepalive/e2e/node"
)

// The runc shim in Rust, as its registry has it, with the crate ttrpc replaced by ttrpc-keepalive-compat:
// nothing of it was changed, and it answers PING.

func inRust() node.Options {
	return node.Options{Shim: node.Program("containerd-shim-facade")}
}

func TestShimInRustServesAContainer(t *testing.T) {
	shows := row(t, "a container's life, by the runc shim in Rust with its ttrpc replaced")
	shows("%s", life(t, inRust()))
}

func TestPingTellsAStoppedShimInRust(t *testing.T) {
	shows := row(t, "ttrpc-ping asks the runc shim in Rust with its ttrpc replaced")
	n := node.Start(t, inRust())
	pod := n.Pod("pod")
	container := pod.Create("box")
	pid, address := n.Shim(pod)

	alive := asked(t, 0, `answered in (\S+ \S+)`, "-c", "3", "-i", "0.1", address)
	node.Stop(t, pid)
	stopped := asked(t, 1, `(unread for \S+ s.*stopped)`, "-c", "1", "-W", "1", address)
	node.Must(t, syscall.Kill(pid, syscall.SIGCONT))
	again := asked(t, 0, `answered in (\S+ \S+)`, "-c", "1", address)
	claim(t, container.Stop() == nil, "containerd cannot stop the container")
	shows("answered in %s; stopped: %s; continued: answered in %s", alive, stopped, again)
}
