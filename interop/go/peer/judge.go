//go:build !ttrpc1.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"ttrpc-keepalive/interop/keepalive"
)

// What a client with package keepalive makes of its peer. Where something has to be done to the peer,
// it says "go" when it is time.

func (c caller) knows() error {
	if support := c.conn.State().Support; support != keepalive.SupportYes {
		return fmt.Errorf("does the peer know PING: %v", support)
	}
	return nil
}

func playAlive(ctx context.Context, c caller) (string, error) {
	if err := c.works(ctx); err != nil {
		return "", err
	}
	time.Sleep(3 * (*idle + *timeout)) // with nothing but PINGs
	if err := c.conn.Err(); err != nil {
		return "", err
	}
	state := c.conn.State()
	if state.RTT == 0 || time.Since(state.LastRead) > *idle+*timeout {
		return "", fmt.Errorf("%+v", state)
	}
	return fmt.Sprintf("idle for %v and kept", 3*(*idle+*timeout)), errors.Join(c.knows(), c.works(ctx))
}

func playSlow(ctx context.Context, c caller) (string, error) {
	if err := c.works(ctx); err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	late := 3 * (*idle + *timeout)
	if err := c.unary(limited, "Sleep", &Int64Value{Value: late.Milliseconds()}, new(Int64Value)); !deadline(err) {
		return "", fmt.Errorf("the late call: %v", err)
	}
	time.Sleep(late)
	if err := c.conn.Err(); err != nil {
		return "", err
	}
	return fmt.Sprintf("a call that took %v was late, the connection is kept", late), errors.Join(c.knows(), c.works(ctx))
}

func playFrozen(ctx context.Context, c caller) (string, error) {
	return c.convicts(ctx, func() error { return c.unary(ctx, "Sleep", &Int64Value{Value: 30000}, new(Int64Value)) }, false)
}

// playFull writes more than the socket of a peer takes that does not read.
func playFull(ctx context.Context, c caller) (string, error) {
	return c.convicts(ctx, func() error {
		return c.unary(ctx, "Bytes", &BytesValue{Value: make([]byte, 3<<20)}, new(BytesValue))
	}, true)
}

func (c caller) convicts(ctx context.Context, call func() error, notReading bool) (string, error) {
	if err := errors.Join(c.works(ctx), c.knows()); err != nil {
		return "", err
	}
	fmt.Println("go")
	// It is stopped meanwhile, and before the next PING: one that is written ahead of a large call is
	// judged by its silence, and as late.
	time.Sleep(50 * time.Millisecond)
	begin := time.Now()
	if err := call(); err == nil {
		return "", errors.New("a peer that is stopped has answered")
	}
	took := time.Since(begin)
	var verdict *keepalive.PingTimeoutError
	if !errors.As(c.conn.Err(), &verdict) || verdict.NotReading != notReading {
		return "", fmt.Errorf("the connection ended with %v", c.conn.Err())
	}
	return fmt.Sprintf("found after %d ms: %v", took.Milliseconds(), verdict), nil
}

func playDead(ctx context.Context, c caller) (string, error) {
	if err := errors.Join(c.works(ctx), c.knows()); err != nil {
		return "", err
	}
	fmt.Println("go")
	begin := time.Now()
	if err := c.unary(ctx, "Sleep", &Int64Value{Value: 30000}, new(Int64Value)); err == nil {
		return "", errors.New("a peer that is gone has answered")
	}
	if errors.Is(c.conn.Err(), keepalive.ErrPingTimeout) {
		return "", fmt.Errorf("it ended with %v", c.conn.Err())
	}
	return fmt.Sprintf("found after %d ms: %v", time.Since(begin).Milliseconds(), c.conn.Err()), nil
}

// playHold stays connected until it is ended.
func playHold(ctx context.Context, c caller) (string, error) {
	if err := c.works(ctx); err != nil {
		return "", err
	}
	fmt.Println("go")
	time.Sleep(time.Minute)
	return "", errors.New("it was not ended")
}

// playReads makes a late call to a peer that knows no PING and lives.
func playReads(ctx context.Context, c caller) (string, error) {
	if err := c.works(ctx); err != nil {
		return "", err
	}
	// Some servers have timers of their own, whose DEADLINE_EXCEEDED may come before the deadline.
	return c.judges(ctx, keepalive.VerdictReads, keepalive.VerdictSlow)
}

// playUnread makes one to such a peer that is stopped.
func playUnread(ctx context.Context, c caller) (string, error) {
	if err := c.works(ctx); err != nil {
		return "", err
	}
	fmt.Println("go")
	time.Sleep(500 * time.Millisecond) // It is stopped meanwhile.
	return c.judges(ctx, keepalive.VerdictNotReading)
}

// playVerdicts makes late calls as the table of docs/judging.md has them, to a peer that knows no PING, and
// says what came of them. It says "go" when its peer is to be stopped, and when it is to go on.
func playVerdicts(ctx context.Context, c caller) (string, error) {
	if err := c.works(ctx); err != nil {
		return "", err
	}
	cells := []string{c.verdicts(ctx, 1), c.verdicts(ctx, 64)}
	within := make(chan string, 1)
	go func() { within <- c.verdicts(ctx, 1) }()
	time.Sleep(250 * time.Millisecond)
	fmt.Println("go")
	cells = append(cells, <-within)
	fmt.Println("go")
	if err := c.works(ctx); err != nil {
		return "", err
	}
	fmt.Println("go")
	time.Sleep(500 * time.Millisecond) // It is stopped meanwhile.
	cells = append(cells, c.verdicts(ctx, 1))
	fmt.Println("go")
	return strings.Join(cells, " | "), c.works(ctx)
}

// verdicts makes so many late calls at one time, and says what is said of their peer, each thing once.
func (c caller) verdicts(ctx context.Context, calls int) string {
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	told := make(chan string)
	for range calls {
		go func() {
			err := c.conn.Judge(limited, func(ctx context.Context) error {
				return c.unary(ctx, "Sleep", &Int64Value{Value: 3000}, new(Int64Value))
			})
			told <- verdict(err)
		}()
	}
	var all []string
	for range calls {
		all = append(all, <-told)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

func verdict(err error) string {
	var late *keepalive.LateError
	if !errors.As(err, &late) {
		return fmt.Sprint(err)
	}
	switch late.Verdict {
	case keepalive.VerdictReads:
		return "reads"
	case keepalive.VerdictNotReading:
		return "not reading"
	case keepalive.VerdictLocalStall:
		return "local stall"
	}
	return late.Verdict.String()
}

func (c caller) judges(ctx context.Context, expected ...keepalive.Verdict) (string, error) {
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := c.conn.Judge(limited, func(ctx context.Context) error {
		return c.unary(ctx, "Sleep", &Int64Value{Value: 3000}, new(Int64Value))
	})
	if slices.Contains(expected, keepalive.VerdictSlow) && status.Code(err) == codes.DeadlineExceeded {
		return err.Error(), c.conn.Err()
	}
	var late *keepalive.LateError
	if !errors.As(err, &late) || !slices.Contains(expected, late.Verdict) || !errors.Is(err, context.DeadlineExceeded) {
		return "", fmt.Errorf("the late call: %v", err)
	}
	return late.Error(), c.conn.Err()
}
