package keepalive

import "time"

// DefaultReadBuffer is how much is kept for a wrapped side that does not read: two frames of the
// largest size there is.
const DefaultReadBuffer = 8 << 20

// Config says how a connection is watched. The zero value answers PINGs and sends none.
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
	// SupportNo: the peer does not know PING. It is neither asked nor judged.
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
}
