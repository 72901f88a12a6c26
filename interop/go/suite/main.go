// Command suite runs the own tests of containerd/ttrpc over wrapped connections.
//
// It copies the release that go.mod names out of the module cache into a folder of its own, with the
// package keepalive beside it, and has NewClient and NewServer wrap what they are given. PINGs are sent
// each millisecond in which nothing is read, by both sides, more often than the package itself lets
// anybody ask: no test may see one. Nothing of the release is kept in this repository.
//
// To be run where go.mod is:
//
//	go run ./suite FOLDER
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ttrpc-keepalive/interop/insert"
)

const module = "github.com/containerd/ttrpc"

const added = `package ttrpc

import (
	"net"
	"time"

	"github.com/containerd/ttrpc/keepalive"
)

var watched = keepalive.Config{ReadIdleTimeout: time.Millisecond, PingTimeout: time.Minute}

func wrap(conn net.Conn) net.Conn {
	if conn == nil {
		return nil
	}
	return keepalive.Client(conn, watched)
}

func wrapServed(inner Handshaker) Handshaker {
	if inner == nil {
		return keepalive.NewHandshaker(nil, watched)
	}
	return keepalive.NewHandshaker(inner, watched)
}
`

var insertions = []insert.Lines{
	insert.Before("client.go", "NewClient", "newChannel(conn)", "conn = wrap(conn)"),
	insert.Before("server.go", "NewServer", "return &Server",
		"config.handshaker = wrapServed(config.handshaker)"),
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: suite FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	release := strings.TrimSpace(string(version))
	changed := filepath.Join(folder, "ttrpc")
	if err := insert.Copy(changed, module, release); err != nil {
		return err
	}
	if err := copyPackage(filepath.Join(changed, "keepalive")); err != nil {
		return err
	}
	if _, err := insert.All(changed, insertions); err != nil {
		return err
	}
	file := filepath.Join(changed, "wrap.go")
	if err := os.WriteFile(file, []byte(added), 0o644); err != nil {
		return err
	}
	passed, failed, err := test(changed)
	if err != nil {
		return err
	}
	fmt.Printf("containerd/ttrpc %s, wrapped: %d tests passed, %d failed\n", release, passed, failed)
	if failed > 0 || passed == 0 {
		return fmt.Errorf("%d failed", failed)
	}
	return nil
}

// copyPackage copies the package without its tests, and lets it send PINGs each millisecond.
func copyPackage(to string) error {
	files, err := filepath.Glob("keepalive/*.go")
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	floors := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		const floor = "10 * time.Millisecond"
		if strings.Contains(string(text), floor) {
			floors++
			text = bytes.ReplaceAll(text, []byte(floor), []byte("time.Millisecond"))
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o644); err != nil {
			return err
		}
	}
	if floors != 1 {
		return fmt.Errorf("the shortest time between PINGs is found in %d files", floors)
	}
	return nil
}

// test runs all tests with the race detector, and counts them.
func test(folder string) (passed, failed int, err error) {
	command := exec.Command("go", "test", "-count=1", "-race", "-json", "./...")
	command.Dir = folder
	command.Stderr = os.Stderr
	output, runErr := command.Output()
	var log strings.Builder
	for decoder := json.NewDecoder(bytes.NewReader(output)); decoder.More(); {
		var event struct{ Action, Test, Output string }
		if err := decoder.Decode(&event); err != nil {
			return 0, 0, err
		}
		log.WriteString(event.Output)
		switch {
		case event.Test == "":
		case event.Action == "pass":
			passed++
		case event.Action == "fail":
			failed++
		}
	}
	if runErr != nil {
		fmt.Print(log.String())
		return passed, failed, runErr
	}
	return passed, failed, nil
}
