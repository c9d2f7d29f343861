package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Span selects readings with From <= Time < To, to the millisecond. A zero time is no
// bound.
type Span struct {
	Stream   string // empty: that of the Config
	From, To time.Time
}

// ErrNoReading is returned by Latest for a sensor without readings.
var ErrNoReading = errors.New("the sensor has no readings")

// An IncompleteError says that other daemons of the database could not be asked for
// readings that they have acknowledged and not stored yet. All else was returned.
type IncompleteError struct{ Daemons string }

// Error implements error.
func (e *IncompleteError) Error() string {
	return e.Daemons + " could not be asked for readings that are acknowledged and not stored yet; the others were returned"
}

const (
	pageReadings = 10_000
	maxLine      = 4 << 20 // a reading with 256 fields of 1 KiB, escaped, has less
)

// Readings returns the readings of a sensor in time order, including those that are
// acknowledged and not stored yet, in pages of 10,000. An error ends them; readings
// before it are valid, and complete but for those that an *IncompleteError is about. It
// needs a client for HTTP.
func (c *Client) Readings(ctx context.Context, sensor string, span Span) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		query := c.query(span)
		query.Set("limit", strconv.Itoa(pageReadings))
		var end pageEnd
		var incomplete *IncompleteError
		for more := true; more; {
			after, told, err := c.page(ctx, sensor, query, &end, func(r telemetry.Reading) bool {
				more = yield(r, nil)
				return more
			})
			switch {
			case !more: // nothing else is wanted
				return
			case err != nil && !errors.As(err, &incomplete):
				yield(telemetry.Reading{}, fmt.Errorf("read readings: %w", err))
				return
			case !told:
				after = end.AfterPage(end.readings).String()
			}
			query.Set("after", after)
			more = after != ""
		}
		if incomplete != nil {
			yield(telemetry.Reading{}, fmt.Errorf("read readings: %w", incomplete))
		}
	}
}

// page reads one page. After is where the next one begins; told is false if a proxy, or a
// daemon of an earlier release, has left out whether there is one. A page that is cut off,
// which a daemon does if it takes much longer than --query-timeout, ends where it was cut.
func (c *Client) page(ctx context.Context, sensor string, query url.Values, end *pageEnd, yield func(telemetry.Reading) bool) (after string, told bool, err error) {
	end.readings = 0
	err = c.ask(ctx, sensor, "readings", query, func(resp *http.Response) error {
		lines, size := bufio.NewScanner(resp.Body), 0
		lines.Buffer(make([]byte, 0, 64<<10), maxLine)
		for lines.Scan() {
			size += len(lines.Bytes()) + 1
			r, err := parseReading(lines.Bytes())
			var why *telemetry.Error
			switch {
			case err == nil:
			case errors.As(err, &why) || lines.Err() == nil:
				return err
			default:
				continue // the last line is cut off
			}
			end.add(r.Time.UnixMilli())
			if !yield(r) {
				return nil
			}
		}
		if err := lines.Err(); err != nil {
			if end.readings == 0 || errors.Is(err, bufio.ErrTooLong) {
				return err
			}
			after, told = end.String(), true
			return nil
		}
		after = cmp.Or(resp.Trailer.Get(telemetry.AfterHeader), resp.Header.Get(telemetry.AfterHeader))
		told = after != "" || len(resp.Trailer[telemetry.AfterHeader]) > 0 || size < telemetry.LongAnswer
		return nil
	})
	return after, told, err
}

// A pageEnd is where a page ends so far.
type pageEnd struct {
	telemetry.Cursor

	readings int // of the page
}

func (e *pageEnd) add(ms int64) {
	e.Cursor = e.Past(ms)
	e.readings++
}

// Latest returns the newest reading of a sensor, or ErrNoReading. An empty stream is
// that of the Config. With an *IncompleteError it returns the newest that is known,
// if there is one.
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
	if known, ok := errors.AsType[*telemetry.Error](err); ok && known.Code == "sensor_unknown" {
		return telemetry.Reading{}, ErrNoReading
	}
	if err != nil {
		return r, fmt.Errorf("read latest reading: %w", err)
	}
	return r, nil
}

// A Step is a summary of the readings in an interval.
type Step struct {
	Start  time.Time
	Count  int64 // readings
	Fields map[string]StepField
}

// A StepField summarizes the numbers of one field.
type StepField struct {
	N        int64           // readings in which it is a number
	Min, Max telemetry.Value // as sent
	Mean     float64         // NaN if the sum does not fit a double
}

// Summary returns a step for each interval of that length that has readings, aligned to
// the epoch; 0: one step for the span. There are at most 10,000 steps. With an
// *IncompleteError it returns those of all other readings.
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
	if err == nil {
		return steps, nil
	}
	if _, incomplete := errors.AsType[*IncompleteError](err); !incomplete {
		steps = nil
	}
	return steps, fmt.Errorf("read summary: %w", err)
}

// query returns the parameters of a span.
func (c *Client) query(span Span) url.Values {
	query := url.Values{}
	if stream := cmp.Or(span.Stream, c.config.Stream); stream != "" {
		query.Set("stream", stream)
	}
	for name, bound := range map[string]time.Time{"from": span.From, "to": span.To} {
		if !bound.IsZero() {
			query.Set(name, telemetry.FormatMillis(bound.UnixMilli()))
		}
	}
	return query
}

// ask requests something about a sensor, with repetitions, and passes the answer to
// read, whose error is final. After that it returns an *IncompleteError if some readings
// may be missing. The timeout is that of the answer's header; the rest may
// take longer. Close does not wait for read, which may call it, but ends the answer.
func (c *Client) ask(ctx context.Context, sensor, what string, query url.Values, read func(*http.Response) error) error {
	t, ok := c.transport.(*httpTransport)
	if !ok {
		return errors.New("reading back needs HTTP; use a client with http:// or https:// addresses")
	}
	asking, end, err := c.begin(ctx)
	if err != nil {
		return err
	}
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()
	path := "/v1/sensors/" + url.PathEscape(sensor) + "/" + what
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var resp *http.Response
	a := c.repeat(asking, c.config.RetryFor, task{read: true, try: func(ctx context.Context, to int) (a attempt) {
		resp, a = t.ask(ctx, reading, t.addresses[to].Base+path) //nolint:bodyclose // closed below
		a.unknown = false
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
	if missing := resp.Header.Get(telemetry.IncompleteHeader); missing != "" {
		return &IncompleteError{Daemons: missing}
	}
	return nil
}

// ask sends one request. The header of the answer comes before ctx ends, and its body
// can be read until reading ends. Without a response, the attempt says why.
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
		return nil, failed
	}
	if resp.StatusCode == http.StatusOK && stop() {
		return resp, attempt{}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK { // ctx has just ended
		return nil, attempt{err: context.Cause(ctx), again: true}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, attempt{err: fmt.Errorf("read the answer: %w", err), again: true}
	}
	failed = readProblem(resp, body)
	missing := resp.Header.Get(telemetry.IncompleteHeader)
	if none, ok := errors.AsType[*telemetry.Error](failed.err); ok && missing != "" && none.Code == "sensor_unknown" {
		failed.err = &IncompleteError{Daemons: missing} // another daemon may have some
	}
	return nil, failed
}

// parseReading decodes a line: a reading, or the error that ended the answer.
func parseReading(text []byte) (r telemetry.Reading, err error) {
	var end struct {
		Error *struct{ Code, Message string }
	}
	if err = json.Unmarshal(text, &end); err == nil && end.Error != nil {
		return r, &telemetry.Error{Code: end.Error.Code, Message: end.Error.Message}
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return telemetry.Reading{}, fmt.Errorf("decode reading: %w", err)
	}
	return r, nil
}

// decodeStep decodes the next step of a summary; io.EOF: there is none.
func decodeStep(d *json.Decoder) (Step, error) {
	var given struct {
		Start  time.Time
		Count  int64
		Fields map[string]struct {
			N        int64
			Min, Max telemetry.Value
			Mean     *float64
		}
		Error *struct{ Code, Message string }
	}
	if err := d.Decode(&given); err != nil {
		return Step{}, err
	}
	if given.Error != nil {
		return Step{}, &telemetry.Error{Code: given.Error.Code, Message: given.Error.Message}
	}
	s := Step{Start: given.Start.UTC(), Count: given.Count, Fields: make(map[string]StepField, len(given.Fields))}
	for name, f := range given.Fields {
		if !f.Min.Kind().Numeric() || !f.Max.Kind().Numeric() {
			return Step{}, fmt.Errorf("decode step: the minimum or the maximum of field %s is not a number", telemetry.Quote([]byte(name)))
		}
		field := StepField{N: f.N, Min: f.Min, Max: f.Max, Mean: math.NaN()}
		if f.Mean != nil {
			field.Mean = *f.Mean
		}
		s.Fields[name] = field
	}
	return s, nil
}
