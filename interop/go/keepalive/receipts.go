package keepalive

import "time"

const (
	// A count of the kernel below this is none: while the peer is reading it is one too high now and then.
	nothingHeld = 256
	// Each write counts for at least so much beside its bytes, and at most this many times all of that.
	heldByWrite = 256
	mostHeld    = 5
)

// unreadAnswer is what the kernel says of a socket.
type unreadAnswer struct {
	held   int  // of what was written, and the process at the other end has not read
	coming bool // bytes of the peer wait to be read
	ended  bool // the peer has closed
}

// writes counts what the kernel has been given. A write that goes on may be with it or not, so there are
// two sums.
type writes struct {
	taken   int64 // it has at least so much
	offered int64 // and at most this
	begins  time.Time
	// Of the last write of which the kernel took something.
	began, ended time.Time
}

func (w *writes) begin(n int, now time.Time) {
	w.offered = w.taken + int64(n) + heldByWrite
	w.begins = now
}

func (w *writes) end(n int, now time.Time) {
	if n > 0 {
		w.taken += int64(n) + heldByWrite
		w.began, w.ended = w.begins, now
	}
	w.offered = w.taken
}

// receipts is what the kernel has said of written bytes that a process has read, or that nobody has. The
// rules are those of docs/judging.md, J-10.
type receipts struct {
	last  question
	asked bool

	read time.Time // at or after this a process has read; zero if that is not known

	unread   bool          // when the kernel was last asked
	since    time.Time     // what is unread is there since then, or longer
	attended time.Duration // of that, while somebody looked
}

// question is one to the kernel, with its answer.
type question struct {
	at             time.Time
	held           int64
	taken, offered int64
}

// take takes the answer to a question that was asked after at. Of the time since the question before no
// more than limit is counted: this side may have been stopped.
//
// A receipt counts from the last instant that the reading cannot have come before, not from now: that a
// request was read two seconds ago says nothing of a process that was stopped since. And what is unread
// may be new, while all of before has been read.
func (r *receipts) take(at time.Time, held int, w *writes, limit time.Duration) {
	now := question{at: at, held: int64(held), taken: w.taken, offered: w.offered}
	before, again := r.last, r.asked
	r.last, r.asked = now, true
	shrunk := again && before.shrunk(now)
	if shrunk {
		r.read = later(r.read, before.at)
	}
	if now.empty() {
		r.read = later(r.read, w.began)
		r.unread, r.attended = false, 0
		return
	}
	if r.unread && !shrunk && before.left(now) {
		r.attended += min(at.Sub(before.at), limit)
		return
	}
	r.unread, r.attended = true, 0
	r.since = at
	if w.offered == w.taken && !w.ended.IsZero() {
		r.since = w.ended
	}
}

func (q question) empty() bool { return q.held < nothingHeld }

// shrunk says that less is held than what was, and the least that was written since. A queue that is
// never empty is seen to be read by this.
func (q question) shrunk(now question) bool {
	return q.held+max(now.taken-q.offered, 0) >= now.held+nothingHeld
}

// left says that more is held than what was written since can count for.
func (q question) left(now question) bool {
	return now.held > mostHeld*(now.offered-q.taken)
}
