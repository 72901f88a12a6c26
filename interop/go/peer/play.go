//go:build !ttrpc1.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"ttrpc-keepalive/interop/keepalive"
)

// maxMessage is the largest payload of a frame.
const maxMessage = 4 << 20

// caller is the client of a scenario, and its connection if that is wrapped.
type caller struct {
	*ttrpc.Client
	conn *keepalive.Conn
}

// A scenario yields what it has shown.
type scenario func(context.Context, caller) (string, error)

var scenarios = map[string]scenario{
	"unary":         playUnary,
	"client-stream": playClientStream,
	"server-stream": playServerStream,
	"bidi-stream":   playBidi,
	"metadata":      playMetadata,
	"timeout":       playTimeout,
	"errors":        playErrors,
	"oversize":      playOversize,
	"many":          playMany,
	"shutdown":      playShutdown,
	"late":          playLate,
	"alive":         playAlive,
	"slow":          playSlow,
	"frozen":        playFrozen,
	"full":          playFull,
	"dead":          playDead,
	"hold":          playHold,
	"reads":         playReads,
	"unread":        playUnread,
	"verdicts":      playVerdicts,
}

func play(address, name string) error {
	scenario, ok := scenarios[name]
	if !ok {
		return fmt.Errorf("no scenario %q", name)
	}
	client, conn, err := connect(address)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	shown, err := scenario(ctx, caller{client, conn})
	if err != nil {
		return err
	}
	fmt.Println("ok", shown)
	return nil
}

func (c caller) unary(ctx context.Context, method string, request, reply any) error {
	return c.Call(ctx, service, method, request, reply)
}

// works says that the connection still carries calls.
func (c caller) works(ctx context.Context) error {
	if text, err := say(ctx, c.Client, "still there"); err != nil || text != "still there" {
		return fmt.Errorf("a call afterwards: %q, %v", text, err)
	}
	return nil
}

func playUnary(ctx context.Context, c caller) (string, error) {
	for _, text := range []string{"", "hello", strings.Repeat("x", 1<<20)} {
		if got, err := say(ctx, c.Client, text); err != nil || got != text {
			return "", fmt.Errorf("%d bytes: %v", len(text), err)
		}
	}
	return "messages of 0 B, 5 B and 1 MiB came back", nil
}

func playClientStream(ctx context.Context, c caller) (string, error) {
	stream, err := c.NewStream(ctx, &ttrpc.StreamDesc{StreamingClient: true}, streams, "Sum", nil)
	if err != nil {
		return "", err
	}
	for i := range int64(1000) {
		if err := stream.SendMsg(&Int64Value{Value: i}); err != nil {
			return "", err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	sum := new(Int64Value)
	if err := stream.RecvMsg(sum); err != nil || sum.Value != 499500 {
		return "", fmt.Errorf("sum %d, %v", sum.Value, err)
	}
	return "1,000 messages summed up", nil
}

func playServerStream(ctx context.Context, c caller) (string, error) {
	if err := countTo(ctx, c.Client, 1000); err != nil {
		return "", err
	}
	if err := countTo(ctx, c.Client, 0); err != nil {
		return "", fmt.Errorf("none: %w", err)
	}
	return "1,000 messages in order, and none", nil
}

func playBidi(ctx context.Context, c caller) (string, error) {
	stream, err := c.NewStream(ctx, &ttrpc.StreamDesc{StreamingClient: true, StreamingServer: true}, streams, "Chat", nil)
	if err != nil {
		return "", err
	}
	texts := []string{"", "one", strings.Repeat("x", 1<<20)}
	for i := range 300 {
		text := texts[i%len(texts)]
		if err := stream.SendMsg(&StringValue{Value: text}); err != nil {
			return "", err
		}
		reply := new(StringValue)
		if err := stream.RecvMsg(reply); err != nil || reply.Value != text {
			return "", fmt.Errorf("message %d: %d bytes, %v", i, len(reply.Value), err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	if err := stream.RecvMsg(new(StringValue)); !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("the end is %v", err)
	}
	return "300 messages to and fro, empty ones too", nil
}

func playMetadata(ctx context.Context, c caller) (string, error) {
	metadata := ttrpc.MD{}
	metadata.Append("zone", "one", "two", "")
	metadata.Append("other", "three")
	reply := new(StringValue)
	err := c.unary(ttrpc.WithMetadata(ctx, metadata), "Metadata", &StringValue{Value: "zone"}, reply)
	if err != nil || reply.Value != "one,two," {
		return "", fmt.Errorf("%q, %v", reply.Value, err)
	}
	return "three values of one key in order", nil
}

func playTimeout(ctx context.Context, c caller) (string, error) {
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	left := new(Int64Value)
	if err := c.unary(limited, "Remaining", new(StringValue), left); err != nil {
		return "", err
	}
	if d := time.Duration(left.Value); d < 25*time.Second || d > 30*time.Second {
		return "", fmt.Errorf("of 30 s the handler sees %v", d)
	}
	if err := c.unary(context.Background(), "Remaining", new(StringValue), left); err != nil || left.Value != 0 {
		return "", fmt.Errorf("without a deadline the handler sees %d, %v", left.Value, err)
	}
	expired, cancel := context.WithTimeout(ctx, -time.Second)
	defer cancel()
	if err := c.unary(expired, "Remaining", new(StringValue), left); !deadline(err) {
		return "", fmt.Errorf("expired: %v", err)
	}
	return "the handler sees what is left; an expired call ends so", c.works(ctx)
}

func deadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

func playErrors(ctx context.Context, c caller) (string, error) {
	for code := range int64(17) {
		if code == 0 {
			code = 999
		}
		err := c.unary(ctx, "Fail", &Int64Value{Value: code}, new(StringValue))
		got, ok := status.FromError(err)
		if !ok || got.Code() != codes.Code(code) || got.Message() != fmt.Sprintf("failed with %d", code) {
			return "", fmt.Errorf("code %d: %v", code, err)
		}
		detail := new(StringValue)
		if details := got.Proto().GetDetails(); len(details) != 1 || details[0].UnmarshalTo(detail) != nil || detail.Value != "detail" {
			return "", fmt.Errorf("details of code %d: %v", code, details)
		}
	}
	if err := c.Call(ctx, service, "Nothing", new(StringValue), new(StringValue)); status.Code(err) != codes.Unimplemented {
		return "", fmt.Errorf("no such method: %v", err)
	}
	if err := c.Call(ctx, "interop.Nothing", "Say", new(StringValue), new(StringValue)); status.Code(err) != codes.Unimplemented {
		return "", fmt.Errorf("no such service: %v", err)
	}
	stream, err := c.NewStream(ctx, &ttrpc.StreamDesc{StreamingClient: true, StreamingServer: true}, streams, "Chat", nil)
	if err != nil {
		return "", err
	}
	if err := stream.SendMsg(&StringValue{Value: "fail"}); err != nil {
		return "", err
	}
	if err := stream.RecvMsg(new(StringValue)); status.Code(err) != codes.Aborted {
		return "", fmt.Errorf("a stream that fails: %v", err)
	}
	return "codes 1 to 16 and 999 with text and detail, UNIMPLEMENTED twice, and a stream's", c.works(ctx)
}

// playOversize is played by a version that refuses to send too much, and by one that does not.
func playOversize(ctx context.Context, c caller) (string, error) {
	// A BytesValue of this size has five bytes before it, and the envelope some 40.
	reply := new(BytesValue)
	largest := maxMessage - 40
	if err := c.unary(ctx, "Bytes", &BytesValue{Value: make([]byte, largest)}, reply); err != nil || len(reply.Value) != largest {
		return "", fmt.Errorf("%d bytes: %v", largest, err)
	}
	if err := c.unary(ctx, "Bytes", &BytesValue{Value: make([]byte, maxMessage+1)}, reply); status.Code(err) != codes.ResourceExhausted {
		return "", fmt.Errorf("too large a request: %v", err)
	}
	if err := c.unary(ctx, "Grow", &Int64Value{Value: maxMessage + 1}, reply); status.Code(err) != codes.ResourceExhausted {
		return "", fmt.Errorf("too large an answer: %v", err)
	}
	return "4 MiB passes, more is RESOURCE_EXHAUSTED both ways", c.works(ctx)
}

func playMany(ctx context.Context, c caller) (string, error) {
	const callers, calls = 64, 1000
	begin := time.Now()
	failures := make(chan error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for j := range calls {
				text := fmt.Sprint(i, " ", j)
				if got, err := say(ctx, c.Client, text); err != nil || got != text {
					failures <- fmt.Errorf("call %s: %q, %v", text, got, err)
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failures:
		return "", err
	default:
		return fmt.Sprintf("64 x 1,000 calls in %.1f s", time.Since(begin).Seconds()), nil
	}
}

// playShutdown says when its call is in flight, for the server to be shut down then. Other calls have
// ended before.
func playShutdown(ctx context.Context, c caller) (string, error) {
	for range 3 {
		if err := c.works(ctx); err != nil {
			return "", err
		}
	}
	ends := make(chan error)
	go func() { ends <- c.unary(ctx, "Sleep", &Int64Value{Value: 900}, new(Int64Value)) }()
	time.Sleep(200 * time.Millisecond)
	if err := c.works(ctx); err != nil {
		return "", err
	}
	fmt.Println("go")
	if err := <-ends; err != nil {
		return "", fmt.Errorf("the call in flight: %w", err)
	}
	return "the call in flight was answered", nil
}

func playLate(ctx context.Context, c caller) (string, error) {
	limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := c.unary(limited, "Sleep", &Int64Value{Value: 400}, new(Int64Value)); !deadline(err) {
		return "", fmt.Errorf("the late call: %v", err)
	}
	for range 6 {
		time.Sleep(100 * time.Millisecond)
		if err := c.works(ctx); err != nil {
			return "", err
		}
	}
	return "a late answer costs its call only", nil
}
