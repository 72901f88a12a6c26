package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// table stands in a text, between two lines, and has the cells that rows have measured.
type table struct {
	file, begin, head string
	lines             []string

	mutex sync.Mutex
	cells map[string]string
}

const end = "<!-- End of what is written. -->"

// tables are all that are written.
var tables []*table

// newTable has a line for each of these, in which {name} stands for a cell of this name.
func newTable(file, begin, head string, lines ...string) *table {
	made := &table{file: file, begin: "<!-- " + begin + " -->", head: strings.TrimSpace(head), lines: lines, cells: map[string]string{}}
	tables = append(tables, made)
	return made
}

// fill fills a cell. It holds words alone and no figures, so that it is the same each time.
func (t *table) fill(name, cell string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.cells[name] = cell
}

func (t *table) text() string {
	var pairs []string
	for name, cell := range t.cells {
		pairs = append(pairs, "{"+name+"}", cell)
	}
	return strings.NewReplacer(pairs...).Replace(t.head + "\n" + strings.Join(t.lines, "\n"))
}

// settle writes the table below the root, or compares it with what is written there.
func (t *table) settle(root string, write bool) error {
	path := filepath.Join(root, t.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), t.begin+"\n")
	written, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		return fmt.Errorf("%s has no place that begins with %s", t.file, t.begin)
	}
	if write {
		text := before + t.begin + "\n\n" + t.text() + "\n\n" + end + after
		return os.WriteFile(path, []byte(text), 0o644)
	}
	here := strings.Split(t.text(), "\n")
	there := strings.Split(strings.TrimSpace(written), "\n")
	if slices.Equal(here, there) {
		return nil
	}
	for i, line := range here {
		if i >= len(there) || line != there[i] {
			return fmt.Errorf("%s does not have this line, which nri/e2e/run --write writes: %s", t.file, line)
		}
	}
	return fmt.Errorf("%s has more lines than were measured", t.file)
}

// settleTables prints what is not as it is written.
func settleTables(root string, write bool) {
	for _, table := range tables {
		if err := table.settle(root, write); err != nil {
			failed.Add(1)
			fmt.Println("FAIL  table:", err)
			continue
		}
		passed.Add(1)
		fmt.Printf("ok    table in %s: as it was measured\n", table.file)
	}
}
