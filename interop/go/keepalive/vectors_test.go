package keepalive

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// vector is an entry of interop/vectors; README.md there says what the keys mean.
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

func vectors(t testing.TB) map[string]vector {
	files, err := filepath.Glob("../../vectors/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	all := map[string]vector{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var entries []vector
		if err := json.Unmarshal(text, &entries); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, entry := range entries {
			all[strings.TrimSuffix(filepath.Base(file), ".json")+"/"+entry.Name] = entry
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
