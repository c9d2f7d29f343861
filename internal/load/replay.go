package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/klauspost/compress/gzip"

	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// maxLineBytes is the maximum length of a line.
const maxLineBytes = 4 << 20

// A replay provides the readings of a file, in its order and at its own pace: a reading
// is due as long after the first as their timestamps are apart, divided by the
// speed-up. One that is older than a reading before it is due at once. The file is read
// while it is sent.
type replay struct {
	path   string
	file   *os.File
	lines  *bufio.Scanner
	format Format
	parser *parser
	number int // of the last line
	ended  bool
	broken error // why it ended before the end of the file

	batch   int
	speedup float64
	limit   time.Duration // 0: none
	start   time.Time     // of event time; zero: that of the file
	shift   time.Duration // from the file's time to event time

	due         time.Duration // of the last reading
	first       int64         // event time of the first line, ms; -1: none was read
	least, most int64         // event times, ms
	sensors     map[string]struct{}
	begin       atomic.Int64 // first, for the recorder
	scheduled   atomic.Int64 // how long readings are due, or unknownLength
}

const unknownLength = -1

// byteOrderMark at the beginning of a file, by some editors.
const byteOrderMark = "\ufeff"

func openReplay(c *Config) (*replay, error) {
	file, err := os.Open(c.From)
	if err != nil {
		return nil, fmt.Errorf("open the file to replay: %w", err)
	}
	parser, err := newParser(c.FromPrecision)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	r := &replay{
		path: c.From, file: file, format: c.FromFormat, parser: parser,
		batch: c.Batch, speedup: c.Speedup, limit: c.Duration, start: c.Start, first: -1, sensors: make(map[string]struct{}),
	}
	r.scheduled.Store(unknownLength)
	content := bufio.NewReader(file)
	if magic, err := content.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(content)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("unzip %s: %w", c.From, err), r.close())
		}
		content = bufio.NewReader(unzipped)
	}
	if mark, err := content.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
		_, _ = content.Discard(len(byteOrderMark)) // was peeked
	}
	r.lines = bufio.NewScanner(content)
	r.lines.Buffer(make([]byte, 64<<10), maxLineBytes+len("\r\n"))
	return r, nil
}

// next returns the next readings, as many as are in a batch.
func (r *replay) next() (job, bool, error) {
	var j job
	for len(j.lines) < r.batch && !r.ended {
		reading, more, err := r.read()
		if err != nil || !more {
			r.end(r.due)
			r.broken = err // returned after the readings before it
			break
		}
		if !r.take(&reading) {
			r.end(r.limit)
			break
		}
		if j.lines == nil {
			j.lines = make([]telemetry.Reading, 0, r.batch)
		}
		j.lines = append(j.lines, reading)
		j.bytes += footprint(&reading)
		j.due = r.due
	}
	if r.ended && len(j.lines) == 0 {
		if r.broken == nil && r.first < 0 {
			return job{}, false, fmt.Errorf("%s has no readings", r.path)
		}
		return job{}, false, r.broken
	}
	j.count = len(j.lines)
	return j, true, nil
}

func (r *replay) end(length time.Duration) {
	r.ended = true
	r.scheduled.Store(int64(length))
}

// footprint estimates the memory of a reading. Names and tags, which are shared, are
// not counted.
func footprint(r *telemetry.Reading) int64 {
	bytes := int64(unsafe.Sizeof(*r)) + int64(cap(r.Fields))*int64(unsafe.Sizeof(telemetry.Field{})) + int64(cap(r.Tags))*int64(unsafe.Sizeof(telemetry.Tag{}))
	for i := range r.Fields {
		if v := r.Fields[i].Value; v.Kind() == telemetry.Text {
			bytes += int64(len(v.Text()))
		}
	}
	return bytes
}

// take moves a reading to event time and computes when it is due; false: after the run.
func (r *replay) take(reading *telemetry.Reading) bool {
	if r.first < 0 {
		if !r.start.IsZero() {
			r.shift = r.start.Sub(reading.Time)
		}
		r.first = max(reading.Time.Add(r.shift).UnixMilli(), 0)
		r.begin.Store(r.first)
		r.least = r.first
	}
	reading.Time = reading.Time.Add(r.shift)
	ms := reading.Time.UnixMilli()
	due := max(toDuration(float64(ms-r.first)/1000/r.speedup), r.due)
	if r.limit > 0 && due >= r.limit {
		return false
	}
	r.due, r.least, r.most = due, min(r.least, max(ms, 0)), max(r.most, ms)
	r.sensors[reading.Sensor] = struct{}{}
	return true
}

// read returns the reading in the next line that has one.
func (r *replay) read() (telemetry.Reading, bool, error) {
	for r.lines.Scan() {
		r.number++
		line := bytes.TrimSpace(r.lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if r.format == "" && line[0] != '#' {
			r.format = guessFormat(line)
		}
		if r.format != NDJSON && line[0] == '#' { // a comment
			continue
		}
		reading, err := r.parser.parse(r.format, r.lines.Bytes())
		if err != nil {
			return reading, false, fmt.Errorf("%s line %d: %w", r.path, r.number, err)
		}
		return reading, true, nil
	}
	err := r.lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		err = fmt.Errorf("%s line %d: it is longer than %d bytes", r.path, r.number+1, maxLineBytes)
	case err != nil:
		err = fmt.Errorf("read %s at line %d: %w", r.path, r.number+1, err)
	}
	return telemetry.Reading{}, false, err
}

func (*replay) fill(j *job, _ *scratch) []telemetry.Reading { return j.lines }

func (r *replay) length() (time.Duration, bool) {
	if scheduled := r.scheduled.Load(); scheduled != unknownLength {
		return time.Duration(scheduled), true
	}
	return r.limit, r.limit > 0
}

func (r *replay) eventAt(elapsed time.Duration) int64 {
	return r.begin.Load() + int64(elapsed.Seconds()*1000*r.speedup)
}

func (*replay) rateAt(time.Duration) float64 { return -1 }

func (r *replay) describe(to *Setup) {
	to.Sensors = len(r.sensors)
	if r.first >= 0 {
		to.EventStart, to.EventEnd = time.UnixMilli(r.least).UTC(), time.UnixMilli(r.most).UTC()
	}
	to.IntervalSeconds, to.Fields = 0, 0
}

func (r *replay) close() error {
	if err := r.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", r.path, err)
	}
	return nil
}

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
	return "", fmt.Errorf("format %q is unknown; allowed: ndjson and line, or none to detect it", s)
}

// A Precision is the unit of timestamps in line protocol.
type Precision string

// ParsePrecision returns the precision of that name; empty is none.
func ParsePrecision(s string) (Precision, error) {
	switch s {
	case "", "ns", "us", "ms", "s":
		return Precision(s), nil
	}
	return "", fmt.Errorf("precision %q is unknown; allowed: ns, us, ms and s", s)
}

// guessFormat detects the format from the first line that is not blank.
func guessFormat(line []byte) Format {
	if line[0] == '{' || line[0] == '[' {
		return NDJSON
	}
	return LineProtocol
}

// A parser decodes lines as a daemon does.
type parser struct {
	server    *ingest.Server
	precision Precision
}

// noTime stands for a missing time.
var noTime = time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // it never changes

func newParser(precision Precision) (*parser, error) {
	server, err := ingest.New(ingest.Config{
		Streams: []ingest.Stream{{Name: "replay"}}, DefaultStream: "replay",
		Acks: []telemetry.Ack{telemetry.Journaled}, MinTime: time.Unix(0, 0), Now: func() time.Time { return noTime },
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("set up the decoders: %w", err)
	}
	return &parser{server: server, precision: precision}, nil
}

// parse returns the reading in a line, or an error if there is not exactly one.
func (p *parser) parse(f Format, line []byte) (telemetry.Reading, error) {
	decode := p.server.ParseNDJSON
	if f == LineProtocol {
		decode = func(line []byte) ([]telemetry.Reading, error) { return p.server.ParseLines(line, string(p.precision)) }
	}
	decoded, err := decode(line)
	switch {
	case err != nil:
		return telemetry.Reading{}, err
	case len(decoded) != 1:
		return telemetry.Reading{}, fmt.Errorf("it has %d readings; allowed: one per line", len(decoded))
	}
	switch reading := decoded[0]; {
	case reading.Time.Equal(noTime):
		return reading, errors.New("the reading has no ts, which says when it is due")
	case f == LineProtocol && p.precision == "" && reading.Time.Year() == 1970:
		return reading, fmt.Errorf("the timestamp is %s if it is in nanoseconds; name its unit: us, ms or s (ns if that is right)", reading.Time.UTC().Format(time.RFC3339))
	default:
		return reading, nil
	}
}
