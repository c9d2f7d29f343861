package compression

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// measured are figures as a run gives them: a compressor leaves a part of what
// the one before it leaves.
func measured() Data {
	var d Data
	for at, s := range shapes() {
		for by, c := range compressors() {
			for _, values := range []Values{Walk, Random} {
				d.Sizes = append(d.Sizes, SizeData{
					Shape: s.String(), Values: values, Compressor: c, at: at, by: by,
					Size: shape.Size{Readings: 10, Documents: 10, Logical: 1000, File: 1000 >> by, IndexFile: 200},
				})
			}
			d.Reads = append(d.Reads, ReadData{
				Shape: s.String(), Compressor: c, at: at, by: by,
				WarmP50: bench.Samples{1, 1.1, 1.2}, ColdP50: bench.Samples{9 - float64(by), 9.1 - float64(by), 9.2 - float64(by)},
			})
		}
	}
	for by, c := range compressors() {
		d.Writes = append(d.Writes, WriteData{
			Compressor: c, at: buckets5m, by: by, P50: bench.Samples{3, 4, 5}, P99: bench.Samples{10, 20, 30}, CPU: bench.Samples{1}, Journal: bench.Samples{100},
		})
		d.Checkpoints = append(d.Checkpoints, CheckpointData{
			Compressor: c, Count: 1, Readings: 1000, CPU: bench.Samples{float64(1 + by), 1.1 * float64(1+by)}, Seconds: bench.Samples{1}, Bytes: bench.Samples{1},
		})
	}
	return d
}

func report(d Data) *bench.Result {
	r := &bench.Result{}
	t := &trial{result: r, data: d}
	t.report()
	return r
}

func TestVerdictsFollowFromTheFigures(t *testing.T) {
	t.Parallel()
	r := report(measured())
	verdicts := make(map[string]bench.Verdict)
	for _, row := range r.Rows {
		verdicts[row.Claim] = row.Verdict
	}
	assert.Equal(t, map[string]bench.Verdict{
		"snappy makes documents smaller":                                       bench.Confirmed,
		"zstd makes them half of what snappy does":                             bench.Confirmed,
		"indexes stay as they are":                                             bench.Confirmed,
		"a collection that moves from snappy to zstd shrinks (hourly buckets)": bench.Confirmed,
		"warm reads do not care for the compressor":                            bench.Confirmed,
		"cold reads gain a little from zstd, p50":                              bench.Confirmed,
		"zstd makes writes a little slower, p50":                               bench.NotSeen,
		"zstd makes writes a little slower, p99":                               bench.NotSeen,
		"zstd makes checkpoints use more processor time":                       bench.Confirmed,
	}, verdicts)
	assert.Len(t, r.Tables, 4)
	assert.Len(t, r.Plots, 3)
	assert.Equal(t, []string{
		string(store.NoneCompressor), "1", "1,000",
	}, r.Tables[3].Rows[0][:3])
}

// TestWhatWasCutShortIsNotClaimed: a run that was interrupted has a part of each.
func TestWhatWasCutShortIsNotClaimed(t *testing.T) {
	t.Parallel()
	d := measured()
	d.Sizes = d.Sizes[:len(d.Sizes)-1]
	d.Reads[len(d.Reads)-1].WarmP50 = nil
	d.Checkpoints[len(d.Checkpoints)-1].CPU = nil
	r := report(d)
	assert.Empty(t, r.Rows)
	assert.Empty(t, r.Tables)
	assert.Empty(t, r.Notes)
	assert.Empty(t, report(Data{}).Rows)
}

// TestNotesFollowFromTheFigures also where they are not as they mostly are.
func TestNotesFollowFromTheFigures(t *testing.T) {
	t.Parallel()
	d := measured()
	notes := strings.Join(report(d).Notes, "\n")
	assert.Contains(t, notes, "The compressor matters as much as the shape", "all shapes are as large")
	for at := range shapes()[buckets5m:] {
		for by := range compressors() {
			s := &d.size(at+1, by, Walk).Size
			s.File, s.IndexFile = 100, 0
		}
	}
	d.size(buckets1h, snappy, Walk).Size.File = 50
	notes = strings.Join(report(d).Notes, "\n")
	assert.Contains(t, notes, "The shape matters before the compressor: with its indexes a reading takes 45.0 B as a document with zstd, 5.00 B in an hourly bucket with snappy")
	assert.Contains(t, notes, "The smallest of all is Brim's buckets, 1h with snappy: 5.00 B a reading")
}

// TestASlowMinuteThatHitsBothCompressorsHidesNoDifference between them.
func TestASlowMinuteThatHitsBothCompressorsHidesNoDifference(t *testing.T) {
	t.Parallel()
	d := measured()
	d.Checkpoints[snappy].CPU, d.Checkpoints[zstd].CPU = bench.Samples{1, 3, 1}, bench.Samples{1.5, 4.5, 1.6}
	rows := report(d).Rows
	assert.Equal(t, "zstd makes checkpoints use more processor time", rows[len(rows)-1].Claim)
	assert.Equal(t, bench.Confirmed, rows[len(rows)-1].Verdict)
}
