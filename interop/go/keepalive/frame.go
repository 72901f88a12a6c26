package keepalive

import "encoding/binary"

const (
	headerLength = 10

	// A header with this length or more ends the connection (KA-5).
	lengthLimit = 1 << 28
	// A PING or PONG with more is skipped (KA-13).
	maxEcho = 64

	// The stream id of a PING; of no call (KA-9, KA-30).
	pingStreamID = 0xFFFF_FFFF
)

const (
	typeRequest  = 0x01
	typeResponse = 0x02
	typeData     = 0x03
	typePing     = 0x04
	typePong     = 0x05
)

const flagHandlersStalled = 0x01

type header [headerLength]byte

func (h *header) length() uint32   { return binary.BigEndian.Uint32(h[0:4]) }
func (h *header) streamID() uint32 { return binary.BigEndian.Uint32(h[4:8]) }
func (h *header) kind() byte       { return h[8] }
func (h *header) flags() byte      { return h[9] }

// frame is a control frame: a PING or a PONG with its whole payload.
type frame struct {
	bytes [headerLength + maxEcho]byte
	size  int
}

func newFrame(kind byte, streamID uint32, payload []byte) frame {
	var f frame
	binary.BigEndian.PutUint32(f.bytes[0:4], uint32(len(payload)))
	binary.BigEndian.PutUint32(f.bytes[4:8], streamID)
	f.bytes[8] = kind
	f.size = headerLength + copy(f.bytes[headerLength:], payload)
	return f
}

func newPing(number uint64) frame {
	return newFrame(typePing, pingStreamID, binary.BigEndian.AppendUint64(nil, number))
}

func (f *frame) encoded() []byte { return f.bytes[:f.size] }

// scanner finds where frames begin and end in a stream of bytes. Its memory is one header.
type scanner struct {
	header header
	have   int    // bytes of the header that were seen; 0 between frames
	left   uint32 // bytes of the payload that were not
}

// between says that no frame has begun that has not ended.
func (s *scanner) between() bool { return s.have == 0 }

// span is how many of these bytes belong to the frame they begin or continue.
func (s *scanner) span(p []byte) int {
	if s.have == headerLength {
		return int(min(uint64(s.left), uint64(len(p))))
	}
	head := s.header
	missing := headerLength - s.have
	if copy(head[s.have:], p) < missing {
		return len(p)
	}
	return int(min(uint64(missing)+uint64(head.length()), uint64(len(p))))
}

type part int

const (
	inHeader part = iota
	endOfHeader
	inPayload
)

// advance takes bytes up to the end of a header or of a payload, and says how many it took and of
// which part of a frame they were.
func (s *scanner) advance(p []byte) (taken int, of part) {
	if s.have == headerLength {
		taken = int(min(uint64(s.left), uint64(len(p))))
		s.left -= uint32(taken)
		if s.left == 0 {
			s.have = 0
		}
		return taken, inPayload
	}
	taken = copy(s.header[s.have:], p)
	s.have += taken
	if s.have < headerLength {
		return taken, inHeader
	}
	s.left = s.header.length()
	if s.left == 0 {
		s.have = 0
	}
	return taken, endOfHeader
}

// follow takes all of these bytes.
func (s *scanner) follow(p []byte) {
	for len(p) > 0 {
		n, _ := s.advance(p)
		p = p[n:]
	}
}
