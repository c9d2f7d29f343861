package ingest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// fakeJournal keeps what it is given and reaches what it is told to reach.
type fakeJournal struct {
	mu      sync.Mutex
	batches []*batch.Batch
	wants   []telemetry.Ack
	keys    map[string]batch.Request // that were taken

	reach   telemetry.Ack   // empty: what was wanted
	refused []batch.Refused // by the database
	err     error
	block   chan struct{} // if not nil, Append waits for it or for its context
	entered chan struct{} // told by each call that begins to wait
	left    chan struct{} // and by each that ended it
}

func (j *fakeJournal) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	if j.block != nil {
		j.entered <- struct{}{}
		defer func() { j.left <- struct{}{} }()
		select {
		case <-j.block:
		case <-ctx.Done():
			return batch.Receipt{}, ctx.Err()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return batch.Receipt{}, j.err
	}
	reached := r.Want
	if j.reach != "" {
		reached = j.reach
	}
	if first, known := j.keys[r.Key]; known && first.BodyHash != r.BodyHash {
		return batch.Receipt{}, telemetry.Errorf(telemetry.Conflict, "idempotency_conflict", "the key was used with another body")
	} else if known {
		return batch.Receipt{Ack: reached, Refused: j.refused, Repeated: true, Answer: first.Answer}, nil
	}
	if r.Key != "" {
		if j.keys == nil {
			j.keys = make(map[string]batch.Request)
		}
		j.keys[r.Key] = r
	}
	j.batches = append(j.batches, b)
	j.wants = append(j.wants, r.Want)
	return batch.Receipt{Ack: reached, Refused: j.refused}, nil
}

func (j *fakeJournal) Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error) {
	j.mu.Lock()
	_, known := j.keys[r.Key]
	j.mu.Unlock()
	if !known {
		return batch.Receipt{}, nil
	}
	return j.Append(ctx, nil, r)
}

// waits makes Append wait until the returned channel is closed.
func (j *fakeJournal) waits() chan struct{} {
	j.block, j.entered, j.left = make(chan struct{}), make(chan struct{}, 10), make(chan struct{}, 10)
	return j.block
}

// readings returns all that was taken, in order.
func (j *fakeJournal) readings() []telemetry.Reading {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []telemetry.Reading
	for _, b := range j.batches {
		for i := range b.Len() {
			all = append(all, b.Reading(uint32(i)))
		}
	}
	return all
}

// streams returns the stream of each reading that was taken.
func (j *fakeJournal) streams() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []string
	for _, b := range j.batches {
		for i := range b.Len() {
			all = append(all, b.Series(b.Row(uint32(i))).Stream)
		}
	}
	return all
}

// arrival is when every request of these tests arrives.
var arrivalTime = time.Date(2026, 11, 21, 10, 0, 0, 123_456_789, time.UTC)

func testConfig() Config {
	return Config{
		Streams: []Stream{
			{Name: "readings", Storage: "bucket", Granularity: 5 * time.Minute, MaxReadings: 1000, MaxBytes: 256 << 10},
			{Name: "mem", Storage: "timeseries", Granularity: time.Hour, Retention: 24 * time.Hour},
		},
		DefaultStream: "readings",
		Acks:          []telemetry.Ack{telemetry.Stored, telemetry.Journaled},
		Registerer:    prometheus.NewRegistry(),
		Version:       "test",
		Now:           func() time.Time { return arrivalTime },
	}
}

// newTestServer returns a Server of testConfig, changed by change, and its journal.
func newTestServer(t testing.TB, change ...func(*Config)) (*Server, *fakeJournal) {
	t.Helper()
	c := testConfig()
	for _, f := range change {
		f(&c)
	}
	j := &fakeJournal{}
	d, err := New(c, j)
	require.NoError(t, err)
	return d, j
}

// anyTime makes a Server accept all timestamps from 1970 on, for tests that use
// small ones.
func anyTime(c *Config) { c.MinTime = time.UnixMilli(0) }

// newIntake returns an intake for the readings of one request.
func (srv *Server) newIntake(stream *inputStream, want telemetry.Ack) *intake {
	in := new(intake)
	in.open(srv, stream, want)
	in.build()
	return in
}
