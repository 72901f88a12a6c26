package e2e

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ttrpc-keepalive/e2e/node"
)

// A shim that runs a container knows no PING: it is judged by whether its process reads.

var shims = newTable("docs/judging.md", "Written by `nri/e2e/run --write`.", `
| server | its handler waits | 64 such calls | stopped while the handler waits | stopped before the request | continued | log |
|---|---|---|---|---|---|---|`,
	"| containerd 2.4.2's shim for runc | {runc} |")

func TestRuncShimServesAContainer(t *testing.T) {
	shows := row(t, "a container's life, by the runc shim as it is")
	shows("%s", life(t, node.Options{}))
}

// life takes a container from its creation to its removal by a shim.
func life(t *testing.T, options node.Options) (shown string) {
	begin := time.Now()
	n := node.Start(t, options)
	container := n.Pod("pod").Create("box")
	claim(t, container.Err == nil, "create: %v", container.Err)
	claim(t, container.Sees("PATH=/bin"), "it does not run")
	written, err := container.Exec("env")
	claim(t, err == nil && strings.Contains(written, "env PATH=/bin"), "exec: %v, %q", err, written)
	claim(t, container.Stop() == nil, "it cannot be stopped")
	claim(t, container.Remove() == nil, "it cannot be removed")
	return fmt.Sprintf("created, run, entered, stopped and removed in %.1f s", time.Since(begin).Seconds())
}

func TestPingTellsAStoppedShim(t *testing.T) {
	shows := row(t, "ttrpc-ping asks the runc shim of a container")
	n := node.Start(t, node.Options{})
	pod := n.Pod("pod")
	container := pod.Create("box")
	pid, address := n.Shim(pod)

	idle := asked(t, 0, `read in (\S+ \S+), does not know PING`, "-c", "3", "-i", "0.1", "-W", "20", address)
	node.Stop(t, pid)
	stopped := asked(t, 1, `(unread for \S+ s.*stopped)`, "-c", "1", "-W", "1", address)
	node.Must(t, syscall.Kill(pid, syscall.SIGCONT))
	again := asked(t, 0, `read in (\S+ \S+), does not know PING`, "-c", "1", "-W", "20", address)
	claim(t, container.Stop() == nil, "containerd cannot stop the container")
	shows("read in %s; stopped: %s; continued: read in %s", idle, stopped, again)
}

func TestShimIsJudgedByWhatItReads(t *testing.T) {
	shows := row(t, "calls to the runc shim of a container")
	n := node.Start(t, node.Options{})
	pod := n.Pod("pod")
	container := pod.Create("box")
	pid, address := n.Shim(pod)
	before := len(n.Containerd.With("level=error"))

	var cells string
	for range 3 {
		judged := exec.Command(node.Program("interop"), "shim", address, container.ID, strconv.Itoa(pid))
		text, err := judged.CombinedOutput()
		cells = strings.TrimSpace(string(text))
		if err == nil && !strings.Contains(cells, "local stall") {
			break
		}
		// This machine was too busy to say something of others. The shim may still be stopped.
		syscall.Kill(pid, syscall.SIGCONT)
	}
	// What a shim logs is in containerd's log.
	logged := "no line"
	if lines := n.Containerd.With("level=error"); len(lines) > before {
		logged = "some lines"
	}
	claim(t, container.Stop() == nil, "containerd cannot stop the container")
	expected := "slow | slow | not reading, stopped | not reading, stopped | answers"
	claim(t, cells == expected, "%s", cells)
	cells += " | " + logged
	shims.fill("runc", cells)
	shows("%s", cells)
}

// asked runs ttrpc-ping, and returns what this has found in its output.
func asked(t *testing.T, status int, pattern string, arguments ...string) string {
	t.Helper()
	command := exec.Command(node.Program("ttrpc-ping"), arguments...)
	text, err := command.CombinedOutput()
	claim(t, command.ProcessState.ExitCode() == status, "%v: %s", err, text)
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	claim(t, found != nil, "no %q in: %s", pattern, text)
	return string(found[1])
}
