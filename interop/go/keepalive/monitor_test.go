package keepalive

import (
	"math"
	"testing"
	"time"
)

// A time in which this side did not run counts a quarter of the timeout at most, and leaves the peer
// half of it.
func TestPausesOfThisSideAreNotHeldAgainstThePeer(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		name string
		gaps []time.Duration
		want int // the look that convicts
	}{
		{"looks on time", []time.Duration{second, second, second, second}, 4},
		{"one pause of an hour", []time.Duration{time.Hour, second, second, second, second}, 4},
		{"a pause at the last look", []time.Duration{second, second, second, time.Hour, second, second}, 6},
		{"pauses at every look", []time.Duration{time.Hour, time.Hour, time.Hour, time.Hour, time.Hour, time.Hour}, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Now()
			m := newMonitor(Config{ReadIdleTimeout: idle, PingTimeout: 4 * second, AssumeSupport: true}, true, now)
			now = now.Add(idle)
			if what, _ := m.poll(now, false); what != doPing {
				t.Fatal("a PING is due")
			}
			m.handlePingWritten(now)
			for i, gap := range c.gaps {
				now = now.Add(gap)
				what, next := m.poll(now, false)
				if convicted := what == doConvict; convicted != (i+1 == c.want) {
					t.Fatalf("look %d convicts: %v", i+1, convicted)
				} else if convicted {
					return
				}
				if !next.After(now) {
					t.Fatalf("look %d: the next one is not later", i+1)
				}
			}
			t.Fatal("never convicted")
		})
	}
}

func TestPollAtAnyTimeAsksToBeCalledLater(t *testing.T) {
	for _, timeouts := range [][2]time.Duration{{1, 1}, {time.Hour, 1}, {1, time.Hour}, {time.Second, 0}, {1 << 62, 1 << 62}} {
		now := time.Now()
		m := newMonitor(Config{ReadIdleTimeout: timeouts[0], PingTimeout: timeouts[1], AssumeSupport: true}, true, now)
		for step := time.Duration(1); step < 1<<61; step *= 3 {
			now = now.Add(step)
			what, next := m.poll(now, false)
			if what == doPing {
				m.handlePingWritten(now)
				_, next = m.poll(now, false)
			}
			if what == doConvict {
				break
			}
			if !next.IsZero() && !next.After(now) {
				t.Fatalf("%v: after %v the next call is %v ago", timeouts, step, now.Sub(next))
			}
		}
	}
}

func TestLongestPingTimeoutIsLookedAtRarely(t *testing.T) {
	now := time.Now()
	m := newMonitor(Config{ReadIdleTimeout: idle, PingTimeout: math.MaxInt64, AssumeSupport: true}, true, now)
	if what, next := m.poll(now.Add(idle), false); what != doPing || next.Sub(now) < 24*time.Hour {
		t.Errorf("%v, the next look after %v", what, next.Sub(now))
	}
}
