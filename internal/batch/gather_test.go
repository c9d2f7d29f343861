package batch

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Readings of many requests, each with its own decoded series, stay the same in one batch.
// The batch lists each series once and counts the memory that it holds.
func TestAppendKeepsReadings(t *testing.T) {
	t.Parallel()
	var all Batch
	var want []string
	for i := range 40 {
		b := NewBuilder(time.UnixMilli(0))
		for k := range 2 {
			b.Begin("readings", k, telemetry.TimeRange{Newest: math.MaxInt64})
			b.Sensor([]byte("a"))
			b.Tag([]byte("site"), fmt.Append(nil, "north-", i/20))
			b.Time(int64(1000*i + k))
			b.Float([]byte("t"), float64(i)+0.5)
			if i%3 == 0 {
				b.Text([]byte("state"), []byte(strings.Repeat("x", i)))
			}
			b.Bool([]byte("on"), k == 1)
			require.Nil(t, b.End())
		}
		one := b.Batch()
		one.Session, one.FirstSeq = "s", uint64(100+10*i)
		if i == 0 {
			all = one.Empty(nil)
		}
		before := all.Frozen()
		for k := range uint32(2) {
			require.True(t, all.Append(Ref{Batch: one, Index: k}))
			want = append(want, fmt.Sprint(one.FirstSeq+uint64(k), one.Reading(k)))
		}
		assert.Equal(t, 2*i, before.Len())
	}
	for i, text := range want {
		r := Ref{Batch: &all, Index: uint32(i)}
		assert.Equal(t, text, fmt.Sprint(r.Seq(), all.Reading(r.Index)))
	}
	assert.Equal(t, 2, all.SeriesLen())
	assert.Len(t, all.shapes, 2)
	assert.Greater(t, all.MemorySize(), int64(80*(rowBytes+2*valueSize)))
	early := NewBuilder(time.UnixMilli(0))
	early.Begin("readings", 0, telemetry.TimeRange{Newest: math.MaxInt64})
	early.Sensor([]byte("a"))
	early.Float([]byte("t"), 1)
	require.Nil(t, early.End())
	b := early.Batch()
	b.FirstSeq = 99
	assert.False(t, all.Append(Ref{Batch: b}), "an earlier sequence")
}
