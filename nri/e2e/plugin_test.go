package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ttrpc-keepalive/e2e/node"
)

// A Rust plugin, nri/examples/device_plugin.rs: what it does with a container is said by the container's
// name, and what containerd is told when that takes too long by --late.

func TestPluginThatAnswersAtOnceAdjusts(t *testing.T) {
	each(t, "answers at once", "empty", "fast", func(t *testing.T, _ *build, n *node.Node, plugin *node.Process) played {
		created := n.Pod("pod").Create("fast")
		claim(t, created.Err == nil, "%v", created.Err)
		claim(t, created.Sees(adjusted), "it is not adjusted")
		plugin.Wait("PostCreateContainer pod/fast")
		return played{keptBy(t, n, created, plugin), atOnce, adjustedInTime, kept}
	})
}

func TestDeviceThatAnAnnotationAsksForIsInTheContainer(t *testing.T) {
	shows := row(t, "containerd 2.4.2, Rust plugin adds a device")
	n, _ := rust(t, stock)
	path := n.Device()
	created := n.Pod("pod").Create("fast", "device.example.com/path", path)
	claim(t, created.Err == nil, "%v", created.Err)
	seen, err := created.Exec("device", path)
	claim(t, err == nil && seen == "character device 1:3\n", "%q: %v", seen, err)
	shows("%s is a %s", path, strings.TrimSpace(seen))
}

func TestSoftDeadlineKeepsAPlugin(t *testing.T) {
	each(t, "takes 3 s, is answered for", "empty", "soft", answeredFor("soft"))
}

func TestSoftDeadlineKeepsAPluginThatBlocksItsThread(t *testing.T) {
	each(t, "blocks its thread for 3 s, is answered for", "empty", "block", answeredFor("block"))
}

func answeredFor(name string) func(*testing.T, *build, *node.Node, *node.Process) played {
	return func(t *testing.T, _ *build, n *node.Node, plugin *node.Process) played {
		created := n.Pod("pod").Create(name)
		claimBeforeTheLimit(t, created)
		claim(t, created.Err == nil, "%v", created.Err)
		claim(t, !created.Sees(adjusted), "it is adjusted")
		// While the handler is at work.
		plugin.Wait("PostCreateContainer pod/" + name)
		return played{keptBy(t, n, created, plugin), beforeTheLimit, madeWithout, kept}
	}
}

func TestFailingChoiceFailsTheCreationAndKeepsAPlugin(t *testing.T) {
	each(t, "takes 3 s, is failed for", "fail", "fail", func(t *testing.T, _ *build, n *node.Node, plugin *node.Process) played {
		created := n.Pod("pod").Create("fail")
		claimBeforeTheLimit(t, created)
		claim(t, created.Err != nil, "it is created")
		text := created.Err.Error()
		claim(t, strings.Contains(text, "not there yet"), "%s", text)
		return played{keptBy(t, n, created, plugin) + ": " + text, "fails after 1.8 s, with the text", "not made", kept}
	})
}

func TestLateResultIsDeliveredAsAnUpdate(t *testing.T) {
	each(t, "takes 3 s, delivers later", "then", "late", func(t *testing.T, _ *build, n *node.Node, plugin *node.Process) played {
		begin := time.Now()
		created := n.Pod("pod").Create("late")
		claimBeforeTheLimit(t, created)
		claim(t, created.Err == nil, "%v", created.Err)
		// On a machine that is too busy it may be done by now.
		before := created.Group("cpu", "cpu.shares")
		claim(t, before != "512" || time.Since(begin) > 3*time.Second, "it was made so")
		node.Until(t, "its cgroup is updated", func() bool {
			return created.Group("cpu", "cpu.shares") == "512" &&
				created.Group("memory", "memory.limit_in_bytes") == fmt.Sprint(64<<20)
		})
		after := time.Since(begin)
		shown := fmt.Sprintf("%s; its cgroup updated after %.2f s", keptBy(t, n, created, plugin), after.Seconds())
		return played{shown, beforeTheLimit, "made without it, and updated when the handler is done", kept}
	})
}

func TestWithoutASoftDeadlineAPluginIsClosedAndRegistersAgain(t *testing.T) {
	each(t, "takes 3 s, no soft deadline", "never", "slow", func(t *testing.T, build *build, n *node.Node, plugin *node.Process) played {
		created := n.Pod("pod").Create("slow")
		claimAfterTheLimit(t, created)
		if build.keeps {
			n.Containerd.Wait("failed to handle CreateContainer request, proceeding without it")
			return played{keptBy(t, n, created, plugin), afterTheLimit, madeWithout, kept}
		}
		return played{closedBy(t, n, created, plugin), afterTheLimit, madeWithout, closedAndBack}
	})
}

func TestStoppedPluginIsClosedAndRegistersAgain(t *testing.T) {
	each(t, "stopped", "empty", "stopped", func(t *testing.T, build *build, n *node.Node, plugin *node.Process) played {
		pod := n.Pod("pod")
		plugin.Stop()
		created := pod.Create("stopped")
		claimAfterTheLimit(t, created)
		if !build.keeps {
			plugin.Continue()
			shown := closedBy(t, n, created, plugin)
			neverRun(t, plugin, "stopped")
			return played{shown, afterTheLimit, madeWithout, closedAndBack + "; the stale request is not run"}
		}
		second := pod.Create("second")
		claimAfterTheLimit(t, second)
		plugin.Continue()
		shown := keptBy(t, n, created, plugin) + "; the one after it, stopped too: " + took(second)
		neverRun(t, plugin, "stopped", "second")
		return played{shown, "2 s, and each after it too", madeWithout, kept + "; stale requests are not run"}
	})
}

func TestPluginThatContainerdLaunchesIsKept(t *testing.T) {
	shows := row(t, "containerd 2.4.2, Rust plugin that it has launched takes 3 s, is answered for")
	n := node.Start(t, node.Options{Launched: map[string]string{"10-device": node.Program("device_plugin")}})
	created := n.Pod("pod").Create("soft")
	claimBeforeTheLimit(t, created)
	claim(t, created.Err == nil && !created.Sees(adjusted), "it is adjusted: %v", created.Err)
	claimNext(t, n)
	claim(t, len(n.Containerd.With("closing plugin")) == 0, "containerd says %q", n.About("10-device"))
	lines := strings.Join(n.LaunchedLines("10-device"), "\n")
	for _, event := range []string{"Synchronize", "CreateContainer pod/soft", "CreateContainer next/fast-next"} {
		claim(t, strings.Contains(lines, event), "no %s in %s", event, lines)
	}
	shows("%s; %s", took(created), kept)
}

func TestPluginConnectsAgainWhenContainerdIsRestarted(t *testing.T) {
	shows := row(t, "containerd 2.4.2 restarted, Rust plugin")
	shows("%s", connectsAgain(t, (*node.Node).Restart))
}

func TestPluginConnectsAgainWhenContainerdHasCrashed(t *testing.T) {
	shows := row(t, "containerd 2.4.2 killed and started, Rust plugin")
	shows("%s", connectsAgain(t, (*node.Node).Crash))
}

func connectsAgain(t *testing.T, ends func(*node.Node)) (shown string) {
	n, plugin := rust(t, stock)
	pod := n.Pod("pod")
	first := pod.Create("fast")
	claim(t, first.Err == nil && first.Sees(adjusted), "the first is not adjusted: %v", first.Err)
	ends(n)
	booted := time.Now()
	line := plugin.WaitFor(2, "Synchronize")
	claim(t, strings.Contains(line, "1 pods") && strings.Contains(line, "1 containers"), "%s", line)
	again := time.Since(booted).Round(time.Millisecond)
	claimNext(t, n)
	return fmt.Sprintf("%s; synchronized %v after that, and the next container adjusted", plugin.Wait("CLOSED"), again)
}

// played is what a row has shown, and what is written of it: when the event went on, what became of the
// container, and of the plugin.
type played struct{ shown, event, container, plugin string }

// each plays a row with each build of containerd.
func each(t *testing.T, name, late, cell string, plays func(*testing.T, *build, *node.Node, *node.Process) played) {
	t.Parallel()
	for _, build := range []*build{stock, newer} {
		t.Run(build.program, func(t *testing.T) {
			shows := row(t, build.name+", Rust plugin "+name)
			n, plugin := rust(t, build, "--late", late)
			done := plays(t, build, n, plugin)
			build.fill(cell, done.event, done.container, done.plugin)
			shows("%s", done.shown)
		})
	}
}

// rust starts a node and the plugin.
func rust(t *testing.T, build *build, arguments ...string) (*node.Node, *node.Process) {
	t.Helper()
	n := node.Start(t, node.Options{Containerd: build.program})
	arguments = append(arguments, "--socket", n.Socket)
	plugin := node.Run(t, node.Program("device_plugin"), arguments...)
	plugin.Wait("Synchronize")
	return n, plugin
}

// keptBy claims that the plugin was kept and adjusts the next container, and that containerd has not closed
// it.
func keptBy(t *testing.T, n *node.Node, created *node.Container, plugin *node.Process) (shown string) {
	t.Helper()
	claimNext(t, n)
	claim(t, len(plugin.With("CLOSED")) == 0, "the plugin says %q", plugin.With("CLOSED"))
	claim(t, len(plugin.With("Synchronize")) == 1, "it was synchronized anew")
	claim(t, len(n.Containerd.With("closing plugin")) == 0, "containerd says %q", n.About("10-device"))
	return took(created) + "; " + kept
}

// closedBy claims that containerd has closed the plugin, and that it has registered again, is told what
// runs, and adjusts the next container.
func closedBy(t *testing.T, n *node.Node, created *node.Container, plugin *node.Process) (shown string) {
	t.Helper()
	line := n.Containerd.Wait("closing plugin 10-device, failed to handle CreateContainer request")
	claim(t, strings.Contains(line, "deadline exceeded"), "containerd says %q", line)
	closed := plugin.Wait("CLOSED")
	line = plugin.WaitFor(2, "Synchronize")
	claim(t, strings.Contains(line, "1 pods"), "%s", line)
	claimNext(t, n)
	return took(created) + "; " + closed + "; registered again, and the next container adjusted"
}

func claimNext(t *testing.T, n *node.Node) {
	t.Helper()
	next := n.Pod("next").Create("fast-next")
	claim(t, next.Err == nil, "the next container: %v", next.Err)
	claim(t, next.Sees(adjusted), "the next container is not adjusted")
}

// neverRun claims that no handler has seen these containers.
func neverRun(t *testing.T, plugin *node.Process, names ...string) {
	t.Helper()
	for _, name := range names {
		lines := plugin.With(" CreateContainer pod/" + name)
		claim(t, len(lines) == 0, "it has run %q", lines)
	}
}

// claimBeforeTheLimit claims that it did not take as long as containerd waits, but for what a busy machine
// adds. That the plugin was kept says the rest.
func claimBeforeTheLimit(t *testing.T, created *node.Container) {
	t.Helper()
	claim(t, created.Took > 1700*time.Millisecond && created.Took < 10*time.Second, "it took %v", created.Took)
}
