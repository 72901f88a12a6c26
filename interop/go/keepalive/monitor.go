package keepalive

import (
	"math"
	"time"
)

// The first late looks of a trial pull its attended time down; later ones do not, so that a side that
// is throttled all the time still decides.
const lateLooks = 4

// minReadIdle is the smallest interval of periodic PINGs (KA-51).
const minReadIdle = 10 * time.Millisecond

// monitor decides when a PING is due and when the peer is dead. It has neither a clock nor a
// connection: what happens is told to it with the time, and poll says what is to be done.
type monitor struct {
	readIdle    time.Duration
	pingTimeout time.Duration
	client      bool

	support Support
	pinged  bool   // a PING was received
	began   bool   // a PING was sent or is about to be
	request uint32 // the last id of a REQUEST behind it

	heard   time.Time     // the last byte, or the beginning
	spoke   bool          // there was a byte
	asked   time.Time     // the last PING that was written, or that became due
	spacing time.Duration // of PINGs while nothing is decided
	rtt     time.Duration
	stalled bool // the newest PONG said so

	number  uint64 // of the newest PING
	ping    pingState
	overdue bool
	trial   trial
}

type pingState int

const (
	pingNone    pingState = iota // none is out, or the peer was heard since
	pingQueued                   // it waits to be written
	pingWritten                  // the kernel has it, and nothing was read since
)

// trial is the time in which the peer could have been heard and was not.
type trial struct {
	attended time.Duration
	looked   time.Time
	late     int
}

type action int

const (
	doNothing action = iota
	doPing
	doConvict
)

func newMonitor(config Config, client bool, now time.Time) monitor {
	m := monitor{
		readIdle:    max(config.ReadIdleTimeout, 0),
		pingTimeout: max(config.PingTimeout, 0),
		client:      client,
		heard:       now,
		asked:       now,
	}
	if m.readIdle > 0 {
		m.readIdle = max(m.readIdle, minReadIdle)
	}
	m.spacing = m.readIdle
	if client && config.AssumeSupport {
		m.support = SupportYes
	}
	return m
}

// handleBytes: every byte is a sign of life (KA-21).
func (m *monitor) handleBytes(now time.Time) {
	m.heard = now
	m.spoke = true
	m.ping = pingNone
	m.overdue = false
}

func (m *monitor) handlePing() {
	m.support = SupportYes // KA-24
	m.pinged = true
}

// handlePong takes a PONG, before handleBytes takes its bytes. One that was not asked for is a sign
// of life and nothing more (KA-18).
func (m *monitor) handlePong(now time.Time, number uint64, stalled bool) {
	m.support = SupportYes // KA-24
	m.stalled = stalled
	if m.ping != pingNone && number == m.number && m.trial.late == 0 {
		m.rtt = now.Sub(m.asked)
	}
}

// handleRequest takes the id of a REQUEST that is about to be written.
func (m *monitor) handleRequest(streamID uint32) {
	if m.began {
		m.request = max(m.request, streamID)
	}
}

// handleResponse takes the id of a RESPONSE. The first one to a REQUEST that stands behind the PING
// decides (KA-23).
func (m *monitor) handleResponse(streamID uint32) {
	if m.support == SupportUnknown && streamID%2 == 1 && streamID <= m.request {
		m.support = SupportNo
	}
}

// handleRefusal: the peer took the PING for a request (KA-25).
func (m *monitor) handleRefusal() {
	if m.support == SupportUnknown && m.began {
		m.support = SupportNo
	}
}

// handleProgress: the kernel took a piece of what is written ahead of the PING.
func (m *monitor) handleProgress(now time.Time) {
	if m.ping == pingQueued {
		m.trial = trial{looked: now}
	}
}

// handlePingWritten: the trial of a PING begins when the kernel has its last byte.
func (m *monitor) handlePingWritten(now time.Time) {
	m.asked = now
	if m.ping == pingQueued {
		m.ping = pingWritten
		m.trial = trial{looked: now}
	}
}

// handleUnparked: there was something to be read that was not, so nothing is known of the time.
func (m *monitor) handleUnparked(now time.Time) {
	m.handleBytes(now)
}

// wantsFirst says that a PING belongs in front of the frame that is to be written (KA-22).
func (m *monitor) wantsFirst() bool {
	return m.client && m.readIdle > 0 && m.support == SupportUnknown && !m.began
}

func (m *monitor) mayAsk() bool {
	if m.readIdle == 0 || m.support == SupportNo { // KA-27
		return false
	}
	return m.client || m.pinged // KA-28
}

// mayConvict: who may not know PING is not dead for being silent (KA-29).
func (m *monitor) mayConvict() bool {
	return m.pingTimeout > 0 && m.support == SupportYes
}

// beginPing takes note of a PING that now waits to be written.
func (m *monitor) beginPing(now time.Time) {
	m.began = true
	m.number++
	m.asked = now
	m.ping = pingQueued
	m.trial = trial{looked: now}
}

// poll says what is to be done now, and when it is to be asked again at the latest; the zero time is
// never. blocked says that a write has begun and the kernel does not take it.
func (m *monitor) poll(now time.Time, blocked bool) (action, time.Time) {
	if !m.mayAsk() || m.overdue {
		return doNothing, time.Time{}
	}
	if m.ping == pingNone || m.ping == pingWritten && !m.mayConvict() {
		due := later(m.heard, m.asked).Add(m.distance())
		if now.Before(due) {
			return doNothing, due
		}
		if m.began && m.support == SupportUnknown { // KA-26
			m.spacing = saturatingDouble(m.spacing)
		}
		m.beginPing(now)
		return doPing, m.nextLook()
	}
	if !m.mayConvict() {
		return doNothing, time.Time{}
	}
	if now.Before(m.nextLook()) {
		return doNothing, m.nextLook()
	}
	m.look(now, m.ping == pingWritten || blocked)
	if m.trial.attended >= m.pingTimeout {
		return doConvict, time.Time{}
	}
	return doNothing, m.nextLook()
}

// distance is the time to the next PING, from the last byte or the last PING.
func (m *monitor) distance() time.Duration {
	if m.support == SupportYes {
		return m.readIdle
	}
	return m.spacing
}

// look adds to the attended time. That a timer fired does not say that the peer was silent: this side
// may have been stopped, and what the peer sent still lies in the socket. So no more than a quarter of
// the timeout is counted at once, and after a pause the peer keeps half of it.
func (m *monitor) look(now time.Time, counts bool) {
	gap := now.Sub(m.trial.looked)
	m.trial.looked = now
	if counts {
		m.trial.attended += min(gap, m.quarter())
	}
	if gap > m.pingTimeout/2 && m.trial.late < lateLooks {
		m.trial.late++
		m.trial.attended = min(m.trial.attended, m.pingTimeout/2)
	}
}

// postpone is called instead of convict when bytes were found that this side has not read yet.
func (m *monitor) postpone(now time.Time) time.Time {
	m.trial = trial{looked: now}
	return m.nextLook()
}

// convict takes the peer for dead until it is heard, which it is not if the connection is closed.
func (m *monitor) convict(now time.Time) *PingTimeoutError {
	m.overdue = true
	return &PingTimeoutError{Silent: now.Sub(m.heard), NotReading: m.ping == pingQueued}
}

func (m *monitor) nextLook() time.Time {
	if !m.mayConvict() {
		return time.Time{}
	}
	return m.trial.looked.Add(min(m.quarter(), m.pingTimeout-m.trial.attended))
}

func (m *monitor) quarter() time.Duration {
	return max((m.pingTimeout-1)/4+1, time.Millisecond)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func saturatingDouble(d time.Duration) time.Duration {
	if d > math.MaxInt64/4 {
		return d
	}
	return 2 * d
}
