package keepalive

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Who sets one for each Write, and does not take it back, still answers PINGs.
func TestWriteDeadlineThatHasPassedLeavesPongsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Server, Config{})
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		startWrite(t, conn, response(1))
		peer.expect(response(1))
		time.Sleep(time.Minute)
		peer.send(ping(7))
		peer.conn.SetReadDeadline(time.Now().Add(time.Hour))
		peer.expect(pong(7))
	})
}

// A deadline that is set meanwhile is for the write that waits.
func TestWriteDeadlineReachesAWriteThatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Server, Config{})
		ends := make(chan error)
		go func() {
			_, err := conn.Write(response(1))
			ends <- err
		}()
		synctest.Wait()
		conn.SetWriteDeadline(time.Now())
		if err := <-ends; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		peer.send(ping(7))
		peer.expect(pong(7))
	})
}

// A deadline reaches who waits behind a PONG, too, and whoever is left finishes that.
func TestWriteDeadlineEndsAWriteThatWaitsBehindAPong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Server, Config{})
		peer.send(ping(7))
		answer := pong(7)
		peer.expect(answer[:5])
		begin := time.Now()
		conn.SetWriteDeadline(begin.Add(time.Second))
		n, err := conn.Write(response(1))
		if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("%d, %v after %v", n, err, time.Since(begin))
		}
		peer.expect(answer[5:])
		peer.expectNothing(time.Hour)
		conn.SetWriteDeadline(time.Time{})
		startWrite(t, conn, response(1))
		peer.expect(response(1))
	})
}

// brokenWrites fails each write, as a socket does whose peer has shut down reading.
type brokenWrites struct {
	net.Conn
	writes atomic.Int32
}

func (b *brokenWrites) Write(p []byte) (int, error) {
	if b.writes.Add(1) > 10 {
		return b.Conn.Write(p) // waits; a loop would keep the test from its end
	}
	return 0, errors.New("broken")
}

func TestPongThatCannotBeWrittenIsTriedOncePerPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken *brokenWrites
		_, peer := pair(t, func(near net.Conn, config Config) *Conn {
			broken = &brokenWrites{Conn: near}
			return Server(broken, config)
		}, Config{})
		for number := range uint64(3) {
			peer.send(ping(number))
			synctest.Wait()
		}
		if n := broken.writes.Load(); n != 3 {
			t.Errorf("%d writes", n)
		}
	})
}
