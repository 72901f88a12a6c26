// Package insert changes a copy of a released Go module by lines that it inserts at named places of its
// syntax tree, so that a change can be shown, built and tested without a copy of the module here.
package insert

import (
	"bytes"
	"encoding/json"
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

// Lines are inserted at one place of a module.
type Lines struct {
	file, function, statement, text string
	behind                          bool
}

// Before has the text inserted before the first statement of this function whose head has these words in
// it. The head of a statement with a body is what stands in front of the body.
func Before(file, function, statement, text string) Lines {
	return Lines{file: file, function: function, statement: statement, text: strings.TrimSpace(text)}
}

// Behind has it inserted behind that statement.
func Behind(file, function, statement, text string) Lines {
	lines := Before(file, function, statement, text)
	lines.behind = true
	return lines
}

// Copy copies a release out of the module cache, and downloads it if it is not there.
func Copy(to, module, version string) error {
	download := exec.Command("go", "mod", "download", "-json", module+"@"+version)
	download.Dir = os.TempDir() // No module of ours is changed by it.
	text, err := download.Output()
	if err != nil {
		return fmt.Errorf("go mod download %s@%s: %w", module, version, err)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(text, &found); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(found.Dir))
}

// All inserts into the copy in the folder, prints how many lines go into which function, and returns
// their sum.
func All(folder string, all []Lines) (sum int, err error) {
	for _, one := range all {
		if err := one.apply(folder); err != nil {
			return 0, err
		}
		lines := strings.Count(one.text, "\n") + 1
		fmt.Printf("%s %s: %d lines\n", one.file, one.function, lines)
		sum += lines
	}
	return sum, nil
}

// Go runs the go command in a folder.
func Go(folder string, arguments ...string) error {
	command := exec.Command("go", arguments...)
	command.Dir = folder
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}

// CodeLines counts lines that are neither empty nor comments.
func CodeLines(text []byte) (count int) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "//") {
			count++
		}
	}
	return count
}

func (l Lines) apply(folder string) error {
	path := filepath.Join(folder, l.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments)
	if err != nil {
		return err
	}
	statement := l.find(files, file)
	if statement == nil {
		return fmt.Errorf("%s: %s has no statement with %q", l.file, l.function, l.statement)
	}
	at, inserted := files.Position(statement.Pos()).Offset, l.text+"\n"
	if l.behind {
		at, inserted = files.Position(statement.End()).Offset, "\n"+l.text
	}
	text, err = format.Source(slices.Concat(text[:at], []byte(inserted), text[at:]))
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

func (l Lines) find(files *token.FileSet, file *ast.File) (found ast.Stmt) {
	for _, declared := range file.Decls {
		function, ok := declared.(*ast.FuncDecl)
		if !ok || function.Name.Name != l.function {
			continue
		}
		ast.Inspect(function.Body, func(node ast.Node) bool {
			statement, ok := node.(ast.Stmt)
			if ok && found == nil && strings.Contains(head(files, statement), l.statement) {
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
