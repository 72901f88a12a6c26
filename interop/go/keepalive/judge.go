package keepalive

import (
	"context"
	"errors"
	"time"
)

const (
	// The peer is asked so long before a deadline, or a quarter of the call's time if that is less.
	longestLead = 250 * time.Millisecond
	// A sign of life is as good as new for so long, and so far apart are the PINGs of late calls.
	freshness = 25 * time.Millisecond
	// While none was measured.
	assumedRTT = 50 * time.Millisecond
	// Timers differ by so much without anybody having been stopped.
	timerSlack = 5 * time.Millisecond
	// Looks in a lead. From the second on they count time, and a quarter of the lead between two is
	// allowed.
	looksInLead = 8
)

// Judge runs a call, and says of one that runs out of time what its peer did at that moment.
//
// If the call fails with [context.DeadlineExceeded] because ctx ended, the error is a [*LateError] around
// that. Any other outcome is returned as it is, and so is that of a call without a deadline or on a
// connection that has ended. Nothing is closed, and no deadline is moved.
//
// Shortly before the deadline, 250 ms or a quarter of the call's time if that is less, the peer is asked:
// by a PING, or where it is not known to answer one by a PING that it need only read, if the kernel can
// tell that (unix sockets on Linux, see [Config.NoReadReceipts]). There is at most one in 25 ms, however
// many calls are late, and none to a peer that has just spoken or that has left bytes unread anyway.
//
// As an interceptor of ttrpc, which judges all unary calls of a client:
//
//	func(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, _ *ttrpc.UnaryClientInfo, next ttrpc.Invoker) error {
//		return alive.Judge(ctx, func(ctx context.Context) error { return next(ctx, req, resp) })
//	}
func (c *Conn) Judge(ctx context.Context, call func(context.Context) error) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return call(ctx)
	}
	late := c.expectLate(deadline)
	defer late.end() // also if the call panics
	err := call(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != context.DeadlineExceeded {
		return err
	}
	return late.judge(err)
}

// lateCall is a call that may run out of time. It is guarded by Conn.mu.
type lateCall struct {
	conn    *Conn
	lead    time.Duration
	from    time.Time // when the peer is asked
	timer   *time.Timer
	ended   bool
	asked   bool
	looked  time.Time
	longest time.Duration // between two looks
	number  uint64        // of the PING that is waited for
	waited  time.Duration // for its PONG
}

func (c *Conn) expectLate(deadline time.Time) *lateCall {
	now := time.Now()
	lead := max(min(longestLead, deadline.Sub(now)/4), time.Millisecond)
	l := &lateCall{conn: c, lead: lead, from: deadline.Add(-lead)}
	l.looked = l.from
	c.mu.Lock()
	defer c.mu.Unlock()
	l.timer = time.AfterFunc(l.from.Sub(now), l.timerFired)
	return l
}

func (l *lateCall) timerFired() {
	c := l.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.ended || c.readErr != nil {
		return
	}
	now := time.Now()
	l.look(now)
	if !l.asked {
		l.asked = true
		if c.wantsLatePing(now) {
			c.latePing = true
			c.signal()
		}
	}
	l.timer.Reset(max(l.lead/looksInLead, time.Millisecond))
}

// look counts the time in which the peer could have been seen to live.
func (l *lateCall) look(now time.Time) unreadAnswer {
	m := &l.conn.monitor
	gap := now.Sub(l.looked)
	l.longest = max(l.longest, gap)
	if m.ping == pingWritten && m.number == l.number {
		l.waited += min(now.Sub(later(l.looked, m.asked)), l.lead/4)
	} else {
		l.waited, l.number = 0, m.number
	}
	l.looked = now
	return l.conn.askKernel(now, l.lead/4)
}

// askKernel must be called with the lock held: no write begins or is counted meanwhile.
func (c *Conn) askKernel(now time.Time, limit time.Duration) unreadAnswer {
	if c.unread == nil {
		return unreadAnswer{}
	}
	answer, ok := c.unread()
	if !ok {
		c.unread, c.receipts = nil, receipts{}
		return unreadAnswer{}
	}
	// What comes is the better sign, and an end leaves nothing unread.
	if !answer.coming && !answer.ended {
		c.receipts.take(now, answer.held, &c.writes, limit)
	}
	return answer
}

// wantsLatePing says whether a call that may be late has a PING written.
func (c *Conn) wantsLatePing(now time.Time) bool {
	m := &c.monitor
	fresh := now.Add(-freshness)
	switch {
	case !m.client && !m.pinged: // KA-28
		return false
	case m.overdue || c.parked || m.ping == pingQueued:
		return false
	case m.spoke && !m.heard.Before(fresh):
		return false
	case m.support == SupportYes:
		return m.ping == pingNone
	case c.unread == nil: // KA-27
		return false
	case c.receipts.unread || !c.receipts.read.Before(fresh):
		return false
	}
	return m.number == 0 || m.asked.Before(fresh)
}

func (l *lateCall) end() {
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	l.ended = true
	l.timer.Stop()
}

// judge adds to the error of a call that ran out of time what is to be said of the peer.
func (l *lateCall) judge(err error) error {
	c := l.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := l.look(time.Now())
	if c.err != nil || answer.ended {
		return err
	}
	coming := answer.coming || c.unread == nil && hasUnread(c.inner)
	m := &c.monitor
	fresh := l.from.Add(-freshness)
	facts := facts{
		support:  m.support,
		heard:    m.spoke && !m.heard.Before(fresh) || coming && !c.parked,
		reads:    !c.receipts.read.Before(fresh),
		stalled:  l.longest > l.lead/2+timerSlack,
		refused:  c.latePing || m.ping == pingQueued,
		waited:   l.waited,
		unread:   c.receipts.attended,
		patience: max(2*assumedRTT, l.lead/4),
	}
	if m.rtt > 0 {
		facts.patience = max(2*m.rtt, l.lead/4)
	}
	verdict := facts.verdict()
	if verdict == VerdictUnresponsive || verdict == VerdictNotReading {
		c.doubted = time.Now()
	}
	return &LateError{Verdict: verdict, State: c.stateLocked(), cause: err}
}

// Peer says in a word what is known of the peer, for who decides whether to call it: one that is doubtful
// costs the whole limit of a call.
//
// It is doubtful while a PING has been unanswered for all of [Config.PingTimeout], and from a verdict against
// it on, until it is heard again or, if it does not know PING, until the kernel says that its process has
// read. It is gone when the connection has ended, see [Conn.Err], and alive otherwise: nothing speaks against it.
func (c *Conn) Peer() Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return PeerGone
	case c.monitor.overdue:
		return PeerDoubtful
	case c.doubted.IsZero() || c.monitor.heard.After(c.doubted):
		return PeerAlive
	case c.monitor.support == SupportYes:
		return PeerDoubtful
	}
	// No time is counted: it may be long since anybody has looked.
	answer := c.askKernel(time.Now(), 0)
	if answer.coming || c.unread != nil && !c.receipts.unread || c.receipts.read.After(c.doubted) {
		return PeerAlive
	}
	return PeerDoubtful
}

// facts are all that a verdict depends on.
type facts struct {
	support  Support
	heard    bool          // since the peer was asked, or just before
	reads    bool          // the same, of its process
	stalled  bool          // this side did not run
	refused  bool          // the PING is not written
	waited   time.Duration // for the PONG
	unread   time.Duration // for so long nobody has read
	patience time.Duration
}

// verdict is the first that fits: what speaks for the peer before what speaks against us, and that before
// what speaks against the peer. Receipts are evidence only of a peer that is not known to answer: a proxy
// reads for others.
func (f *facts) verdict() Verdict {
	knows := f.support == SupportYes
	switch {
	case f.heard:
		return VerdictSlow
	case !knows && f.reads:
		return VerdictReads
	case f.stalled:
		return VerdictLocalStall
	case knows && f.waited >= f.patience:
		return VerdictUnresponsive
	case f.unread >= f.patience && (!knows || f.refused):
		return VerdictNotReading
	default:
		return VerdictUnknown
	}
}
