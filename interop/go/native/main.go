// Command native shows how small PING and PONG are in containerd/ttrpc itself.
//
// It copies the release that go.mod names out of the module cache into a folder of its own, inserts
// our lines at named places of its syntax tree, and adds one file. It runs the release's own tests
// without and with them, and then ours, and prints how many lines were inserted in which function.
// Nothing of the release is kept in this repository.
//
// To be run where go.mod is; it writes peer.mod beside the copies, to build other programs with them.
//
//	go run ./native [-skip-tests] FOLDER
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ttrpc-keepalive/interop/insert"
)

const module = "github.com/containerd/ttrpc"

var (
	//go:embed testdata/keepalive.go
	added []byte
	//go:embed testdata/keepalive_test.go
	tests []byte
)

var insertions = []insert.Lines{
	insert.Before("channel.go", "newChannel", "return", "conn = newPinger(conn)"),
	insert.Before("channel.go", "send", "writeMessageHeader", `
k := ch.conn.(*pinger)
k.writing.Lock()
defer k.writing.Unlock()
if err := k.writeControl(); err != nil {
	return err
}`),
	insert.Behind("server.go", "run", "ch.recv()", `
if ch.control(mh, p, err) {
	continue
}`),
	insert.Behind("client.go", "receiveLoop", "c.channel.recv()", `
if c.channel.control(msg.header, msg.payload, err) {
	continue
}`),
	insert.Before("client.go", "createStream", "c.channel.send", "c.channel.ask(true)"),
	insert.Before("client.go", "dispatch", "s, err := c.createStream", "judged := c.channel.askBefore(ctx)"),
	insert.Before("client.go", "dispatch", "return ctx.Err()", `
if err := judged(ctx.Err()); err != nil {
	return err
}`),
}

func main() {
	skipTests := flag.Bool("skip-tests", false, "only insert and build")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: native [-skip-tests] FOLDER")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *skipTests); err != nil {
		fmt.Fprintln(os.Stderr, "native:", err)
		os.Exit(1)
	}
}

func run(folder string, skipTests bool) error {
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	release := strings.TrimSpace(string(version))
	stock, changed := filepath.Join(folder, "stock"), filepath.Join(folder, "ttrpc")
	for _, copied := range []string{stock, changed} {
		if err := insert.Copy(copied, module, release); err != nil {
			return err
		}
	}
	sum, err := insert.All(changed, insertions)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(changed, "keepalive.go"), added, 0o644); err != nil {
		return err
	}
	if err := writeModule(folder, changed); err != nil {
		return err
	}
	fmt.Printf("inserted in %s %s: %d lines; added: keepalive.go, %d lines of code\n",
		module, release, sum, insert.CodeLines(added))
	vectors, err := filepath.Abs("../vectors")
	if err != nil {
		return err
	}
	os.Setenv("VECTORS", vectors)
	if err := insert.Go(changed, "vet", "."); err != nil {
		return err
	}
	if skipTests {
		return nil
	}
	for _, copied := range []string{stock, changed} {
		fmt.Printf("its own tests, %s:\n", filepath.Base(copied))
		if err := insert.Go(copied, "test", "-count=1", "."); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(changed, "keepalive_test.go"), tests, 0o644); err != nil {
		return err
	}
	fmt.Println("our tests:")
	return insert.Go(changed, "test", "-count=1", "-race", "-run", "^TestKeepalive", ".")
}

// writeModule gives a copy of our module's files that names the changed release, for go build -modfile.
func writeModule(folder, changed string) error {
	replacement, err := filepath.Abs(changed)
	if err != nil {
		return err
	}
	text, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "\nreplace %s => %s\n", module, replacement)
	if err := os.WriteFile(filepath.Join(folder, "peer.mod"), text, 0o644); err != nil {
		return err
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "peer.sum"), sums, 0o644)
}
