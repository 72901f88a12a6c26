package ttrpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

const (
	messageTypePing messageType = 0x04
	messageTypePong messageType = 0x05

	pingStreamID = 0xFFFF_FFFF // KA-9
	maxEcho      = 64          // KA-10

	flagHandlersStalled = 0x01 // KA-12

	// fresh is how much older than the question evidence may be to answer it, assumedRTT what stands
	// for a round trip that was never measured.
	fresh      = 25 * time.Millisecond
	assumedRTT = 50 * time.Millisecond
)

// Keepalive says when a client asks whether its peer lives. The zero value never asks.
type Keepalive struct {
	// BeforeDeadline is how long before its deadline a call without an answer sends a PING, a quarter
	// of the call's time at most. Zero sends none.
	BeforeDeadline time.Duration
}

// WithKeepalive has the client ask. PINGs are answered with and without it.
func WithKeepalive(keepalive Keepalive) ClientOpts {
	return func(c *Client) { c.channel.conn.(*pinger).keepalive = keepalive }
}

// PeerState is what is known of the peer of a call that ran out of time.
type PeerState string

const (
	Slow            PeerState = "the peer is slow"
	HandlersStalled PeerState = "the handlers of the peer are stalled"
	Unresponsive    PeerState = "the peer does not respond"
	NotReading      PeerState = "the peer does not read"
	LocalStall      PeerState = "this side did not run"
	Unknown         PeerState = "nothing is known of the peer"
)

// DeadlineError is returned by a call that ran out of time. It wraps context.DeadlineExceeded.
type DeadlineError struct {
	Peer   PeerState
	Silent time.Duration // since the last byte of the peer
}

func (e *DeadlineError) Error() string {
	return fmt.Sprintf("%v: %s, silent for %v", context.DeadlineExceeded, e.Peer, e.Silent.Round(time.Millisecond))
}

func (e *DeadlineError) Unwrap() error { return context.DeadlineExceeded }

type support int

const (
	undecided support = iota
	knowsPing
	doesNotKnowPing
)

// pinger is the connection of a channel: it notes when bytes come, and holds what is to be written
// between frames.
type pinger struct {
	net.Conn
	keepalive Keepalive
	writing   sync.Mutex // held for a frame and what goes ahead of it

	mu      sync.Mutex
	pong    []byte // the slot: a PONG that waits to be written (KA-16)
	ping    []byte // a PING that does
	number  uint64 // of the newest PING
	written time.Time
	heard   time.Time
	support support
	stalled bool
}

func newPinger(conn net.Conn) net.Conn { return &pinger{Conn: conn, heard: time.Now()} }

// Read takes any byte as a sign of life (KA-21).
func (k *pinger) Read(p []byte) (int, error) {
	n, err := k.Conn.Read(p)
	if n > 0 {
		k.mu.Lock()
		k.heard = time.Now()
		k.mu.Unlock()
	}
	return n, err
}

// control takes a frame before anybody else sees it. It returns true for what is nobody else's.
func (ch *channel) control(mh messageHeader, p []byte, err error) bool {
	if _, skipped := status.FromError(err); !skipped {
		return false // nothing was read
	}
	k := ch.conn.(*pinger)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch mh.Type {
	case messageTypePing:
		if err == nil && len(p) <= maxEcho { // KA-13
			k.support = knowsPing // KA-24
			k.sendLocked(&k.pong, mh.StreamID, messageTypePong, p)
		}
		return true
	case messageTypePong:
		if err == nil && len(p) <= maxEcho {
			k.support = knowsPing
			k.stalled = mh.Flags&flagHandlersStalled != 0
		}
		return true
	case messageTypeResponse:
		if k.support == undecided && k.number > 0 { // KA-23, KA-25
			k.support = doesNotKnowPing
		}
		return mh.StreamID == pingStreamID
	}
	return false
}

// sendLocked fills a slot. Nobody who reads waits for it to be written (KA-19).
func (k *pinger) sendLocked(slot *[]byte, streamID uint32, t messageType, p []byte) {
	idle := k.pong == nil && k.ping == nil
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(p)))
	frame = binary.BigEndian.AppendUint32(frame, streamID)
	*slot = append(append(frame, byte(t), 0), p...)
	if idle {
		go func() {
			k.writing.Lock()
			defer k.writing.Unlock()
			k.writeControl()
		}()
	}
}

// writeControl writes what goes ahead of the next frame (KA-14). k.writing is held.
func (k *pinger) writeControl() error {
	k.mu.Lock()
	pong, ping := k.pong, k.ping
	k.pong, k.ping = nil, nil
	k.mu.Unlock()
	if pong == nil && ping == nil {
		return nil
	}
	_, err := k.Conn.Write(append(pong, ping...))
	if ping != nil && err == nil {
		k.mu.Lock()
		k.written = time.Now()
		k.mu.Unlock()
	}
	return err
}

// ask sends a PING, unless the peer does not know it (KA-27), one is on its way, or evidence or a PING
// is fresh. The first one goes in front of the first REQUEST (KA-22).
func (ch *channel) ask(first bool) {
	k := ch.conn.(*pinger)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	out := k.ping != nil || k.written.After(k.heard) || now.Sub(k.written) < fresh
	if k.keepalive == (Keepalive{}) || first && k.number > 0 {
		return
	}
	if !first && (k.support == doesNotKnowPing || out || now.Sub(k.heard) < fresh) {
		return
	}
	k.number++
	k.sendLocked(&k.ping, pingStreamID, messageTypePing, binary.BigEndian.AppendUint64(nil, k.number))
}

// askBefore asks shortly before the deadline of a call. The function that it returns ends that, and
// judges the peer if the call has ended by its deadline.
func (ch *channel) askBefore(ctx context.Context) func(error) error {
	lead := ch.conn.(*pinger).keepalive.BeforeDeadline
	deadline, ok := ctx.Deadline()
	if !ok || lead <= 0 {
		return func(err error) error { return err }
	}
	lead = min(lead, time.Until(deadline)/4)
	p := deadline.Add(-lead)
	timer := time.AfterFunc(time.Until(p), func() { ch.ask(false) })
	return func(err error) error {
		timer.Stop()
		if err != context.DeadlineExceeded {
			return err
		}
		return ch.conn.(*pinger).judge(p, deadline, lead)
	}
}

// judge finds the first line that fits.
func (k *pinger) judge(p, deadline time.Time, lead time.Duration) error {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	peer := Unresponsive
	switch patience := max(2*assumedRTT, lead/4); {
	case !k.heard.Before(p.Add(-fresh)) && k.stalled:
		peer = HandlersStalled
	case !k.heard.Before(p.Add(-fresh)):
		peer = Slow
	case now.Sub(deadline) > lead/2:
		peer = LocalStall
	case k.ping != nil && k.support != doesNotKnowPing:
		peer = NotReading
	case k.support != knowsPing, !k.written.After(k.heard), now.Sub(k.written) < patience:
		peer = Unknown
	}
	return &DeadlineError{Peer: peer, Silent: now.Sub(k.heard)}
}
