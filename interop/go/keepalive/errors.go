package keepalive

import (
	"errors"
	"fmt"
	"io"
	"time"
)

var (
	// ErrPingTimeout is what a [PingTimeoutError] is, for errors.Is.
	ErrPingTimeout = errors.New("ttrpc keepalive: ping timeout")

	// ErrProtocol is what a [ProtocolError] is, for errors.Is.
	ErrProtocol = errors.New("ttrpc keepalive: protocol error")
)

// PingTimeoutError says that a peer was silent for too long. It is an io.ErrUnexpectedEOF, too:
// a ttrpc server (1.1 and later) ends a connection with that and keeps one with any other error.
type PingTimeoutError struct {
	// Silent is the time since the last byte was read.
	Silent time.Duration
	// NotReading says that the peer did not even take the PING: its socket has been full all the time.
	NotReading bool
}

func (e *PingTimeoutError) Error() string {
	what := "does not answer"
	if e.NotReading {
		what = "does not read"
	}
	return fmt.Sprintf("%v: the peer %s, nothing read for %v", ErrPingTimeout, what, e.Silent.Round(time.Millisecond))
}

// Is makes errors.Is find ErrPingTimeout.
func (e *PingTimeoutError) Is(target error) bool { return target == ErrPingTimeout }

// Unwrap gives io.ErrUnexpectedEOF.
func (e *PingTimeoutError) Unwrap() error { return io.ErrUnexpectedEOF }

// LateError says of a call that ran out of time what its peer did. It is what the call failed with,
// too: context.DeadlineExceeded.
type LateError struct {
	// Verdict is what is said of the peer.
	Verdict Verdict
	// State is what was known of it at that moment.
	State State

	cause error
}

func (e *LateError) Error() string { return fmt.Sprintf("%v: %v", e.cause, e.Verdict) }

// Unwrap gives what the call failed with.
func (e *LateError) Unwrap() error { return e.cause }

// ProtocolError says that the peer sent a header that no ttrpc sends; most likely it speaks another
// protocol. It is an io.ErrUnexpectedEOF, too, for the reason given at [PingTimeoutError].
type ProtocolError struct {
	// Length is what the header gives as length of the payload.
	Length uint32
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("%v: a frame of %d bytes", ErrProtocol, e.Length)
}

// Is makes errors.Is find ErrProtocol.
func (e *ProtocolError) Is(target error) bool { return target == ErrProtocol }

// Unwrap gives io.ErrUnexpectedEOF.
func (e *ProtocolError) Unwrap() error { return io.ErrUnexpectedEOF }
