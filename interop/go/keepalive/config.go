package keepalive

import "time"

// DefaultReadBuffer is how much is kept for a wrapped side that does not read: two frames of the
// largest size there is.
const DefaultReadBuffer = 8 << 20

// Config says how a connection is watched. The zero value answers PINGs and sends none but those of
// [Conn.Judge].
type Config struct {
	// ReadIdleTimeout is the time after which a PING is sent if nothing was read. Any byte counts as
	// read, also those of unfinished frames. Zero sends no PINGs; less than 10 ms is taken as 10 ms.
	ReadIdleTimeout time.Duration

	// PingTimeout is the time after which the connection is closed if, since a PING was sent, nothing
	// was read at all. Zero closes none. Time in which this process did not run is not held against the
	// peer; so it may take up to twice as long, and longer on a machine that hardly runs.
	PingTimeout time.Duration

	// OnPingTimeout, if set, is called instead of closing the connection, in a goroutine of its own. It
	// is called once for each silence: after the peer has been heard again it may be called again.
	OnPingTimeout func(*Conn, *PingTimeoutError)

	// AssumeSupport says that the peer is known to know PING, because both are deployed together. A
	// client then may close the connection of a peer that never said a word, such as one that does not
	// accept. It has no effect on a server.
	AssumeSupport bool

	// NoReadReceipts turns off that [Conn.Judge] asks the kernel what the peer's process has read, and with
	// it all PINGs to a peer that is not known to answer them but those of ReadIdleTimeout. Such a peer
	// that is late is then not judged. Some servers, those of ttrpc-rust, log a line for each PING. To be
	// turned off also for a connection that gives a socket (syscall.Conn) which others write to as well.
	NoReadReceipts bool

	// ReadBuffer is how many bytes are kept for a wrapped side that does not read. Zero means
	// DefaultReadBuffer. Memory is taken only while they wait.
	ReadBuffer int
}

// Support is what is known about the peer.
type Support int

const (
	// SupportUnknown: the peer has said nothing that would tell.
	SupportUnknown Support = iota
	// SupportYes: the peer knows PING.
	SupportYes
	// SupportNo: the peer does not know PING. It is neither asked nor judged but by [Conn.Judge], by what
	// it reads.
	SupportNo
)

func (s Support) String() string {
	switch s {
	case SupportYes:
		return "yes"
	case SupportNo:
		return "no"
	default:
		return "unknown"
	}
}

// State is what a connection says about its peer at one moment.
type State struct {
	// Support says whether the peer knows PING.
	Support Support
	// LastRead is when the last byte was read, or when the connection began.
	LastRead time.Time
	// AwaitingPong is when the PING was written that nothing has been read after; zero if there is none.
	AwaitingPong time.Time
	// RTT is how long the newest PONG took; zero if there was none.
	RTT time.Duration
	// HandlersStalled is what the newest PONG said: the peer lives, and the threads that should run its
	// handlers do not. Few peers say so; false means nothing.
	HandlersStalled bool
	// Overdue says that PingTimeout has passed and nothing was read since. It is seen with
	// Config.OnPingTimeout only, for without it the connection is closed.
	Overdue bool
	// Receipts says that the kernel tells what the peer's process has read. It is asked by [Conn.Judge]
	// only, near the deadlines of calls.
	Receipts bool
	// PeerRead is an instant at or after which the peer's process has read, as the kernel told last; zero
	// if it told of none.
	PeerRead time.Time
	// UnreadSince is since when written bytes have been there at least that nobody had read when the kernel
	// was last asked; zero if there were none.
	UnreadSince time.Time
}

// Peer is what [Conn.Peer] says of a peer.
type Peer int

const (
	// PeerAlive: nothing speaks against it. It may know nothing of PING.
	PeerAlive Peer = iota
	// PeerDoubtful: it has left something unanswered or unread for too long.
	PeerDoubtful
	// PeerGone: the connection has ended.
	PeerGone
)

func (p Peer) String() string {
	switch p {
	case PeerDoubtful:
		return "doubtful"
	case PeerGone:
		return "gone"
	default:
		return "alive"
	}
}

// Verdict is what is said of the peer of a call that ran out of time. It ends nothing.
type Verdict int

const (
	// VerdictUnknown: the peer could not be asked, or had too little time.
	VerdictUnknown Verdict = iota
	// VerdictSlow: the peer has just sent something, so its answer is late and no more than that. With
	// State.HandlersStalled its handlers do not run.
	VerdictSlow
	// VerdictReads: the peer's process has just read what it was sent. More cannot be known of a peer that
	// does not answer PING: nothing of its handlers, and nothing of what is behind a proxy.
	VerdictReads
	// VerdictNotReading: nobody has read what was sent. A server that reads on the thread which a handler
	// blocks does not read either; it is not always stopped.
	VerdictNotReading
	// VerdictUnresponsive: the peer knows PING and does not answer it.
	VerdictUnresponsive
	// VerdictLocalStall: this side did not run, so it saw too little of the peer.
	VerdictLocalStall
)

func (v Verdict) String() string {
	switch v {
	case VerdictSlow:
		return "the peer is alive, its answer is late"
	case VerdictReads:
		return "the peer's process reads, its answer is late"
	case VerdictNotReading:
		return "the peer does not read"
	case VerdictUnresponsive:
		return "the peer does not respond"
	case VerdictLocalStall:
		return "this side did not run"
	default:
		return "nothing is known of the peer"
	}
}
