package e2e

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"ttrpc-keepalive/e2e/node"
)

// What became of the rows.
var passed, failed, skipped atomic.Int32

// Of the repository, where tables are written or compared. Without it only rows are run.
var root = flag.String("root", "", "compare the tables in the texts below this folder")
var write = flag.Bool("write", false, "write them")

func TestMain(m *testing.M) {
	flag.Parse()
	status := m.Run()
	if *root != "" && failed.Load() == 0 {
		settleTables(*root, *write)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed.Load(), failed.Load(), skipped.Load())
	if failed.Load() > 0 || passed.Load() == 0 {
		status = 1
	}
	os.Exit(status)
}

// row prints what a test has shown in one line, when it is over. Rows run side by side.
func row(t *testing.T, name string) (shows func(format string, arguments ...any)) {
	t.Parallel()
	begin := time.Now()
	shown := ""
	t.Cleanup(func() {
		result, count := "ok  ", &passed
		switch {
		case t.Failed():
			result, count = "FAIL", &failed
		case t.Skipped():
			result, count = "skip", &skipped
		}
		count.Add(1)
		fmt.Printf("%s  %s: %s (%.1f s)\n", result, name, shown, time.Since(begin).Seconds())
	})
	return func(format string, arguments ...any) { shown = fmt.Sprintf(format, arguments...) }
}

// claim fails the test with a text, unless this holds.
func claim(t *testing.T, holds bool, format string, arguments ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, arguments...)
	}
}

// adjusted is what plugins put into the environment of containers.
const adjusted = "NRI_PROBE=was-here"

// claimAfterTheLimit claims that a container was created without a late plugin, after the limit of 2 s.
func claimAfterTheLimit(t *testing.T, created *node.Container) {
	t.Helper()
	claim(t, created.Err == nil, "%v", created.Err)
	claim(t, created.Took >= 1900*time.Millisecond && created.Took < 5*time.Second, "it took %v", created.Took)
	claim(t, !created.Sees(adjusted), "it is adjusted")
}
