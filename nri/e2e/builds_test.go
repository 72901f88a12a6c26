package e2e

// build is a containerd.
type build struct {
	name, program string
	// keeps says that it knows the failure policy keep_connected, asks that it asks the kernel before it
	// closes a late plugin: step 0.
	keeps, asks bool
	// late is what it does with late plugins.
	late *table
}

var (
	stock = &build{name: "containerd 2.4.2", program: "containerd", late: lateTable("containerd")}
	newer = &build{name: "containerd 2.4.2 with nri 0.12.5", program: "containerd-nri-0.12.5", keeps: true,
		late: lateTable("containerd-nri-0.12.5")}
	asking = &build{name: "containerd 2.4.2 with step 0", program: "containerd-step0", asks: true}
)

func lateTable(program string) *table {
	return newTable("nri/README.md", "Written by `nri/e2e/run --write`: "+program+".", `
| your plugin | the event | the container | the plugin afterwards |
|---|---|---|---|`,
		"| answers at once | {fast} |",
		"| takes 3 s, with `Late::empty()`, which is the default | {soft} |",
		"| the same, and blocks its thread | {block} |",
		"| takes 3 s, with `Late::empty().then(LateResult::into_updates)` | {late} |",
		"| takes 3 s, with `Late::fail(text)` | {fail} |",
		"| takes 3 s, with `Late::never()` | {slow} |",
		"| its process is stopped | {stopped} |",
		"| on Go's stub: takes 3 s | {go slow} |",
		"| on Go's stub: its process is stopped | {go stopped} |")
}

// What is written of an event and its container.
const (
	atOnce         = "at once"
	beforeTheLimit = "1.8 s"
	afterTheLimit  = "2 s"
	adjustedInTime = "adjusted"
	madeWithout    = "made without it"
)

// What is written of the plugin.
const (
	kept          = "kept, and the next container adjusted"
	closedAndBack = "closed; registers again, is told what runs, and adjusts the next container"
)

// fill says what became of an event, its container and its plugin.
func (b *build) fill(cell, event, container, plugin string) {
	if b.late != nil {
		b.late.fill(cell, event+" | "+container+" | "+plugin)
	}
}
