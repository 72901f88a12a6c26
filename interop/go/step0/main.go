// Command step0 shows what an NRI runtime can know of a late plugin as plugins are today.
//
// It copies two releases of containerd/nri out of the module cache, and inserts lines where a plugin
// that missed its deadline is closed: the kernel is asked whether the plugin's process reads what it was
// sent, and if so it is kept. Then it plays a runtime with and without these lines against a plugin that
// is built with the release as it is, once slow and once stopped, and says what became of it.
// docs/nri-step-0.md is about it. Linux only.
//
// Or it only makes the copy of a release with the lines in it, for a runtime that embeds it: the
// containerd of nri/e2e does.
//
//	go run ./step0 FOLDER
//	go run ./step0 -insert VERSION FOLDER
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ttrpc-keepalive/interop/insert"
)

const (
	module  = "github.com/containerd/nri"
	plugins = "pkg/adaptation/plugin.go"
)

var (
	//go:embed testdata/read.go
	read []byte
	//go:embed testdata/late.go
	late []byte
	//go:embed testdata/proof.go
	proof []byte
)

// Up to 0.12.3 each request has the decision in itself, in 0.12.5 one function has it. 0.12.3 is what
// containerd 2.4.2 embeds.
var releases = map[string][]insert.Lines{
	"v0.8.0": append(keep("nil, nil", "createContainer", "updateContainer", "stopContainer"),
		keep("nil", "StateChange")...),
	"v0.12.3": keep("nil, nil",
		"runPodSandbox", "updatePodSandbox", "postUpdatePodSandbox", "stopPodSandbox", "removePodSandbox",
		"createContainer", "postCreateContainer", "startContainer", "postStartContainer",
		"updateContainer", "postUpdateContainer", "stopContainer", "removeContainer"),
	"v0.12.5": {insert.Before(plugins, "dropsPlugin", "return !errors.Is", `
if p.isLateOnly(err) {
	return false
}`)},
}

// played are those that are played without a containerd.
var played = []string{"v0.8.0", "v0.12.5"}

func keep(results string, functions ...string) (all []insert.Lines) {
	for _, function := range functions {
		all = append(all, insert.Before(plugins, function, "isFatalError(err)", `
if p.isLateOnly(err) {
	return `+results+`
}`))
	}
	return all
}

// What is expected of a slow plugin and of a stopped one.
var expected = map[string]map[string]string{
	"stock":   {"slow": "closed", "stopped": "closed"},
	"changed": {"slow": "kept, and got the next event", "stopped": "closed"},
}

func main() {
	only := flag.String("insert", "", "make a copy of this release with the lines in it, and play nothing")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: step0 [-insert VERSION] FOLDER")
		os.Exit(2)
	}
	var failed error
	if *only != "" {
		failed = change(flag.Arg(0), *only)
	} else {
		for _, version := range played {
			failed = errors.Join(failed, try(filepath.Join(flag.Arg(0), version), version))
		}
	}
	if failed != nil {
		fmt.Fprintln(os.Stderr, "step0:", failed)
		os.Exit(1)
	}
}

// change makes a copy of a release with the lines in it.
func change(folder, version string) error {
	lines, ok := releases[version]
	if !ok {
		return fmt.Errorf("no lines for %s", version)
	}
	if err := insert.Copy(folder, module, version); err != nil {
		return err
	}
	sum, err := insert.All(folder, lines)
	if err != nil {
		return err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(folder, "pkg/net/multiplex/read.go"), read, 0o644),
		os.WriteFile(filepath.Join(folder, "pkg/adaptation/late.go"), late, 0o644),
	)
	if err != nil {
		return err
	}
	fmt.Printf("inserted in %s %s: %d lines; added: two files, %d lines of code\n",
		module, version, sum, insert.CodeLines(read)+insert.CodeLines(late))
	return nil
}

func try(folder, version string) error {
	stock, changed := filepath.Join(folder, "stock"), filepath.Join(folder, "changed")
	if err := errors.Join(insert.Copy(stock, module, version), change(changed, version)); err != nil {
		return err
	}
	for _, copied := range []string{stock, changed} {
		if err := build(copied); err != nil {
			return err
		}
	}
	for _, runtime := range []string{"stock", "changed"} {
		for _, does := range []string{"slow", "stopped"} {
			outcome, err := play(filepath.Join(folder, runtime, "proof"), filepath.Join(stock, "proof"), does)
			if err != nil {
				return err
			}
			result := "ok"
			if !strings.HasSuffix(outcome, expected[runtime][does]) {
				result, err = "FAIL", errors.Join(err, fmt.Errorf("%s %s: %s", runtime, does, outcome))
			}
			fmt.Printf("%-5s nri %s, %s runtime, %s plugin: %s\n", result, version, runtime, does, outcome)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func build(folder string) error {
	command := filepath.Join(folder, "cmd", "proof")
	err := errors.Join(os.MkdirAll(command, 0o755), os.WriteFile(filepath.Join(command, "main.go"), proof, 0o644))
	if err != nil {
		return err
	}
	return insert.Go(folder, "build", "-buildvcs=false", "-o", "proof", "./cmd/proof")
}

// play has a runtime send three events to a plugin, and returns what it says last.
func play(runtime, plugin, does string) (string, error) {
	sockets, err := os.MkdirTemp("", "step0")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(sockets)
	absolute, err := filepath.Abs(plugin)
	if err != nil {
		return "", err
	}
	output, err := exec.Command(runtime, "runtime", sockets, absolute, does).Output()
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return lines[len(lines)-1], err
}
