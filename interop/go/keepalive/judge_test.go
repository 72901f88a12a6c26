package keepalive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// late runs a call that is never answered, and returns what was said of the peer.
func late(t *testing.T, conn *Conn, limit time.Duration) *LateError {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := conn.Judge(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	var verdict *LateError
	if !errors.As(err, &verdict) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call: %v", err)
		return &LateError{}
	}
	return verdict
}

// against is late on a machine that may be too busy to say something of others.
func against(t *testing.T, conn *Conn, limit time.Duration) *LateError {
	t.Helper()
	for range 9 {
		if verdict := late(t, conn, limit); verdict.Verdict != VerdictLocalStall {
			return verdict
		}
	}
	return late(t, conn, limit)
}

// sockets wraps one end of a connection over a real socket. Such tests take real time, side by side.
func sockets(t *testing.T, network string, config Config) (*Conn, *peer) {
	t.Parallel()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err := net.Dial(network, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn := Client(near, config)
	t.Cleanup(func() {
		conn.Close()
		far.Close()
	})
	return conn, &peer{t: t, conn: far}
}

// unixSockets needs a kernel that tells what is unread.
func unixSockets(t *testing.T, config Config) (*Conn, *peer) {
	if runtime.GOOS != "linux" {
		t.Skip("this kernel cannot tell")
	}
	return sockets(t, "unix", config)
}

// ignores reads all that comes, and says how much of it were PINGs once the connection has ended.
func (p *peer) ignores() (pings func() int) {
	all := make(chan []byte)
	go func() {
		read, _ := io.ReadAll(p.conn)
		all <- read
	}()
	return func() int {
		return bytes.Count(<-all, []byte{0, 0, 0, 8, 0xff, 0xff, 0xff, 0xff, typePing, 0})
	}
}

func mustWrite(t *testing.T, conn *Conn, frames ...[]byte) {
	t.Helper()
	if _, err := conn.Write(bytes.Join(frames, nil)); err != nil {
		t.Fatal(err)
	}
}

const limit = time.Second

func TestPeerThatKnowsNoPingAndReadsIsSaidToRead(t *testing.T) {
	conn, peer := unixSockets(t, Config{})
	pings := peer.ignores()
	mustWrite(t, conn, request(1))
	begin := time.Now()
	verdict := late(t, conn, limit)
	if verdict.Verdict != VerdictReads || !strings.Contains(verdict.Error(), "reads") {
		t.Errorf("%v", verdict)
	}
	// The request was read long ago; the PING has just been.
	state := verdict.State
	if !state.Receipts || state.PeerRead.Sub(begin) < limit/2 || !state.UnreadSince.IsZero() {
		t.Errorf("%+v", state)
	}
	conn.Close()
	if n := pings(); n != 1 {
		t.Errorf("%d PINGs", n)
	}
}

func TestPeerThatDoesNotReadIsSaidNotToAndSentNothingMore(t *testing.T) {
	conn, peer := unixSockets(t, Config{})
	mustWrite(t, conn, request(1))
	verdict := against(t, conn, limit)
	if verdict.Verdict != VerdictNotReading || !strings.Contains(verdict.Error(), "does not read") {
		t.Errorf("%v", verdict)
	}
	if since := verdict.State.UnreadSince; since.IsZero() || time.Since(since) < limit/2 {
		t.Errorf("unread since %v", since)
	}
	pings := peer.ignores()
	conn.Close()
	if n := pings(); n != 0 {
		t.Errorf("%d PINGs", n)
	}
}

// Its request was read, and then it was stopped: only the PING can tell.
func TestPeerThatStoppedAfterItHadReadIsFoundByThePing(t *testing.T) {
	conn, peer := unixSockets(t, Config{})
	startWrite(t, conn, request(1))
	peer.expect(request(1))
	if verdict := against(t, conn, limit); verdict.Verdict != VerdictNotReading {
		t.Errorf("%v", verdict)
	}
	if state := conn.Peer(); state != PeerDoubtful {
		t.Errorf("behind the verdict it is %v", state)
	}
	peer.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	peer.expect(ping(1))
	if state := conn.Peer(); state != PeerAlive {
		t.Errorf("when it has read it is %v", state)
	}
	peer.conn.SetReadDeadline(time.Time{})
	// Continued, it is told from that.
	pings := peer.ignores()
	if verdict := against(t, conn, limit); verdict.Verdict != VerdictReads {
		t.Errorf("%v", verdict)
	}
	conn.Close()
	if n := pings(); n != 1 {
		t.Errorf("%d PINGs", n)
	}
}

func TestPeerThatKnowsPingIsDoubtfulUntilItIsHeard(t *testing.T) {
	conn, peer := unixSockets(t, Config{})
	if state := conn.Peer(); state != PeerAlive {
		t.Errorf("at first it is %v", state)
	}
	peer.send(ping(7))
	peer.expect(pong(7))
	time.Sleep(2 * freshness)
	if verdict := against(t, conn, limit); verdict.Verdict != VerdictUnresponsive {
		t.Errorf("%v", verdict)
	}
	// That somebody reads is not its word.
	peer.expect(ping(1))
	if state := conn.Peer(); state != PeerDoubtful {
		t.Errorf("unheard it is %v", state)
	}
	peer.send(pong(1))
	for begin := time.Now(); conn.Peer() != PeerAlive; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("heard it is %v", conn.Peer())
		}
	}
	conn.Close()
	if state := conn.Peer(); state != PeerGone {
		t.Errorf("closed it is %v", state)
	}
}

func TestPeerThatWasStoppedWithAFullSocketIsSaidNotToRead(t *testing.T) {
	conn, _ := unixSockets(t, Config{})
	go conn.Write(raw(typeData, 1, 0, make([]byte, 1<<22)))
	time.Sleep(50 * time.Millisecond)
	if verdict := against(t, conn, limit); verdict.Verdict != VerdictNotReading {
		t.Errorf("%v", verdict)
	}
}

func TestManyLateCallsSendOnePing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, Config{})
		conn.unread = func() (unreadAnswer, bool) { return unreadAnswer{}, true }
		pings := peer.ignores()
		mustWrite(t, conn, request(1))
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				if verdict := late(t, conn, limit); verdict.Verdict != VerdictReads {
					t.Errorf("%v", verdict)
				}
			})
		}
		all.Wait()
		conn.Close()
		if n := pings(); n != 1 {
			t.Errorf("%d PINGs", n)
		}
	})
}

func TestOnTCPNobodyCanTell(t *testing.T) {
	conn, peer := sockets(t, "tcp", Config{})
	pings := peer.ignores()
	mustWrite(t, conn, request(1))
	verdict := late(t, conn, limit/2)
	if verdict.Verdict != VerdictUnknown || verdict.State.Receipts {
		t.Errorf("%v, %+v", verdict, verdict.State)
	}
	conn.Close()
	if n := pings(); n != 0 {
		t.Errorf("%d PINGs", n)
	}
}

func TestReadReceiptsCanBeTurnedOff(t *testing.T) {
	conn, peer := unixSockets(t, Config{NoReadReceipts: true})
	pings := peer.ignores()
	mustWrite(t, conn, request(1))
	verdict := late(t, conn, limit/2)
	if verdict.Verdict != VerdictUnknown || verdict.State.Receipts {
		t.Errorf("%v, %+v", verdict, verdict.State)
	}
	conn.Close()
	if n := pings(); n != 0 {
		t.Errorf("%d PINGs", n)
	}
}

// A proxy reads for others, so that something reads is no evidence for a peer that would answer.
func TestPeerThatKnowsPingIsJudgedByWhatItSaysAndNotByWhatItReads(t *testing.T) {
	conn, peer := unixSockets(t, Config{})
	peer.send(ping(9))
	peer.expect(pong(9))
	startWrite(t, conn, request(1))
	peer.expect(request(1))
	time.Sleep(2 * freshness)
	pings := peer.ignores()
	if verdict := late(t, conn, limit); verdict.Verdict != VerdictUnresponsive {
		t.Errorf("%v", verdict)
	}
	// One that is out already is waited for, as before.
	if verdict := late(t, conn, limit); verdict.Verdict != VerdictUnresponsive {
		t.Errorf("%v", verdict)
	}
	conn.Close()
	if n := pings(); n != 1 {
		t.Errorf("%d PINGs", n)
	}
}

// A peer that closes leaves nothing unread, and has not read it.
func TestEndOfThePeerIsNoReceipt(t *testing.T) {
	conn, peer := unixSockets(t, Config{})
	mustWrite(t, conn, request(1))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := conn.Judge(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		peer.conn.Close()
		return ctx.Err()
	})
	if err != context.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if !conn.receipts.read.IsZero() {
		t.Error("it is said to have read")
	}
}

func TestPeerThatAnswersThePingOfALateCallIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, Config{AssumeSupport: true})
		begin := time.Now()
		go func() {
			peer.expect(ping(1))
			if after := time.Since(begin); after != 3*limit-longestLead {
				t.Errorf("asked after %v", after)
			}
			time.Sleep(longestLead - 1)
			peer.send(pong(1))
		}()
		if verdict := late(t, conn, 3*limit); verdict.Verdict != VerdictSlow {
			t.Errorf("%v", verdict)
		}
	})
}

// The PING of a late call puts nothing in motion that the configuration does not ask for.
func TestLateCallOfAConnectionThatIsNotWatchedConvictsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, Config{AssumeSupport: true, PingTimeout: timeout})
		go io.Copy(io.Discard, peer.conn)
		if verdict := late(t, conn, limit); verdict.Verdict != VerdictUnresponsive {
			t.Errorf("%v", verdict)
		}
		time.Sleep(time.Hour)
		if err := conn.Err(); err != nil {
			t.Error(err)
		}
	})
}

// KA-28
func TestServerThatWasNotAskedAsksNobodyAtADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Server, Config{})
		conn.unread = func() (unreadAnswer, bool) { return unreadAnswer{}, true }
		done := make(chan struct{})
		go func() {
			peer.expectNothing(2 * limit)
			close(done)
		}()
		late(t, conn, limit)
		<-done
	})
}

func TestPeerThatHasJustSpokenIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, Config{AssumeSupport: true})
		done := make(chan struct{})
		go func() {
			time.Sleep(limit - longestLead - freshness)
			peer.send(response(3))
			peer.expectNothing(2 * limit)
			close(done)
		}()
		if verdict := late(t, conn, limit); verdict.Verdict != VerdictSlow {
			t.Errorf("%v", verdict)
		}
		<-done
	})
}

func TestPingsOfLateCallsKeepTheirDistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, Config{})
		// It neither reads nor leaves unread what it is sent; so each call wants a PING.
		conn.unread = func() (unreadAnswer, bool) { return unreadAnswer{coming: true}, true }
		pings := peer.ignores()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		var all sync.WaitGroup
		for i := range 101 { // over 100 ms
			all.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, limit/2+time.Duration(i)*time.Millisecond)
				defer cancel()
				conn.Judge(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				})
			})
		}
		all.Wait()
		conn.Close()
		if n := pings(); n < 2 || n > 4 {
			t.Errorf("%d PINGs", n)
		}
	})
}

// What the connection began with is no sign of life.
func TestPeerThatNeverSaidAWordHasNotJustSpoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := pair(t, Client, Config{})
		if verdict := late(t, conn, 10*time.Millisecond); verdict.Verdict != VerdictUnknown {
			t.Errorf("%v", verdict)
		}
	})
}

func TestOutcomesThatAreNotLateStayAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := pair(t, Client, Config{})
		other := errors.New("other")
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		for _, want := range []error{nil, other, context.DeadlineExceeded, context.Canceled} {
			if got := conn.Judge(ctx, func(context.Context) error { return want }); got != want {
				t.Errorf("%v, not %v", got, want)
			}
		}
		if got := conn.Judge(t.Context(), func(context.Context) error { return other }); got != other {
			t.Error(got)
		}
		conn.Close()
		<-ctx.Done()
		if got := conn.Judge(ctx, func(ctx context.Context) error { return ctx.Err() }); got != context.DeadlineExceeded {
			t.Errorf("on a connection that has ended: %v", got)
		}
	})
}

func TestVerdictIsTheFirstThatFits(t *testing.T) {
	const patience = 100 * time.Millisecond
	all := facts{heard: true, reads: true, stalled: true, refused: true, waited: patience, unread: patience, patience: patience}
	for _, c := range []struct {
		name    string
		support Support
		change  func(*facts)
		want    Verdict
	}{
		{"heard", SupportNo, func(f *facts) {}, VerdictSlow},
		{"reads", SupportNo, func(f *facts) { f.heard = false }, VerdictReads},
		{"reads, not known", SupportUnknown, func(f *facts) { f.heard = false }, VerdictReads},
		{"reads and knows PING", SupportYes, func(f *facts) { f.heard, f.stalled = false, false }, VerdictUnresponsive},
		{"stalled", SupportNo, func(f *facts) { f.heard, f.reads = false, false }, VerdictLocalStall},
		{"unread", SupportNo, func(f *facts) { f.heard, f.reads, f.stalled = false, false, false }, VerdictNotReading},
		{"unread too short", SupportNo, func(f *facts) { *f = facts{unread: patience - 1, patience: patience} }, VerdictUnknown},
		{"the PING refused", SupportYes, func(f *facts) { *f = facts{refused: true, unread: patience, patience: patience} }, VerdictNotReading},
		{"waited too short", SupportYes, func(f *facts) { *f = facts{waited: patience - 1, patience: patience} }, VerdictUnknown},
	} {
		facts := all
		c.change(&facts)
		facts.support = c.support
		if got := facts.verdict(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestPeerThatHasJustReadIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t, Client, Config{})
		conn.unread = func() (unreadAnswer, bool) { return unreadAnswer{}, true }
		pings := peer.ignores()
		time.AfterFunc(limit-longestLead-freshness, func() { conn.Write(request(1)) })
		if verdict := late(t, conn, limit); verdict.Verdict != VerdictReads {
			t.Errorf("%v", verdict)
		}
		conn.Close()
		if n := pings(); n != 0 {
			t.Errorf("%d PINGs", n)
		}
	})
}

func TestNobodyLooksForACallThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := pair(t, Client, Config{})
		var looks int
		conn.unread = func() (unreadAnswer, bool) {
			looks++
			return unreadAnswer{}, true
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		conn.Judge(ctx, func(context.Context) error { return nil })
		func() {
			defer func() { recover() }()
			conn.Judge(ctx, func(context.Context) error { panic("of the caller") })
		}()
		time.Sleep(2 * limit)
		synctest.Wait()
		if looks != 0 {
			t.Errorf("%d looks", looks)
		}
	})
}
