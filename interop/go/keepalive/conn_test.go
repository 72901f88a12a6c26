package keepalive

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestPingIsAnsweredWhileTheWrappedSideReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, peer := pair(t, Server, Config{})
		peer.send(request(1), ping(7))
		peer.expect(pong(7))
	})
}

// KA-14: both stand in one piece, and the wrapped side answers as soon as it can.
func TestPongGoesBeforeTheAnswerToWhatCameBehindThePing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Server, Config{})
		go func() {
			piece := make([]byte, 100)
			n, _ := conn.Read(piece)
			conn.Write(response(uint32(n)))
		}()
		peer.send(ping(7), request(1))
		peer.expect(pong(7), response(uint32(len(request(1)))))
	})
}

// KA-15
func TestPongIsNeverWrittenInsideAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Server, Config{})
		first, second := response(1), response(3)
		for cut := 1; cut < len(first); cut++ {
			startWrite(t, conn, first[:cut])
			peer.expect(first[:cut])
			peer.send(ping(uint64(cut)))
			peer.expectNothing(time.Hour)
			if cut%2 == 0 {
				startWrite(t, conn, first[cut:], second)
				peer.expect(first[cut:], pong(uint64(cut)), second)
			} else {
				startWrite(t, conn, first[cut:])
				peer.expect(first[cut:], pong(uint64(cut)))
			}
		}
	})
}

// KA-16: while nothing can be written one PONG waits, for the newest.
func TestNewestPingStandsForAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, peer := pair(t, Server, Config{})
		peer.send(ping(0))
		synctest.Wait() // its PONG is being written
		for number := range uint64(1000) {
			peer.send(ping(number))
		}
		synctest.Wait()
		peer.expect(pong(0), pong(999))
		peer.expectNothing(time.Hour)
	})
}

func TestZeroConfigSendsNoPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, Config{})
		startWrite(t, conn, request(1))
		peer.expect(request(1))
		peer.expectNothing(24 * time.Hour)
	})
}

// KA-22, KA-23
func TestClientAsksInFrontOfItsFirstRequestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, watched)
		startWrite(t, conn, request(1), request(3))
		peer.expect(ping(1), request(1), request(3))
		peer.send(pong(1), response(1))
		synctest.Wait()
		if support := conn.State().Support; support != SupportYes {
			t.Errorf("support: %v", support)
		}
	})
}

// KA-23, KA-27, KA-29, and KA-24 afterwards
func TestPeerThatAnswersCallsOnlyIsNeitherAskedNorJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, watched)
		startWrite(t, conn, request(1))
		peer.expect(ping(1), request(1))
		peer.send(response(3), response(2))
		synctest.Wait()
		if support := conn.State().Support; support != SupportUnknown {
			t.Errorf("a response to no request decided: %v", support)
		}
		peer.send(response(1))
		synctest.Wait()
		if support := conn.State().Support; support != SupportNo {
			t.Errorf("support: %v", support)
		}
		peer.expectNothing(24 * time.Hour)
		peer.send(ping(5))
		peer.expect(pong(5))
		time.Sleep(idle - 1)
		peer.answer(2)
		synctest.Wait()
		if support := conn.State().Support; support != SupportYes {
			t.Errorf("support after a PING: %v", support)
		}
	})
}

// KA-25
func TestErrorOnThePingsIdSaysNoAndReachesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, watched)
		startWrite(t, conn, request(1))
		peer.expect(ping(1), request(1))
		peer.send(response(pingStreamID))
		if got, err := drain(t, conn, time.Second); len(got) > 0 || err != nil {
			t.Errorf("the wrapped side reads % x, %v", got, err)
		}
		if support := conn.State().Support; support != SupportNo {
			t.Errorf("support: %v", support)
		}
	})
}

// KA-26, KA-29
func TestUndecidedPingsComeAtDoubleTheDistanceEachAndConvictNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, peer := pair(t, Client, watched)
		begin := time.Now()
		for i, after := range []time.Duration{1, 2, 4, 8, 16} {
			peer.expect(ping(uint64(i + 1)))
			if at := time.Since(begin); at != after*idle {
				t.Errorf("PING %d after %v, not %v", i+1, at, after*idle)
			}
		}
	})
}

// The distance that has grown while nothing was known ends with it.
func TestPeerThatIsFoundToKnowPingLateIsWatchedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, watched)
		for number := range uint64(5) {
			peer.expect(ping(number + 1))
		}
		time.Sleep(time.Second)
		peer.send(pong(5))
		begin := time.Now()
		peer.expect(ping(6))
		if at := time.Since(begin); at != idle {
			t.Errorf("PING after %v", at)
		}
		time.Sleep(timeout + 1)
		if !errors.Is(conn.Err(), ErrPingTimeout) {
			t.Error(conn.Err())
		}
	})
}

// KA-28
func TestServerAsksOnlyAfterItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Server, Config{ReadIdleTimeout: idle, PingTimeout: timeout, AssumeSupport: true})
		if support := conn.State().Support; support != SupportUnknown {
			t.Errorf("nothing was said, support: %v", support)
		}
		peer.send(request(1), pong(1))
		peer.expectNothing(24 * time.Hour)
		peer.send(ping(1))
		peer.expect(pong(1))
		begin := time.Now()
		peer.expect(ping(1))
		if at := time.Since(begin); at != idle {
			t.Errorf("PING after %v", at)
		}
		time.Sleep(timeout + 1)
		if !errors.Is(conn.Err(), ErrPingTimeout) {
			t.Errorf("a silent client: %v", conn.Err())
		}
	})
}

func TestLivePeerIsAskedOncePerReadIdleTimeoutForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, watched)
		begin := time.Now()
		for i := range 1000 {
			peer.expect(ping(uint64(i + 1)))
			time.Sleep(time.Second)
			peer.send(pong(uint64(i + 1)))
		}
		// A PONG of another number is a sign of life, and says nothing of the way (KA-18).
		peer.expect(ping(1001))
		time.Sleep(2 * time.Second)
		peer.send(pong(1000))
		if got, want := time.Since(begin), 1000*(idle+time.Second)+idle+2*time.Second; got != want {
			t.Errorf("1001 PINGs in %v, not %v", got, want)
		}
		synctest.Wait()
		if rtt := conn.State().RTT; rtt != time.Second {
			t.Errorf("rtt: %v", rtt)
		}
	})
}

// KA-21: not even a frame, let alone a PONG.
func TestAnyByteIsASignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, watched)
		peer.answer(1)
		long := raw(typeData, 1, 0, make([]byte, 1000))
		go io.Copy(io.Discard, peer.conn)
		for _, b := range long {
			time.Sleep(idle + timeout - 1)
			peer.send([]byte{b})
		}
		if err := conn.Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestSilentPeerLosesItsConnectionAfterBothTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, watched)
		peer.answer(1)
		begin := time.Now()
		read := make(chan error)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			read <- err
		}()
		peer.expect(ping(2))
		err := <-read
		if got := time.Since(begin); got != idle+timeout {
			t.Errorf("found after %v", got)
		}
		var verdict *PingTimeoutError
		if !errors.As(err, &verdict) || verdict.Silent != idle+timeout || verdict.NotReading {
			t.Errorf("Read: %v", err)
		}
		if !errors.Is(err, ErrPingTimeout) || !errors.Is(err, io.ErrUnexpectedEOF) || conn.Err() != err {
			t.Errorf("Read: %v, Err: %v", err, conn.Err())
		}
		if _, err := conn.Write(request(1)); !errors.Is(err, ErrPingTimeout) {
			t.Errorf("Write: %v", err)
		}
		if _, err := peer.conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the peer reads %v", err)
		}
	})
}

func TestPeerThatDoesNotReadLosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, watched)
		peer.answer(1)
		begin := time.Now()
		_, err := conn.Write(request(1))
		if got := time.Since(begin); got != idle+timeout {
			t.Errorf("found after %v", got)
		}
		var verdict *PingTimeoutError
		if !errors.As(err, &verdict) || !verdict.NotReading {
			t.Errorf("Write: %v", err)
		}
	})
}

func TestPeerThatReadsSlowlyKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, watched)
		peer.answer(1)
		long := raw(typeData, 1, 0, make([]byte, 40*writeSize))
		startWrite(t, conn, long)
		for range 40 {
			time.Sleep(timeout - 1)
			peer.expect(long[:writeSize])
			long = long[writeSize:]
		}
		peer.expect(long, ping(2))
		if err := conn.Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestAssumedSupportFindsAPeerThatNeverSaidAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := watched
		config.AssumeSupport = true
		conn, peer := pair(t, Client, config)
		peer.expect(ping(1))
		time.Sleep(timeout + 1)
		if !errors.Is(conn.Err(), ErrPingTimeout) {
			t.Error(conn.Err())
		}
	})
}

func TestOnPingTimeoutIsCalledOnceForEachSilenceAndClosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls int
		config := watched
		config.OnPingTimeout = func(conn *Conn, err *PingTimeoutError) { calls++ }
		conn, peer := pair(t, Client, config)
		peer.answer(1)
		for silence := 1; silence <= 3; silence++ {
			peer.expect(ping(uint64(silence + 1)))
			peer.expectNothing(time.Hour)
			synctest.Wait()
			if state := conn.State(); calls != silence || !state.Overdue || conn.Err() != nil {
				t.Fatalf("silence %d: %d calls, %+v, %v", silence, calls, state, conn.Err())
			}
			peer.send(response(99))
			synctest.Wait()
			if state := conn.State(); state.Overdue || !state.AwaitingPong.IsZero() {
				t.Fatalf("heard again: %+v", state)
			}
		}
	})
}

// A silence is one also if the peer takes the PING in the middle of it.
func TestPeerThatTakesThePingLateIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls int
		config := watched
		config.OnPingTimeout = func(*Conn, *PingTimeoutError) { calls++ }
		_, peer := pair(t, Client, config)
		peer.answer(1)
		time.Sleep(time.Hour)
		peer.expect(ping(2))
		peer.expectNothing(time.Hour)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
	})
}

func TestPingThatIsWrittenWhileTooMuchIsUnreadJudgesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := watched
		config.ReadBuffer = 1000
		conn, peer := pair(t, Client, config)
		peer.answer(1)
		startWrite(t, conn, request(1))
		time.Sleep(idle + 1) // the PING waits behind the request
		peer.send(raw(typeData, 1, 0, make([]byte, 2000)))
		peer.expect(request(1), ping(2))
		time.Sleep(24 * time.Hour)
		if err := conn.Err(); err != nil {
			t.Error(err)
		}
	})
}

// The end of the test waits for all that the Conn has started.
func TestCloseEndsWhoWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Server, Config{ReadBuffer: 1})
		peer.send(request(1))
		synctest.Wait()
		conn.Close()
	})
}

// What this side does not read may hold the answer.
func TestNobodyIsJudgedWhileTheWrappedSideLeavesTooMuchUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := watched
		config.ReadBuffer = 1000
		conn, peer := pair(t, Client, config)
		peer.answer(1)
		long := raw(typeData, 1, 0, make([]byte, 5*readSize))
		go peer.conn.Write(append(long, ping(9)...))
		time.Sleep(24 * time.Hour)
		if err := conn.Err(); err != nil {
			t.Fatal(err)
		}
		if kept := conn.inbox.len(); kept > 1000+readSize {
			t.Errorf("%d bytes are kept", kept)
		}
		go io.Copy(io.Discard, conn)
		peer.expect(pong(9))
		peer.expect(ping(2))
		time.Sleep(timeout + 1)
		if !errors.Is(conn.Err(), ErrPingTimeout) {
			t.Errorf("then it is judged again: %v", conn.Err())
		}
	})
}

func TestEndOfThePeerIsItsOwnReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, watched)
		peer.send(response(1))
		peer.conn.Close()
		got, err := drain(t, conn, time.Hour)
		if !bytes.Equal(got, response(1)) || err != io.EOF || conn.Err() != io.EOF {
			t.Errorf("% x, %v, %v", got, err, conn.Err())
		}
	})
}

func TestCloseWakesWhoReadsAndWhoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := pair(t, Client, watched)
		ends := make(chan error)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			ends <- err
		}()
		for range 2 {
			go func() {
				_, err := conn.Write(request(1))
				ends <- err
			}()
		}
		synctest.Wait()
		conn.Close()
		for range 3 {
			if err := <-ends; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
	})
}

// KA-51
func TestPeriodicPingsKeepTheSmallestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, peer := pair(t, Client, Config{ReadIdleTimeout: 1})
		for number := range uint64(3) {
			since := time.Now()
			peer.answer(number + 1)
			if after := time.Since(since); after != minReadIdle {
				t.Errorf("PING %d after %v", number+1, after)
			}
		}
	})
}
