package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding/gzip"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// freeCallInflation is how much a message of gRPC may inflate to, whatever its
// ratio. It is less than a body may, for many of them inflate at once.
const freeCallInflation = 64 << 10

// A callGzip inflates the messages of one server. That of gRPC itself looks at
// how much comes out, and not at how little went in.
type callGzip struct{ door *Door }

// Type implements grpc.Decompressor.
func (callGzip) Type() string { return gzip.Name }

// Do implements grpc.Decompressor.
func (z callGzip) Do(r io.Reader) ([]byte, error) {
	wire, ok := r.(remainder)
	if !ok {
		return nil, fmt.Errorf("inflate gzip: a message in a %T, which does not tell its length", r)
	}
	unzip := z.door.pools.getGzip()
	defer z.door.pools.putGzip(unzip)
	m := &messageInflater{wire: wire, length: wire.Remaining(), plain: unzip, inflated: z.door.config.messageInflation()}
	if err := unzip.Reset(r); err != nil {
		return nil, fmt.Errorf("read gzip head: %w", err)
	}
	var out bytes.Buffer
	out.Grow(int(min(m.inflated.most, 4*int64(m.length))) + bytes.MinRead)
	_, err := io.Copy(&out, m)
	switch {
	case errors.Is(err, errTooMuch):
		return z.door.bomb[:], nil
	case err != nil:
		return nil, fmt.Errorf("inflate gzip: %w", err)
	}
	return out.Bytes(), nil
}

// messageInflation bounds a message of gRPC.
func (c *Config) messageInflation() inflation {
	return inflation{free: freeCallInflation, ratio: c.MaxInflateRatio, most: roomForTooBig * c.MaxBodyBytes}
}

// errTooMuch ends the reading of what inflates to more than it may.
var errTooMuch = errors.New("inflates to more than it may")

// A remainder knows how much of it is not read yet, as gRPC's messages do.
type remainder interface{ Remaining() int }

// A messageInflater reads a message, inflated and limited.
type messageInflater struct {
	wire     remainder
	length   int // of wire at first
	plain    io.Reader
	inflated inflation
}

// Read implements io.Reader.
func (m *messageInflater) Read(p []byte) (int, error) {
	n, err := m.plain.Read(p)
	if !m.inflated.add(n, int64(m.length-m.wire.Remaining())) {
		return 0, errTooMuch
	}
	return n, err
}

// isBomb reports whether these are the bytes that stand for a message which
// inflates to more than it may. An error of Do would end the call with a status
// that clients take for a defect.
func (d *Door) isBomb(data []byte) bool { return len(data) == 1 && &data[0] == &d.bomb[0] }

func errBomb() error {
	return telemetry.Errorf(telemetry.TooLarge, codeRatio,
		"the message inflates to more than it may (--max-inflate-ratio, --max-body-bytes); nothing was taken")
}
