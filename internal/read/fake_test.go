package read

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var base = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// fakeSource holds readings in time order.
type fakeSource struct {
	readings []telemetry.Reading
	err      error                     // yielded after the readings
	asked    func(ctx context.Context) // called on each query; may be nil
	cost     int                       // size of a reading's document in bytes
	deleted  func(sensor string) (int64, error)
}

func (s fakeSource) ReadingsOf(ctx context.Context, qs []telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return store.ReadEach(ctx, qs, s.Readings)
}

func (s fakeSource) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		if s.asked != nil {
			s.asked(ctx)
		}
		all := slices.Clone(s.readings)
		for _, u := range q.Unstored {
			all = append(all, u.Reading)
		}
		slices.SortStableFunc(all, func(a, b telemetry.Reading) int { return a.Time.Compare(b.Time) })
		for _, r := range all {
			ms := r.Time.UnixMilli()
			if r.Sensor != q.Sensor || ms < q.From || ms >= q.To {
				continue
			}
			if err := telemetry.Spend(ctx, s.cost); err != nil {
				yield(telemetry.Reading{}, fmt.Errorf("read: %w", err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if err := s.err; err != nil || ctx.Err() != nil {
			if err == nil {
				err = ctx.Err()
			}
			yield(telemetry.Reading{}, err)
		}
	}
}

func (s fakeSource) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	if q.Readings != nil {
		return store.Summarize(q, q.Readings(ctx, q.Query), nil)
	}
	return func(yield func(telemetry.Summary, error) bool) {
		var step telemetry.Summary
		for r, err := range s.Readings(ctx, q.Query) {
			if err != nil {
				yield(telemetry.Summary{}, err)
				return
			}
			start := q.From
			if q.Every > 0 {
				start = r.Time.UnixMilli() / q.Every * q.Every
			}
			if step.Count > 0 && start != step.Start && !yield(step, nil) {
				return
			}
			if step.Count == 0 || start != step.Start {
				step = telemetry.Summary{Start: start, Fields: []telemetry.FieldSummary{{Name: "v", Min: r.Fields[0].Value}}}
			}
			step.Count++
			f := &step.Fields[0]
			f.N, f.Max, f.Sum = f.N+1, r.Fields[0].Value, f.Sum+float64(r.Fields[0].Value.Int())
		}
		if step.Count > 0 {
			yield(step, nil)
		}
	}
}

func (s fakeSource) Sensors(_ context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	return func(yield func(telemetry.SensorSeen, error) bool) {
		newest := make(map[string]int64)
		var ids []string
		for _, r := range s.readings {
			if _, known := newest[r.Sensor]; !known {
				ids = append(ids, r.Sensor)
			}
			newest[r.Sensor] = max(newest[r.Sensor], r.Time.UnixMilli())
		}
		slices.Sort(ids)
		for _, id := range ids {
			if strings.HasPrefix(id, q.Prefix) && id > q.After && !yield(telemetry.SensorSeen{Sensor: id, Newest: newest[id]}, nil) {
				return
			}
		}
		if s.err != nil {
			yield(telemetry.SensorSeen{}, s.err)
		}
	}
}

func (s fakeSource) Newest(ctx context.Context, sensor string) (ms int64, found bool, err error) {
	r, found, err := s.Latest(ctx, sensor, nil)
	return r.Time.UnixMilli(), found, err
}

func (s fakeSource) Latest(_ context.Context, sensor string, unstored []telemetry.Unstored) (r telemetry.Reading, found bool, err error) {
	all := slices.Clone(s.readings)
	for _, u := range unstored {
		all = append(all, u.Reading)
	}
	for _, one := range all {
		if one.Sensor == sensor && (!found || !one.Time.Before(r.Time)) {
			r, found = one, true
		}
	}
	return r, found, s.err
}

func (s fakeSource) Delete(_ context.Context, sensor string) (int64, error) { return s.deleted(sensor) }

func reading(sensor string, at time.Duration, v int64) telemetry.Reading {
	return telemetry.Reading{Sensor: sensor, Time: base.Add(at), Fields: []telemetry.Field{{Name: "v", Value: telemetry.IntValue(v)}}}
}

// problem writes an error in a form that tests can check.
func problem(w http.ResponseWriter, err error) {
	w.WriteHeader(http.StatusTeapot)
	_, _ = io.WriteString(w, fmt.Sprint(telemetry.KindOf(err), " ", err))
}

// newReader returns a reader of one stream, named readings.
func newReader(t require.TestingT, source Source, change ...func(*Config, *Stored)) *Reader {
	cfg := Config{DefaultStream: "readings", Problem: problem, Logger: slog.New(slog.DiscardHandler)}
	stored := Stored{
		Sources: map[string]Source{"readings": source}, Available: func(string) error { return nil },
		FlushSensor: func(context.Context, string, string) error { return nil },
		Flush:       func(context.Context) error { return nil },
	}
	for _, c := range change {
		c(&cfg, &stored)
	}
	r, err := New(cfg)
	require.NoError(t, err)
	r.Open(stored)
	return r
}

// reply is a response as clients see it.
type reply struct {
	status int
	header http.Header
	body   string
}

func ask(r *Reader, method, target string, accept ...string) reply {
	req := httptest.NewRequest(method, target, http.NoBody)
	for _, a := range accept {
		req.Header.Set("Accept", a)
	}
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, req)
	return reply{w.Code, w.Header(), w.Body.String()}
}

func get(r *Reader, target string, accept ...string) reply {
	return ask(r, http.MethodGet, target, accept...)
}

// overTheWire sends a request over a connection, and returns the response with
// the error of reading its body.
func overTheWire(t *testing.T, r *Reader, target, accept string) (*http.Response, string, error) {
	t.Helper()
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+target, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Accept", accept)
	resp, err := server.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}
