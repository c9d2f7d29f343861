package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Span says which readings are asked for: those with From <= Time < To, to the
// millisecond. What is zero is not a bound.
type Span struct {
	Stream   string // empty: that of the Config
	From, To time.Time
}

// ErrNoReading is returned by Latest for a sensor without readings.
var ErrNoReading = errors.New("the sensor has no readings")

const (
	pageReadings = 10_000
	maxLine      = 4 << 20 // of a reading in NDJSON; 256 fields of 1 KiB, escaped, are less
)

// Readings returns the readings of a sensor in time order, also those that are
// acknowledged and not stored yet, in pages of 10,000. An error ends them; readings
// before it are good. It asks the daemons of a client that speaks HTTP.
func (c *Client) Readings(ctx context.Context, sensor string, span Span) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		query := c.query(span)
		query.Set("limit", strconv.Itoa(pageReadings))
		for {
			after, more, err := c.page(ctx, sensor, query, func(r telemetry.Reading) bool { return yield(r, nil) })
			if err != nil {
				yield(telemetry.Reading{}, fmt.Errorf("read readings: %w", err))
				return
			}
			if !more {
				return
			}
			query.Set("after", after)
		}
	}
}

// page asks for one page; more tells whether there is another, which after begins.
func (c *Client) page(ctx context.Context, sensor string, query url.Values, yield func(telemetry.Reading) bool) (after string, more bool, err error) {
	err = c.ask(ctx, sensor, "readings", query, func(resp *http.Response) error {
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(make([]byte, 0, 64<<10), maxLine)
		for lines.Scan() {
			r, err := parseLine(lines.Bytes())
			if err != nil {
				return err
			}
			if !yield(r) {
				return nil
			}
		}
		if err := lines.Err(); err != nil {
			return err
		}
		after = resp.Trailer.Get("Brim-After")
		if after == "" {
			after = resp.Header.Get("Brim-After")
		}
		more = after != ""
		return nil
	})
	return after, more, err
}

// Latest returns the newest reading of a sensor, or ErrNoReading. stream may be
// empty, which is that of the Config.
func (c *Client) Latest(ctx context.Context, sensor, stream string) (telemetry.Reading, error) {
	var r telemetry.Reading
	err := c.ask(ctx, sensor, "latest", c.query(Span{Stream: stream}), func(resp *http.Response) (err error) {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxLine))
		if err != nil {
			return err
		}
		r, err = parseReading(body)
		return err
	})
	var known *telemetry.Error
	if errors.As(err, &known) && known.Code == "sensor_unknown" {
		return telemetry.Reading{}, ErrNoReading
	}
	if err != nil {
		return telemetry.Reading{}, fmt.Errorf("read latest reading: %w", err)
	}
	return r, nil
}

// A Step is a summary of the readings of some time.
type Step struct {
	Start  time.Time
	Count  int64 // readings
	Fields map[string]StepField
}

// A StepField is of one field's numbers.
type StepField struct {
	N        int64           // readings in which it is a number
	Min, Max telemetry.Value // as they came
	Mean     float64         // NaN where the sum does not fit a double
}

// Summary returns a step for each time of that length which has readings, aligned
// to the epoch; 0: one step for all of the span. There are 10,000 steps at most.
func (c *Client) Summary(ctx context.Context, sensor string, span Span, every time.Duration) ([]Step, error) {
	query := c.query(span)
	if every > 0 {
		query.Set("every", every.String())
	}
	var steps []Step
	err := c.ask(ctx, sensor, "summary", query, func(resp *http.Response) error {
		d := json.NewDecoder(resp.Body)
		for {
			step, err := decodeStep(d)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			steps = append(steps, step)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read summary: %w", err)
	}
	return steps, nil
}

// query returns the parameters of a span.
func (c *Client) query(span Span) url.Values {
	query := url.Values{}
	stream := span.Stream
	if stream == "" {
		stream = c.config.Stream
	}
	if stream != "" {
		query.Set("stream", stream)
	}
	if !span.From.IsZero() {
		query.Set("from", millis(span.From))
	}
	if !span.To.IsZero() {
		query.Set("to", millis(span.To))
	}
	return query
}

// ask asks about a sensor, again where that makes sense, and lets read have the
// answer. What read returns is final. The head of an answer comes within the time
// of an attempt; the rest may be long. Close does not wait for read, which may call
// it, but ends the answer.
func (c *Client) ask(ctx context.Context, sensor, what string, query url.Values, read func(*http.Response) error) error {
	t, ok := c.transport.(*httpTransport)
	if !ok {
		return errors.New("reading back goes over HTTP; use a client with http:// or https:// addresses")
	}
	asking, end, err := c.begin(ctx)
	if err != nil {
		return err
	}
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	defer stop()
	var resp *http.Response
	a := c.repeat(asking, c.config.RetryFor, task{read: true, try: func(ctx context.Context, to int) (a attempt) {
		resp, a = t.ask(ctx, reading, t.addresses[to].base+pathOf(sensor, what, query)) //nolint:bodyclose // closed below
		return a
	}})
	end()
	if a.err != nil {
		return a.err
	}
	defer resp.Body.Close()
	if err := read(resp); err != nil {
		if errors.Is(context.Cause(reading), ErrClosed) {
			return ErrClosed
		}
		return err
	}
	return nil
}

// ask asks once. The head of the answer comes before ctx ends, and its body can be
// read until reading does. Without a response the attempt tells why.
func (t *httpTransport) ask(ctx, reading context.Context, from string) (*http.Response, attempt) {
	whole, cancel := context.WithCancelCause(reading)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	req, err := http.NewRequestWithContext(whole, http.MethodGet, from, http.NoBody)
	if err != nil {
		return nil, attempt{err: fmt.Errorf("make request: %w", err)}
	}
	req.Header.Set("Accept", "application/x-ndjson, application/json")
	resp, failed := t.do(req)
	if resp == nil {
		if ctx.Err() != nil {
			failed.err = context.Cause(ctx)
		}
		failed.unknown = false
		return nil, failed
	}
	if resp.StatusCode == http.StatusOK && stop() {
		return resp, attempt{}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK { // ctx ended just now
		return nil, attempt{err: context.Cause(ctx), again: true}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, attempt{err: fmt.Errorf("read the answer: %w", err), again: true}
	}
	failed = readProblem(resp, body)
	failed.unknown = false
	return nil, failed
}
