package keepalive

import (
	"net"
	"os"
	"sync"
	"time"
)

// Conn is a connection that answers PINGs, sends them, and hides both. Make one with [Client] or
// [Server]. Like any net.Conn it may be used by several goroutines at once, and must be closed.
//
// Frames may be read and written in any pieces. PING and PONG stand between them, never inside one.
type Conn struct {
	inner  net.Conn
	config Config

	// Held by who writes; it guards the three below. A channel, because a writer may wait for long.
	turn           chan struct{}
	out            scanner
	unfinished     []byte // control frames, and what a deadline left of them
	pingUnfinished bool   // a PING is among them

	wake chan struct{} // a control frame waits
	done chan struct{} // the connection ended on this side

	mu      sync.Mutex
	changed sync.Cond // inbox, readErr, closed or deadline
	monitor monitor
	in      scanner
	passing bool   // the payload that comes is for the wrapped side
	control []byte // the payload of a PING or PONG that comes
	inbox   inbox
	parked  bool   // inbox is full
	blocked bool   // a write is with the kernel
	pong    *frame // waits to be written
	ping    bool   // waits to be written

	latePing bool                        // a late call wants one
	unread   func() (unreadAnswer, bool) // nil: the kernel cannot tell
	writes   writes
	receipts receipts
	doubted  time.Time // when the newest verdict against the peer was told

	readErr  error // what follows the inbox
	err      error // why the connection ended
	closed   bool  // by Close
	deadline deadline
	timer    *time.Timer
	wakeAt   time.Time // zero: timer is not running

	writers       int       // in Write
	writeDeadline time.Time // with the inner connection while there are any
}

// Client wraps the connection of a ttrpc client. The Conn owns it from now on.
func Client(conn net.Conn, config Config) *Conn { return newConn(conn, config, true) }

// Server wraps a connection that a ttrpc server has accepted. The Conn owns it from now on.
func Server(conn net.Conn, config Config) *Conn { return newConn(conn, config, false) }

func newConn(inner net.Conn, config Config, client bool) *Conn {
	if config.ReadBuffer <= 0 {
		config.ReadBuffer = DefaultReadBuffer
	}
	now := time.Now()
	c := &Conn{
		inner:   inner,
		config:  config,
		turn:    make(chan struct{}, 1),
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		monitor: newMonitor(config, client, now),
	}
	c.changed.L = &c.mu
	if !config.NoReadReceipts {
		c.unread = unreadOf(inner)
	}
	c.mu.Lock()
	c.schedule(now)
	c.mu.Unlock()
	go c.receive()
	go c.writeControlFrames()
	return c
}

// Close closes the connection. What was not written is lost.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.endLocked(net.ErrClosed)
	c.mu.Unlock()
	return c.inner.Close()
}

// Err says why the connection ended, and is nil while it has not: a [PingTimeoutError] or
// [ProtocolError] if the Conn closed it, net.ErrClosed after Close, otherwise what reading it gave,
// which is io.EOF if the peer closed it. The first reason stays.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// State says what is known of the peer now.
func (c *Conn) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stateLocked()
}

func (c *Conn) stateLocked() State {
	state := State{
		Support:         c.monitor.support,
		LastRead:        c.monitor.heard,
		RTT:             c.monitor.rtt,
		HandlersStalled: c.monitor.stalled,
		Overdue:         c.monitor.overdue,
		Receipts:        c.unread != nil,
		PeerRead:        c.receipts.read,
	}
	if c.receipts.unread {
		state.UnreadSince = c.receipts.since
	}
	if c.monitor.ping == pingWritten {
		state.AwaitingPong = c.monitor.asked
	}
	return state
}

// NetConn gives the connection that is wrapped, for what only it can tell, such as the credentials of
// the peer. Reading from it or writing to it breaks the Conn.
func (c *Conn) NetConn() net.Conn { return c.inner }

// LocalAddr is that of the wrapped connection.
func (c *Conn) LocalAddr() net.Addr { return c.inner.LocalAddr() }

// RemoteAddr is that of the wrapped connection.
func (c *Conn) RemoteAddr() net.Addr { return c.inner.RemoteAddr() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline is for Read only: PINGs and PONGs are read whatever it is.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline.set(t, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})
	c.changed.Broadcast()
	return nil
}

// SetWriteDeadline is for Write only: PINGs and PONGs are written also when it has passed. One that
// it cuts, because a Write waited behind it, is finished before the next frame.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeDeadline = t
	if c.writers == 0 {
		return nil
	}
	return c.inner.SetWriteDeadline(t)
}

// endLocked ends the connection on this side; the first reason stays.
func (c *Conn) endLocked(reason error) {
	if c.err == nil {
		c.err = reason
	}
	if c.readErr == nil {
		c.readErr = reason
	}
	select {
	case <-c.done:
	default:
		close(c.done)
	}
	c.stopTimer()
	c.changed.Broadcast()
}

// schedule asks the monitor and does what it says, but for a conviction, which is left to the
// caller. It never waits.
func (c *Conn) schedule(now time.Time) (convicted bool) {
	if c.readErr != nil || c.parked {
		return false
	}
	what, next := c.monitor.poll(now, c.blocked)
	switch what {
	case doPing:
		c.ping = true
		c.signal()
	case doConvict:
		return true
	}
	c.wakeBy(now, next)
	return false
}

// wakeBy sees to it that the timer fires at that time or earlier. It is not moved back, so bytes that
// come cost no work with it.
func (c *Conn) wakeBy(now, at time.Time) {
	if at.IsZero() || !c.wakeAt.IsZero() && !at.Before(c.wakeAt) {
		return
	}
	c.wakeAt = at
	if c.timer == nil {
		c.timer = time.AfterFunc(at.Sub(now), c.timerFired)
		return
	}
	c.timer.Reset(at.Sub(now))
}

func (c *Conn) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.wakeAt = time.Time{}
}

func (c *Conn) timerFired() {
	now := time.Now()
	// What the kernel holds is asked first: what comes later than now is too late.
	unread := hasUnread(c.inner)
	c.mu.Lock()
	c.wakeAt = time.Time{}
	if !c.schedule(now) {
		c.mu.Unlock()
		return
	}
	if unread {
		c.wakeBy(now, c.monitor.postpone(now))
		c.mu.Unlock()
		return
	}
	verdict := c.monitor.convict(now)
	if c.config.OnPingTimeout == nil {
		c.endLocked(verdict)
		c.mu.Unlock()
		c.inner.Close()
		return
	}
	c.mu.Unlock()
	c.config.OnPingTimeout(c, verdict)
}

// signal wakes writeControlFrames.
func (c *Conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// deadline is one that a sync.Cond can wait for.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) set(t time.Time, fired func()) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), fired)
	}
}

func (d *deadline) err() error {
	if d.at.IsZero() || time.Now().Before(d.at) {
		return nil
	}
	return os.ErrDeadlineExceeded
}
