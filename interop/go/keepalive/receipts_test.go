package keepalive

import (
	"testing"
	"time"
)

// kernelQueue is a queue of which the kernel is asked at times in milliseconds.
type kernelQueue struct {
	t        *testing.T
	zero     time.Time
	writes   writes
	receipts receipts
}

func newKernelQueue(t *testing.T) *kernelQueue { return &kernelQueue{t: t, zero: time.Now()} }

func (q *kernelQueue) at(ms int) time.Time {
	return q.zero.Add(time.Duration(ms) * time.Millisecond)
}

func (q *kernelQueue) write(began, ended, n int) {
	q.writes.begin(n, q.at(began))
	q.writes.end(n, q.at(ended))
}

// never stands for the zero time.
const never = -1

// expect asks, and says what is known then.
func (q *kernelQueue) expect(ms, held, read, since, attended int) {
	q.t.Helper()
	q.receipts.take(q.at(ms), held, &q.writes, 25*time.Millisecond)
	for _, c := range []struct {
		name string
		got  time.Time
		want int
	}{{"read", q.receipts.read, read}, {"unread since", q.unreadSince(), since}} {
		if c.want == never && !c.got.IsZero() || c.want != never && !c.got.Equal(q.at(c.want)) {
			q.t.Errorf("at %d: %s %v, not %d", ms, c.name, c.got.Sub(q.zero), c.want)
		}
	}
	if got := q.receipts.attended.Milliseconds(); got != int64(attended) {
		q.t.Errorf("at %d: attended %d ms, not %d", ms, got, attended)
	}
}

func (q *kernelQueue) unreadSince() time.Time {
	if !q.receipts.unread {
		return time.Time{}
	}
	return q.receipts.since
}

func TestEmptyQueueIsAReceiptFromTheLastWriteOnAndOnce(t *testing.T) {
	q := newKernelQueue(t)
	q.expect(5, 0, never, never, 0)
	q.write(10, 12, 18)
	q.expect(100, 0, 10, never, 0)
	q.expect(200, 0, 10, never, 0)
	q.write(290, 291, 18)
	q.expect(300, 0, 290, never, 0)
}

func TestQueueThatWasUnreadAndIsEmptyWasReadSince(t *testing.T) {
	q := newKernelQueue(t)
	q.write(10, 12, 18)
	q.expect(100, 768, never, 12, 0)
	q.expect(200, 0, 100, never, 0)
}

func TestQueueThatHoldsLessThanWasWrittenWasReadInPart(t *testing.T) {
	q := newKernelQueue(t)
	q.write(8, 9, 18)
	q.write(10, 11, 18)
	q.expect(100, 2*768, never, 11, 0)
	q.expect(200, 768, 100, 11, 0)
	// As much as before, and a frame was written meanwhile.
	q.write(249, 250, 18)
	q.expect(300, 768, 200, 250, 0)
	q.expect(310, 768, 200, 250, 10)
}

func TestCountThatIsOneTooHighIsNeitherAReceiptNorUnread(t *testing.T) {
	q := newKernelQueue(t)
	q.write(10, 10, 18)
	q.expect(100, 1, 10, never, 0)
	q.write(190, 190, 18)
	q.expect(200, 769, 10, 190, 0)
	q.expect(210, 768, 10, 190, 10)
	q.expect(220, 769, 10, 190, 20)
}

func TestPauseOfThisSideCountsAsOneLook(t *testing.T) {
	q := newKernelQueue(t)
	q.write(10, 10, 18)
	q.expect(100, 768, never, 10, 0)
	q.expect(900, 768, never, 10, 25)
}

// One frame each, just written: those of before may have been read.
func TestWhatIsUnreadMayBeNew(t *testing.T) {
	q := newKernelQueue(t)
	q.write(10, 10, 18)
	q.expect(20, 768, never, 10, 0)
	q.write(29, 29, 18)
	q.expect(30, 1200, never, 29, 0)
}

// The kernel may have all of a write that goes on, or nothing of it.
func TestWriteThatGoesOnIsHeldForNobodyAndAgainstNobody(t *testing.T) {
	q := newKernelQueue(t)
	q.write(10, 10, 18)
	q.expect(20, 768, never, 10, 0)
	q.writes.begin(18, q.at(25))
	q.expect(30, 1200, never, 30, 0) // it may be that alone
	q.writes.end(18, q.at(35))
	q.expect(40, 1200, never, 35, 0)
	q.writes.begin(writeSize, q.at(45))
	q.expect(50, 1200, never, 50, 0)
	q.writes.end(0, q.at(55))
	q.expect(60, 1200, never, 50, 10) // nothing was taken
}
