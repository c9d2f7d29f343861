package ingest

import (
	"bytes"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding/gzip"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// freeCallInflation is how much a message of gRPC may inflate to, whatever its
// ratio. It is less than a body may, for many of them inflate at once.
const freeCallInflation = 64 << 10

// inflatesTo returns the most that a compressed message of this length may
// become.
func (c *Config) inflatesTo(length int64) int64 {
	return min(max(freeCallInflation, length*c.MaxInflateRatio), roomForTooBig*c.MaxBodyBytes)
}

// A callGzip inflates the messages of one server. That of gRPC itself looks at
// how much comes out, and not at how little went in.
type callGzip struct{ door *Door }

// Type implements grpc.Decompressor.
func (callGzip) Type() string { return gzip.Name }

// Do implements grpc.Decompressor.
func (z callGzip) Do(r io.Reader) ([]byte, error) {
	length := int64(0)
	if sized, ok := r.(interface{ Remaining() int }); ok {
		length = int64(sized.Remaining())
	}
	most := z.door.config.inflatesTo(length)
	unzip := z.door.pools.getGzip()
	defer z.door.pools.putGzip(unzip)
	if err := unzip.Reset(r); err != nil {
		return nil, fmt.Errorf("read gzip head: %w", err)
	}
	var out bytes.Buffer
	out.Grow(int(min(most, 4*length)) + bytes.MinRead)
	n, err := io.Copy(&out, io.LimitReader(unzip, most+1))
	if err != nil {
		return nil, fmt.Errorf("inflate gzip: %w", err)
	}
	if n > most {
		return z.door.bomb[:], nil
	}
	return out.Bytes(), nil
}

// isBomb reports whether these are the bytes that stand for a message which
// inflates to more than it may. An error of Do would end the call with a status
// that clients take for a defect.
func (d *Door) isBomb(data []byte) bool { return len(data) == 1 && &data[0] == &d.bomb[0] }

func errBomb() error {
	return telemetry.Errorf(telemetry.TooLarge, codeRatio,
		"the message inflates to more than it may (--max-inflate-ratio, --max-body-bytes); nothing was taken")
}
