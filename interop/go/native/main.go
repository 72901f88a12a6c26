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
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/containerd/ttrpc"

var (
	//go:embed testdata/keepalive.go
	added []byte
	//go:embed testdata/keepalive_test.go
	tests []byte
)

// insertion is a place in a function, and what is inserted there.
type insertion struct {
	file, function string
	where          where
	// statement is the first one whose head has this in it.
	statement string
	lines     string
}

type where string

const (
	before where = "before"
	behind where = "behind"
)

var insertions = []insertion{
	{"channel.go", "newChannel", before, "return", "conn = newPinger(conn)"},
	{"channel.go", "send", before, "writeMessageHeader", `
k := ch.conn.(*pinger)
k.writing.Lock()
defer k.writing.Unlock()
if err := k.writeControl(); err != nil {
	return err
}`},
	{"server.go", "run", behind, "ch.recv()", `
if ch.control(mh, p, err) {
	continue
}`},
	{"client.go", "receiveLoop", behind, "c.channel.recv()", `
if c.channel.control(msg.header, msg.payload, err) {
	continue
}`},
	{"client.go", "createStream", before, "c.channel.send", "c.channel.ask(true)"},
	{"client.go", "dispatch", before, "s, err := c.createStream", "judged := c.channel.askBefore(ctx)"},
	{"client.go", "dispatch", before, "return ctx.Err()", `
if err := judged(ctx.Err()); err != nil {
	return err
}`},
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
	release, version, err := find()
	if err != nil {
		return err
	}
	stock, changed := filepath.Join(folder, "stock"), filepath.Join(folder, "ttrpc")
	for _, copied := range []string{stock, changed} {
		if err := copyTo(copied, release); err != nil {
			return err
		}
	}
	sum := 0
	for _, one := range insertions {
		lines, err := one.apply(changed)
		if err != nil {
			return err
		}
		fmt.Printf("%s %s: %d lines\n", one.file, one.function, lines)
		sum += lines
	}
	if err := os.WriteFile(filepath.Join(changed, "keepalive.go"), added, 0o644); err != nil {
		return err
	}
	if err := writeModule(folder, changed); err != nil {
		return err
	}
	fmt.Printf("inserted in %s %s: %d lines; added: keepalive.go, %d lines of code\n", module, version, sum, codeLines(added))
	vectors, err := filepath.Abs("../vectors")
	if err != nil {
		return err
	}
	os.Setenv("VECTORS", vectors)
	if err := goIn(changed, "vet", "."); err != nil {
		return err
	}
	if skipTests {
		return nil
	}
	for _, copied := range []string{stock, changed} {
		fmt.Printf("its own tests, %s:\n", filepath.Base(copied))
		if err := goIn(copied, "test", "-count=1", "."); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(changed, "keepalive_test.go"), tests, 0o644); err != nil {
		return err
	}
	fmt.Println("our tests:")
	return goIn(changed, "test", "-count=1", "-race", "-run", "^TestKeepalive", ".")
}

// find asks where the release is that go.mod names.
func find() (folder, version string, err error) {
	text, err := exec.Command("go", "mod", "download", "-json", module).Output()
	if err != nil {
		return "", "", fmt.Errorf("go mod download: %w", err)
	}
	var found struct{ Dir, Version string }
	if err := json.Unmarshal(text, &found); err != nil {
		return "", "", err
	}
	return found.Dir, found.Version, nil
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

func copyTo(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}

// apply inserts the lines, and returns how many.
func (i insertion) apply(folder string) (int, error) {
	path := filepath.Join(folder, i.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments)
	if err != nil {
		return 0, err
	}
	statement := i.find(files, file)
	if statement == nil {
		return 0, fmt.Errorf("%s: %s has no statement with %q", i.file, i.function, i.statement)
	}
	at := files.Position(statement.Pos()).Offset
	if i.where == behind {
		at = files.Position(statement.End()).Offset
	}
	lines := strings.TrimSpace(i.lines)
	inserted := lines + "\n"
	if i.where == behind {
		inserted = "\n" + lines
	}
	text, err = format.Source(slices.Concat(text[:at], []byte(inserted), text[at:]))
	if err != nil {
		return 0, err
	}
	return strings.Count(lines, "\n") + 1, os.WriteFile(path, text, 0o644)
}

// find gives the first statement whose head has the words in it: of one with a body, what stands before
// the body.
func (i insertion) find(files *token.FileSet, file *ast.File) (found ast.Stmt) {
	for _, declared := range file.Decls {
		function, ok := declared.(*ast.FuncDecl)
		if !ok || function.Name.Name != i.function {
			continue
		}
		ast.Inspect(function.Body, func(node ast.Node) bool {
			statement, ok := node.(ast.Stmt)
			if ok && found == nil && strings.Contains(head(files, statement), i.statement) {
				found = statement
			}
			return found == nil
		})
	}
	return found
}

func head(files *token.FileSet, statement ast.Stmt) string {
	var text bytes.Buffer
	switch statement := statement.(type) {
	case *ast.IfStmt:
		if statement.Init != nil {
			printer.Fprint(&text, files, statement.Init)
		}
		printer.Fprint(&text, files, statement.Cond)
	case *ast.AssignStmt, *ast.ExprStmt, *ast.ReturnStmt, *ast.DeferStmt:
		printer.Fprint(&text, files, statement)
	}
	return text.String()
}

// codeLines counts lines that are neither empty nor comments.
func codeLines(text []byte) (count int) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "//") {
			count++
		}
	}
	return count
}

func goIn(folder string, arguments ...string) error {
	command := exec.Command("go", arguments...)
	command.Dir = folder
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}
