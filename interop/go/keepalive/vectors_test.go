package keepalive

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// vector is an entry of interop/vectors, an exchange; README.md there says what the keys mean.
type vector struct {
	Name      string            `json:"name"`
	Role      string            `json:"role"`
	FramesIn  []string          `json:"frames_in"`
	Decoded   []decoded         `json:"decoded"`
	FramesOut []json.RawMessage `json:"frames_out"`
	Ends      bool              `json:"ends"`
}

type decoded struct {
	Type          any    `json:"type"`
	StreamID      uint32 `json:"stream_id"`
	Length        int    `json:"length"`
	ProtocolError bool   `json:"protocol_error"`
}

// script is an entry of interop/vectors/scripts.
type script struct {
	Name      string   `json:"name"`
	Role      string   `json:"role"`
	Needs     []string `json:"needs"`
	Keepalive *struct {
		Interval time.Duration `json:"interval_ms"`
		Timeout  time.Duration `json:"timeout_ms"`
	} `json:"keepalive"`
	Steps []map[string]json.RawMessage `json:"steps"`
	Knows json.RawMessage              `json:"knows"`
}

// vectorBytes reads hexadecimal with spaces, and 5a*65 for 65 times 5a.
func vectorBytes(t testing.TB, text string) []byte {
	var all []byte
	for _, token := range strings.Fields(text) {
		digits, count, repeated := strings.Cut(token, "*")
		once, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		times := 1
		if repeated {
			if times, err = strconv.Atoi(count); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, bytes.Repeat(once, times)...)
	}
	return all
}

func vectors(t testing.TB) map[string]vector { return entries[vector](t, "../../vectors") }

// entries reads the files of a folder.
func entries[T any](t testing.TB, folder string) map[string]T {
	files, err := filepath.Glob(folder + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	all := map[string]T{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var entries []T
		var names []struct{ Name string }
		if err := errors.Join(json.Unmarshal(text, &entries), json.Unmarshal(text, &names)); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i, entry := range entries {
			all[strings.TrimSuffix(filepath.Base(file), ".json")+"/"+names[i].Name] = entry
		}
	}
	return all
}

// passed is what of a vector reaches the wrapped side: frames of ttrpc 1.2, and none on the id of
// PINGs that a client has no call on.
func (v *vector) passed(t testing.TB, in []byte) []byte {
	var passed []byte
	for _, frame := range v.Decoded {
		if frame.ProtocolError {
			break
		}
		whole := headerLength + frame.Length
		refusal := v.Role == "client" && frame.Type == "RESPONSE" && frame.StreamID == pingStreamID
		switch frame.Type {
		case "REQUEST", "RESPONSE", "DATA":
			if !refusal {
				passed = append(passed, in[:whole]...)
			}
		}
		in = in[whole:]
	}
	return passed
}

// Of what a peer answers to a vector, the PONGs are this side's, and so is the end of the connection;
// the rest is for the wrapped side, which must see every byte of it and of nothing else.
func TestVectors(t *testing.T) {
	for name, vector := range vectors(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playVector(t, &vector) })
		})
	}
}

func playVector(t *testing.T, vector *vector) {
	wrap := Server
	if vector.Role == "client" {
		wrap = Client
	}
	// What is to be read is read at the end.
	conn, peer := pair(t, wrap, Config{ReadBuffer: 16 << 20})
	var in, pongs []byte
	for _, piece := range vector.FramesIn {
		bytes := vectorBytes(t, piece)
		in = append(in, bytes...)
		// After a header that ends the connection nothing more can be written.
		if _, err := peer.conn.Write(bytes); err != nil && !vector.Ends {
			t.Fatal(err)
		}
		pongs = append(pongs, peer.collect(time.Millisecond)...)
	}
	want := vector.passed(t, in)
	got, err := drain(t, conn, time.Millisecond)
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes reach the wrapped side, not %d", len(got), len(want))
	}
	if ended := err != nil; ended != vector.Ends {
		t.Errorf("the connection ends: %v, %v", ended, err)
	}
	if vector.Ends && !(errors.Is(err, ErrProtocol) && errors.Is(conn.Err(), ErrProtocol)) {
		t.Errorf("it ends with %v, %v", err, conn.Err())
	}
	var wanted []byte
	for _, answer := range vector.FramesOut {
		var exact string
		if json.Unmarshal(answer, &exact) != nil {
			continue // one of the wrapped side, or optional
		}
		if frame := vectorBytes(t, exact); frame[8] == typePong {
			wanted = append(wanted, frame...)
		}
	}
	if vector.Name == "two_pings" {
		// It may answer the newest only, and here reads each by itself.
		wanted = append(pong(1), pong(2)...)
	}
	if !bytes.Equal(pongs, wanted) {
		t.Errorf("it answers % x, not % x", pongs, wanted)
	}
	if !vector.Ends {
		peer.send(ping(99))
		peer.expect(pong(99))
	}
}

// Of what a side writes in a script, PINGs and PONGs are the Conn's. REQUESTs are written by the wrapped
// side, which is not there to answer any, nor to open streams.
func TestScripts(t *testing.T) {
	for name, script := range entries[script](t, "../../vectors/scripts") {
		if len(script.Needs) > 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playScript(t, &script) })
		})
	}
}

func playScript(t *testing.T, script *script) {
	wrap, config := Server, Config{ReadBuffer: 16 << 20}
	if script.Role == "client" {
		wrap, config.ReadIdleTimeout = Client, 1000*time.Hour
	}
	if script.Keepalive != nil {
		config.ReadIdleTimeout = script.Keepalive.Interval * time.Millisecond
		config.PingTimeout = script.Keepalive.Timeout * time.Millisecond
	}
	conn, peer := pair(t, wrap, config)
	taken := newTaker(peer.conn)
	begin, at, calls := time.Now(), time.Duration(0), uint32(0)
	var newestPing []byte
	for i, step := range script.Steps {
		for key, value := range step {
			switch key {
			case "call":
				calls++
				startWrite(t, conn, request(2*calls-1))
			case "in":
				peer.send(vectorBytes(t, text(t, value)))
			case "pong":
				echoed := slices.Clone(newestPing)
				echoed[8] = typePong
				peer.send(echoed)
			case "out":
				pings, pongs := taken.controlFrames(t)
				if len(pings) > 0 {
					newestPing = pings[len(pings)-1]
				}
				checkControlFrames(t, i, value, pings, pongs)
			case "after_ms":
				at += time.Duration(number(t, value)) * time.Millisecond
				time.Sleep(time.Until(begin.Add(at)))
			case "blocked":
				taken.block(string(value) == "true")
			case "dead":
				if dead := errors.Is(conn.Err(), ErrPingTimeout); dead != (string(value) == "true") {
					t.Errorf("step %d: dead: %v, %v", i, dead, conn.Err())
				}
			default:
				t.Fatalf("step %d: %s", i, key)
			}
			synctest.Wait()
		}
	}
	knows := map[Support]string{SupportYes: "yes", SupportNo: "no", SupportUnknown: "undecided"}
	if script.Knows != nil && knows[conn.State().Support] != text(t, script.Knows) {
		t.Errorf("support: %v, not %s", conn.State().Support, script.Knows)
	}
}

// checkControlFrames: what stands behind a PING or PONG is the wrapped side's, and does not come.
func checkControlFrames(t *testing.T, step int, listed json.RawMessage, pings, pongs [][]byte) {
	t.Helper()
	var answers []json.RawMessage
	if err := json.Unmarshal(listed, &answers); err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		one := struct {
			Hex      string
			Optional bool
			Ping     bool
			Times    int
		}{}
		if json.Unmarshal(answer, &one) != nil {
			one.Hex = text(t, answer)
		}
		if one.Ping {
			if len(pings) == 0 {
				t.Errorf("step %d: no PING", step)
				return
			}
			if !bytes.Equal(pings[0][:headerLength], raw(typePing, pingStreamID, 0, make([]byte, 8))[:headerLength]) {
				t.Errorf("step %d: not a PING of ours: % x", step, pings[0])
			}
			pings = pings[1:]
		}
		exact := vectorBytes(t, one.Hex)
		if len(exact) == 0 || exact[8] != typePong {
			continue
		}
		for range max(one.Times, 1) {
			if len(pongs) > 0 && bytes.Equal(pongs[0], exact) {
				pongs = pongs[1:]
			} else if !one.Optional {
				t.Errorf("step %d: % x does not come, but % x", step, exact, pongs)
			}
		}
	}
	if len(pings)+len(pongs) > 0 {
		t.Errorf("step %d: also % x, % x", step, pings, pongs)
	}
}

// taker reads what a Conn writes, when it may.
type taker struct {
	conn    net.Conn
	mu      sync.Mutex
	bytes   []byte
	blocked bool
	changed sync.Cond
}

func newTaker(conn net.Conn) *taker {
	k := &taker{conn: conn}
	k.changed.L = &k.mu
	go func() {
		piece := make([]byte, 1<<16)
		for {
			k.mu.Lock()
			for k.blocked {
				k.changed.Wait()
			}
			k.mu.Unlock()
			n, err := conn.Read(piece)
			k.mu.Lock()
			k.bytes = append(k.bytes, piece[:n]...)
			k.mu.Unlock()
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		}
	}()
	return k
}

func (k *taker) block(blocked bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blocked = blocked
	if blocked {
		k.conn.SetReadDeadline(time.Now())
	} else {
		k.conn.SetReadDeadline(time.Time{})
		k.changed.Broadcast()
	}
}

// controlFrames gives the PINGs and PONGs since the last time.
func (k *taker) controlFrames(t *testing.T) (pings, pongs [][]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.bytes) >= headerLength {
		whole := headerLength + int(binary.BigEndian.Uint32(k.bytes))
		if len(k.bytes) < whole {
			t.Fatalf("a frame is cut: % x", k.bytes)
		}
		switch k.bytes[8] {
		case typePing:
			pings = append(pings, k.bytes[:whole])
		case typePong:
			pongs = append(pongs, k.bytes[:whole])
		}
		k.bytes = k.bytes[whole:]
	}
	return pings, pongs
}

func text(t *testing.T, value json.RawMessage) (text string) {
	t.Helper()
	if err := json.Unmarshal(value, &text); err != nil {
		t.Fatal(err)
	}
	return text
}

func number(t *testing.T, value json.RawMessage) (number int64) {
	t.Helper()
	if err := json.Unmarshal(value, &number); err != nil {
		t.Fatal(err)
	}
	return number
}
