package maintain

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestAnyDocumentsThereAndBackAgain regroups whatever daemons can have left, by
// turns into several granularities, with daemons that write on in between.
func TestAnyDocumentsThereAndBackAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		grains := []time.Duration{time.Minute, 72 * time.Second, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}
		maxReadings := rapid.IntRange(1, 9).Draw(t, "max readings")
		maxBytes := rapid.SampledFrom([]int{1 << 10, 4 << 10}).Draw(t, "max bytes")
		var group []bson.Raw
		var readings int64
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for range rapid.IntRange(0, 8).Draw(t, "writes") {
				group, readings = writeOn(t, group, readings, rapid.SampledFrom(grains).Draw(t, "granularity"), maxReadings)
			}
			to := rapid.SampledFrom(grains).Draw(t, "to")
			r := newRegroup(t, RegroupConfig{Granularity: to, Found: grains, MaxReadings: maxReadings, MaxBytes: maxBytes})
			require.Equal(t, time.Hour, r.Span())
			group = reshape(t, r, group)
			require.Equal(t, group, reshape(t, r, group), "twice is once")
		}
		log := faulttest.NewLog(nil)
		log.Note(faulttest.Entry{Event: "attempt", Producer: 1, Count: int(readings)})
		log.Note(faulttest.Entry{Event: "answer", Producer: 1, Count: int(readings), Code: 200})
		result := faulttest.CheckDocuments(faulttest.CheckConfig{Log: log, MaxReadings: maxReadings, MaxBytes: maxBytes}, slices.Values(group))
		require.Zero(t, result.Wrong(), result.Report())
		require.Equal(t, int(readings), result.Stored)
	})
}

// writeOn adds a part to a window as a daemon would: the last is closed, and the
// new one comes behind it.
func writeOn(t *rapid.T, group []bson.Raw, readings int64, grain time.Duration, maxReadings int) ([]bson.Raw, int64) {
	seconds := int64(grain / time.Second)
	p := testPart{start: rapid.Int64Range(0, 3600/seconds-1).Draw(t, "window") * seconds, grain: int32(seconds), marked: true}
	for i, raw := range group {
		old, err := readPart(raw)
		require.NoError(t, err)
		if old.id.grain == p.grain && old.id.start == groupStart+p.start*1000 {
			group[i] = old.closed()
			p.number = max(p.number, old.id.number+1)
		}
	}
	p.times = rapid.SliceOfN(rapid.Int64Range(p.start*1000, (p.start+seconds)*1000-1), 1, min(maxReadings, 8)).Draw(t, "times")
	group = append(group, testDocument(t, p, readings))
	slices.SortFunc(group, func(a, b bson.Raw) int { return idOf(t, a).compare(idOf(t, b)) })
	return group, readings + int64(len(p.times))
}
