package keepalive

import (
	"encoding/binary"
	"net"
	"time"
)

// How much is read at once.
const readSize = 16 << 10

// Read gives what the peer sent, PINGs and PONGs left out. After the connection has ended it gives
// what came before, and then the reason, which [Conn.Err] names.
func (c *Conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.closed {
			return 0, net.ErrClosed
		}
		if err := c.deadline.err(); err != nil {
			return 0, err
		}
		if len(p) == 0 {
			return 0, nil
		}
		if n := c.inbox.take(p); n > 0 {
			c.changed.Broadcast()
			return n, nil
		}
		if c.readErr != nil {
			return 0, c.readErr
		}
		c.changed.Wait()
	}
}

// receive reads the connection, whatever the wrapped side does, so that PINGs are answered while it
// is busy (KA-19).
func (c *Conn) receive() {
	piece := make([]byte, readSize)
	for c.waitForRoom() {
		n, err := c.inner.Read(piece)
		if n > 0 {
			err = firstOf(c.received(piece[:n]), err)
		}
		if err != nil {
			c.readEnded(err)
			return
		}
	}
}

// waitForRoom says whether to read on.
func (c *Conn) waitForRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.inbox.len() >= c.config.ReadBuffer && c.readErr == nil {
		c.parked = true
		c.stopTimer()
		c.changed.Wait()
	}
	if c.parked {
		c.parked = false
		now := time.Now()
		c.monitor.handleUnparked(now)
		c.schedule(now)
	}
	return c.readErr == nil
}

func (c *Conn) received(p []byte) error {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	support := c.monitor.support
	var err error
	for len(p) > 0 && err == nil {
		n, part := c.in.advance(p)
		switch part {
		case inPayload:
			c.payload(p[:n])
		case endOfHeader:
			err = c.beginFrame()
		}
		if c.in.between() && c.control != nil {
			c.endControlFrame(now)
		}
		p = p[n:]
	}
	c.monitor.handleBytes(now)
	// While nothing was known the timer may have been set for long after the next PING is due now.
	if c.wakeAt.IsZero() || c.monitor.support != support {
		c.schedule(now)
	}
	c.changed.Broadcast()
	return err
}

// beginFrame decides by the header what becomes of the frame.
func (c *Conn) beginFrame() error {
	h := &c.in.header
	c.passing = false
	c.control = nil
	if h.length() >= lengthLimit {
		return &ProtocolError{Length: h.length()} // KA-5
	}
	// The type before the stream id (KA-8).
	switch h.kind() {
	case typePing, typePong:
		if h.length() <= maxEcho { // KA-13
			c.control = make([]byte, 0, h.length())
		}
		return nil
	case typeResponse:
		if c.monitor.client && h.streamID() == pingStreamID {
			c.monitor.handleRefusal()
			return nil
		}
		c.monitor.handleResponse(h.streamID())
	case typeRequest, typeData:
	default:
		return nil // KA-6; some ttrpc servers would answer it
	}
	c.passing = true
	c.inbox.put(h[:])
	return nil
}

func (c *Conn) payload(p []byte) {
	if c.passing {
		c.inbox.put(p)
	}
	if c.control != nil {
		c.control = append(c.control, p...)
	}
}

// endControlFrame takes a PING or PONG that has come as a whole.
func (c *Conn) endControlFrame(now time.Time) {
	h, payload := &c.in.header, c.control
	c.control = nil
	if h.kind() == typePing {
		c.monitor.handlePing()
		// The newest takes the place of one that still waits (KA-16). It is there before anything that
		// came behind the PING can be read, so no answer to that gets ahead of it (KA-14).
		pong := newFrame(typePong, h.streamID(), payload)
		c.pong = &pong
		c.signal()
		return
	}
	var number uint64
	if len(payload) == 8 {
		number = binary.BigEndian.Uint64(payload)
	}
	c.monitor.handlePong(now, number, h.flags()&flagHandlersStalled != 0)
}

// readEnded takes what reading the connection ended with.
func (c *Conn) readEnded(err error) {
	c.mu.Lock()
	_, protocol := err.(*ProtocolError)
	if protocol {
		c.endLocked(err)
	}
	if c.readErr == nil {
		c.readErr = err
	}
	if c.err == nil {
		c.err = err
	}
	c.stopTimer()
	c.changed.Broadcast()
	c.mu.Unlock()
	if protocol {
		c.inner.Close()
	}
	// It writes what is left, and ends.
	c.signal()
}

func firstOf(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// inbox is what was received for the wrapped side. Its bound is kept by waitForRoom.
type inbox struct {
	bytes []byte
	begin int
}

// Memory of more than this is given back when the inbox is empty.
const inboxKept = 4 * readSize

func (b *inbox) len() int { return len(b.bytes) - b.begin }

func (b *inbox) put(p []byte) {
	if b.begin > 0 && len(b.bytes)+len(p) > cap(b.bytes) {
		b.bytes = b.bytes[:copy(b.bytes, b.bytes[b.begin:])]
		b.begin = 0
	}
	b.bytes = append(b.bytes, p...)
}

func (b *inbox) take(p []byte) int {
	n := copy(p, b.bytes[b.begin:])
	b.begin += n
	if b.begin == len(b.bytes) {
		b.bytes, b.begin = b.bytes[:0], 0
		if cap(b.bytes) > inboxKept {
			b.bytes = nil
		}
	}
	return n
}
