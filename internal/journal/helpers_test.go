package journal_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// known interns the series of all tests, as a daemon does for its requests.
var known = batch.NewInterner(0)

// makeBatch returns n readings of a stream, whose field "n" counts from first.
func makeBatch(stream string, first, n int) *batch.Batch {
	b := known.Builder(time.Now())
	for i := range n {
		b.Begin(stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor(fmt.Appendf(nil, "s-%d", (first+i)%7))
		b.Time(int64(first + i))
		b.Int([]byte("n"), int64(first+i))
		b.Text([]byte("text"), fmt.Appendf(nil, "reading %d", first+i))
		if r := b.End(); r != nil {
			panic(r.Error())
		}
	}
	return b.Batch()
}

// readings returns the numbers that makeBatch gave.
func readings(b *batch.Batch) []int {
	var out []int
	for i := range uint32(b.Len()) {
		out = append(out, int(b.Reading(i).Fields[0].Value.Int()))
	}
	return out
}

func streams() map[string]journal.Stream {
	return map[string]journal.Stream{
		"readings": {Storage: "bucket", Target: "mongodb://a/brim", Granularity: 5 * time.Minute},
		"events":   {Storage: "bucket", Target: "mongodb://a/brim", Granularity: time.Minute},
	}
}

func config(dir, session string) journal.Config {
	return journal.Config{Dir: dir, Session: session, Streams: streams()}
}

// open opens a journal that the test closes.
func open(t *testing.T, cfg journal.Config) *journal.Journal {
	t.Helper()
	j, err := journal.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { j.Close() })
	return j
}

// follow returns everything that can be followed from a position.
func follow(t testing.TB, j follower, from uint64) []batch.Record {
	t.Helper()
	records, err := walk(j, from)
	require.NoError(t, err)
	return records
}

func walk(j follower, from uint64) ([]batch.Record, error) {
	c := j.Follow(from, batch.Part{})
	var out []batch.Record
	for {
		r, found, err := c.Next()
		if err != nil || !found {
			return out, err
		}
		out = append(out, r)
	}
}

type follower interface {
	Follow(position uint64, part batch.Part) batch.Cursor
}

// numbers returns the readings of records, in order.
func numbers(records []batch.Record) []int {
	var out []int
	for _, r := range records {
		out = append(out, readings(r.Batch)...)
	}
	return out
}

func upTo(n int) []int {
	var out []int
	for i := range n {
		out = append(out, i)
	}
	return out
}

func mustAppend(t testing.TB, j interface {
	Append(context.Context, *batch.Batch, batch.Request) (batch.Receipt, error)
}, b *batch.Batch) {
	t.Helper()
	r, err := j.Append(context.Background(), b, batch.Request{Want: telemetry.Journaled})
	require.NoError(t, err)
	require.Equal(t, telemetry.Journaled, r.Ack)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
