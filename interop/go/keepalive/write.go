package keepalive

import "time"

// How much is written at once. A write that goes on is told from one that waits by its pieces.
const writeSize = 32 << 10

// Write sends what the wrapped side says. It may be any part of its stream of frames; PINGs and PONGs
// go ahead of each frame (KA-15).
func (c *Conn) Write(p []byte) (written int, err error) {
	c.beginWrite()
	if !c.takeTurn() {
		c.endWrite()
		return 0, c.Err()
	}
	defer func() {
		// Ahead of the turn, or a control frame might get this deadline.
		c.endWrite()
		c.giveTurn()
		if err != nil {
			c.signal() // for a control frame that was cut, and that this did not finish
		}
	}()
	for len(p) > 0 {
		if c.out.between() {
			if err := c.writeControl(true); err != nil {
				return written, c.named(err)
			}
		}
		piece := p[:min(c.out.span(p), writeSize)]
		c.expectAnswer(piece)
		n, err := c.writeThrough(piece)
		c.out.follow(p[:n])
		written += n
		p = p[n:]
		if err != nil {
			return written, c.named(err)
		}
	}
	return written, nil
}

// beginWrite puts the deadline in force, already for who waits for the turn: a control frame that holds
// it is cut then, and finished later.
func (c *Conn) beginWrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writers++
	if c.writers == 1 && !c.writeDeadline.IsZero() {
		c.inner.SetWriteDeadline(c.writeDeadline)
	}
}

// endWrite takes the deadline away with the last Write.
func (c *Conn) endWrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writers--
	if c.writers == 0 && !c.writeDeadline.IsZero() {
		c.inner.SetWriteDeadline(time.Time{})
	}
}

func (c *Conn) takeTurn() bool {
	select {
	case <-c.done:
		return false
	default:
	}
	select {
	case c.turn <- struct{}{}:
		return true
	case <-c.done:
		return false
	}
}

// giveTurn lets the next one write. Control frames that came in the middle of a frame have been left
// to it. Where one could not be written the next is not tried at once: on a connection that takes no
// more bytes and still brings PINGs, that would be a busy loop.
func (c *Conn) giveTurn() {
	waiting := c.out.between() && len(c.unfinished) == 0 && c.controlWaits()
	<-c.turn
	if waiting {
		c.signal()
	}
}

func (c *Conn) controlWaits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pong != nil || c.ping || c.latePing
}

// named gives the reason for which this side ended the connection, if it did.
func (c *Conn) named(err error) error {
	select {
	case <-c.done:
		return c.Err()
	default:
		return err
	}
}

// expectAnswer takes note of a REQUEST before its answer can come.
func (c *Conn) expectAnswer(p []byte) {
	next := c.out
	if _, part := next.advance(p); part != endOfHeader || next.header.kind() != typeRequest {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.monitor.handleRequest(next.header.streamID())
}

func (c *Conn) writeThrough(p []byte) (int, error) {
	now := time.Now()
	c.mu.Lock()
	c.blocked = true
	c.writes.begin(len(p), now)
	c.mu.Unlock()
	n, err := c.inner.Write(p)
	now = time.Now()
	c.mu.Lock()
	c.blocked = false
	c.writes.end(n, now)
	if n > 0 {
		c.monitor.handleProgress(now)
	}
	c.mu.Unlock()
	return n, err
}

// writeControl writes the PONG and the PING that wait. It may be called between frames only.
func (c *Conn) writeControl(beforeFrame bool) error {
	if err := c.finish(); err != nil {
		return err
	}
	c.mu.Lock()
	pong := c.pong
	c.pong = nil
	now := time.Now()
	// That of a late call begins here and no earlier: a request that is being written is not behind it.
	if beforeFrame && c.monitor.wantsFirst() || c.latePing && !c.ping {
		c.monitor.beginPing(now)
		c.ping = true
	}
	c.latePing = false
	ping, number := c.ping, c.monitor.number
	c.ping = false
	c.mu.Unlock()
	if pong != nil {
		c.unfinished = append(c.unfinished, pong.encoded()...)
	}
	if ping {
		frame := newPing(number)
		c.unfinished = append(c.unfinished, frame.encoded()...)
		c.pingUnfinished = true
	}
	return c.finish()
}

// finish writes what was begun of control frames.
func (c *Conn) finish() error {
	if len(c.unfinished) == 0 {
		return nil
	}
	n, err := c.writeThrough(c.unfinished)
	c.unfinished = c.unfinished[:copy(c.unfinished, c.unfinished[n:])]
	if err == nil && c.pingUnfinished {
		c.pingUnfinished = false
		now := time.Now()
		c.mu.Lock()
		c.monitor.handlePingWritten(now)
		c.schedule(now)
		c.mu.Unlock()
	}
	return err
}

// writeControlFrames writes PINGs and PONGs while the wrapped side writes nothing. In the middle of a
// frame it leaves them for when that has ended.
func (c *Conn) writeControlFrames() {
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		if !c.takeTurn() {
			return
		}
		if c.out.between() {
			// An error here is one for the next Write, too.
			_ = c.writeControl(false)
		}
		c.giveTurn()
		c.mu.Lock()
		ended := c.readErr != nil
		c.mu.Unlock()
		if ended {
			return
		}
	}
}
