package node

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long something may take that takes less than a second on an idle machine.
const Patience = 30 * time.Second

// Process is a program whose output is kept line by line, and which can be stopped. It ends with its test.
type Process struct {
	Name    string
	t       testing.TB
	command *exec.Cmd
	ended   chan struct{}

	mutex sync.Mutex
	lines []string
	more  chan struct{} // Closed at the next line.
}

// Run starts a program. What it wrote is shown if the test fails.
func Run(t testing.TB, program string, arguments ...string) *Process {
	return RunWith(t, nil, program, arguments...)
}

// RunWith does so with variables of this form beside those of the test: NAME=VALUE.
func RunWith(t testing.TB, environment []string, program string, arguments ...string) *Process {
	t.Helper()
	process := &Process{
		Name:    filepath.Base(program),
		t:       t,
		command: exec.Command(program, arguments...),
		ended:   make(chan struct{}),
		more:    make(chan struct{}),
	}
	output, input, err := os.Pipe()
	Must(t, err)
	process.command.Stdout, process.command.Stderr = input, input
	process.command.Env = append(os.Environ(), environment...)
	Must(t, process.command.Start())
	input.Close()
	go process.read(output)
	go func() {
		process.command.Wait()
		close(process.ended)
	}()
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			lines := slices.DeleteFunc(process.Lines(), dull)
			t.Logf("%s wrote:\n%s", process.Name, strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
	return process
}

// dull are the lines of containerd's start and of the end of pods.
func dull(line string) bool {
	return slices.ContainsFunc([]string{"loading plugin", "starting cri plugin", "PodSandbox", "exit event", "dead shim",
		"shim disconnected"}, func(part string) bool { return strings.Contains(line, part) })
}

func (p *Process) read(output io.Reader) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		p.mutex.Lock()
		p.lines = append(p.lines, lines.Text())
		close(p.more)
		p.more = make(chan struct{})
		p.mutex.Unlock()
	}
}

// Lines are those that it has written so far.
func (p *Process) Lines() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Clone(p.lines)
}

// With are its lines that have this in them.
func (p *Process) With(part string) (with []string) {
	for _, line := range p.Lines() {
		if strings.Contains(line, part) {
			with = append(with, line)
		}
	}
	return with
}

// Wait waits for the first line that has this in it.
func (p *Process) Wait(part string) string {
	p.t.Helper()
	return p.WaitFor(1, part)
}

// WaitFor waits until so many lines have this in them, and returns the last.
func (p *Process) WaitFor(count int, part string) string {
	p.t.Helper()
	late := time.After(Patience)
	for ended := p.ended; ; {
		p.mutex.Lock()
		more := p.more
		p.mutex.Unlock()
		if with := p.With(part); len(with) >= count {
			return with[count-1]
		}
		select {
		case <-more:
		case <-ended:
			// What it wrote last may not have been read yet.
			ended, late = nil, time.After(time.Second)
		case <-late:
			p.t.Fatalf("%s did not write %q %d times", p.Name, part, count)
		}
	}
}

// PID is its process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Lives says whether it has not ended yet.
func (p *Process) Lives() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Stop stops it by SIGSTOP, and waits until all its threads are.
func (p *Process) Stop() {
	p.t.Helper()
	Stop(p.t, p.PID())
}

// Continue lets it go on.
func (p *Process) Continue() {
	p.t.Helper()
	Must(p.t, syscall.Kill(p.PID(), syscall.SIGCONT))
}

// Kill ends it by SIGKILL, and waits for its end.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Terminate asks it to end, and waits for that.
func (p *Process) Terminate() { p.end(syscall.SIGTERM) }

func (p *Process) end(signal syscall.Signal) {
	if !p.Lives() {
		return
	}
	p.command.Process.Signal(signal)
	select {
	case <-p.ended:
	case <-time.After(Patience):
		p.command.Process.Kill()
		<-p.ended
	}
}

// Stop stops a process by SIGSTOP, and waits until all its threads are.
func Stop(t testing.TB, pid int) {
	t.Helper()
	Must(t, syscall.Kill(pid, syscall.SIGSTOP))
	Until(t, fmt.Sprintf("process %d is stopped", pid), func() bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, task := range tasks {
			stat, err := os.ReadFile(task)
			// The state follows the name, which is in brackets.
			_, state, _ := strings.Cut(string(stat), ") ")
			if err == nil && !strings.HasPrefix(state, "T") {
				return false
			}
		}
		return true
	})
}

// Until waits until this is true.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never was true that %s", what)
		}
	}
}

// Must fails the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
