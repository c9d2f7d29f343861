package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Format of a file to replay.
type Format string

// The formats.
const (
	NDJSON       Format = "ndjson" // a reading a line, as for POST /v1/readings
	LineProtocol Format = "line"   // InfluxDB line protocol
)

// ParseFormat returns the format of that name; empty is none.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case NDJSON, LineProtocol, "":
		return f, nil
	}
	return "", fmt.Errorf("format %q is unknown; allowed are ndjson and line, or none to detect it", s)
}

// A Precision is the unit of timestamps in line protocol.
type Precision string

// ParsePrecision returns the precision of that name; empty is none.
func ParsePrecision(s string) (Precision, error) {
	switch s {
	case "", "ns", "us", "ms", "s":
		return Precision(s), nil
	}
	return "", fmt.Errorf("precision %q is unknown; allowed are ns, us, ms and s", s)
}

// guessFormat detects the format from the first line that is not empty.
func guessFormat(line []byte) Format {
	if line = bytes.TrimSpace(line); len(line) > 0 && (line[0] == '{' || line[0] == '[') {
		return NDJSON
	}
	return LineProtocol
}

// A parser decodes lines as a daemon does: it passes each as a request to the daemon's
// HTTP handler, and is the journal behind it.
type parser struct {
	door      *ingest.Door
	handler   http.Handler
	precision Precision
	decoded   []telemetry.Reading // from the last line
}

// noTime is the clock of the handler, and so the time of a reading without one.
var noTime = time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC)

func newParser(precision Precision) (*parser, error) {
	p := &parser{precision: precision}
	var err error
	p.door, err = ingest.New(ingest.Config{
		Streams: []ingest.Stream{{Name: "replay", Storage: "memory", Granularity: time.Hour}}, DefaultStream: "replay",
		Acks: []telemetry.Ack{telemetry.Journaled}, MinTime: time.Unix(0, 0), Now: func() time.Time { return noTime },
	}, p)
	if err != nil {
		return nil, fmt.Errorf("set up the decoders: %w", err)
	}
	p.handler = p.door.Handler()
	return p, nil
}

func (p *parser) close() {
	p.door.Stop()
	p.door.Wait()
}

// Append implements ingest.Journal.
func (p *parser) Append(_ context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	for i := range b.Len() {
		p.decoded = append(p.decoded, b.Reading(uint32(i)))
	}
	return batch.Receipt{Ack: r.Want}, nil
}

// Repeat implements ingest.Journal.
func (*parser) Repeat(context.Context, batch.Request) (batch.Receipt, error) {
	return batch.Receipt{}, nil
}

// parse returns the reading in a line, or what is wrong with it.
func (p *parser) parse(f Format, line []byte) (telemetry.Reading, error) {
	url := "/v1/readings"
	if f == LineProtocol {
		url = "/write?precision=ns"
		if p.precision != "" {
			url = "/write?precision=" + string(p.precision)
		}
	}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(line))
	if err != nil {
		return telemetry.Reading{}, err
	}
	r.Header.Set("Content-Type", "application/x-ndjson") // ignored for line protocol
	p.decoded = p.decoded[:0]
	w := answer{header: make(http.Header)}
	p.handler.ServeHTTP(&w, r)
	if w.status >= http.StatusBadRequest || len(p.decoded) != 1 {
		return telemetry.Reading{}, w.problem(len(p.decoded))
	}
	switch reading := p.decoded[0]; {
	case reading.Time.Equal(noTime):
		return reading, errors.New("the reading has no ts, which says when it is due")
	case f == LineProtocol && p.precision == "" && reading.Time.Year() == 1970:
		return reading, fmt.Errorf("the timestamp is %s if it is in nanoseconds; name its unit: us, ms or s (ns if that is right)", reading.Time.UTC().Format(time.RFC3339))
	default:
		return reading, nil
	}
}

// An answer is that of the handler.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// problem says why there is not one reading in a line.
func (a *answer) problem(readings int) error {
	var problem struct {
		Code, Message string
		Errors        []struct{ Code, Message string }
	}
	switch err := json.Unmarshal(a.body.Bytes(), &problem); {
	case err == nil && len(problem.Errors) > 0:
		return fmt.Errorf("%s: %s", problem.Errors[0].Code, problem.Errors[0].Message)
	case err == nil && problem.Message != "":
		return fmt.Errorf("%s: %s", problem.Code, problem.Message)
	}
	return fmt.Errorf("it has %d readings; allowed is one a line", readings)
}
