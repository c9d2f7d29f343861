package advise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/store"
)

// made returns figures by simple laws instead of measurements: an update costs 60 µs, plus 0.2
// µs per reading in the document and 5 µs per reading added, also for a time series; a document
// has 300 bytes besides its readings, and zstd needs two thirds of snappy's space.
func made(n Needs, quick bool) *Figures {
	f := &Figures{Command: CPU{300e-6, 20e-6}, Ingest: 30e-6}
	for _, c := range candidates(n, quick) {
		full := c.full(n.Interval)
		m := Measured{Candidate: c}
		for _, k := range []int{1, 12} {
			cost := 60e-6 + 0.1e-6*float64(full) + 5e-6*float64(k)
			m.Updates = append(m.Updates, Update{k, CPU{cost * 0.8, cost * 0.2}, cost})
		}
		bytes := 300 + 7.5*float64(full)
		m.Rewrite = Rewrite{bytes, bytes * 5e-9}
		each := 300/float64(full) + 6*float64(n.Fields)
		if c.Storage == store.TimeSeries {
			each = 300/float64(full) + 2*float64(n.Fields)
		}
		if c.Compressor == store.Zstd {
			each *= 2.0 / 3
		}
		m.Readings, m.Documents, m.Data, m.Index = 1000*full, 1000, int64(each*1000*float64(full)), 40_000
		documents := touches(c.Storage, n.QuerySpan, time.Duration(full)*n.Interval)
		m.Query = Queried{n.QuerySpan, documents, documents * 50e-6, CPU{documents * 40e-6, documents * 10e-6}}
		f.Candidates = append(f.Candidates, m)
	}
	return f
}

// sized returns the figures' candidate of a kind.
func (f *Figures) sized(of store.Storage, granularity time.Duration, compressor store.Compressor) Measured {
	for _, s := range f.Candidates {
		if s.Storage == of && s.Granularity == granularity && s.Compressor == compressor {
			return s
		}
	}
	return Measured{}
}

func TestCostOfADay(t *testing.T) {
	t.Parallel()
	n := dashboards(t)
	f := made(n, false)
	c := f.cost(n, f.sized(store.Bucket, 5*time.Minute, store.Snappy), time.Second, time.Minute)
	assert.InEpsilon(t, 2_880_000, c.Documents, 1e-9)
	assert.InEpsilon(t, 172_800_000*(300.0/60+24), c.Data, 1e-3)
	assert.InEpsilon(t, 2_880_000*40.0, c.Index, 1e-9)
	assert.InEpsilon(t, 90*(c.Data+c.Index), c.Disk, 1e-9)
	assert.InEpsilon(t, 172_800_000, c.Updates, 1e-9, "one reading an update")
	commands := 4 * 86_400.0 // one a second of each lane
	assert.InEpsilon(t, 172_800_000*(60e-6+0.1e-6*60+5e-6)+commands*320e-6, c.Write.Total(), 1e-3)
	assert.InEpsilon(t, 1440*12_000*750.0, c.Written, 0.01, "each open document each minute, and those closed meanwhile")
	assert.InEpsilon(t, 25, c.QueryDocuments, 1e-9, "an hour, and the hour before it")
	assert.InEpsilon(t, c.CPU().Total()/3600*30*0.04+c.Disk/1e9*0.1, c.Price(), 1e-9)
}

func TestLongerFlushMergesUpToADocument(t *testing.T) {
	t.Parallel()
	n := dashboards(t)
	f := made(n, false)
	s := f.sized(store.Bucket, time.Minute, store.Snappy)
	one, six := f.cost(n, s, time.Second, time.Minute), f.cost(n, s, 30*time.Second, time.Minute)
	assert.InDelta(t, 1, one.PerUpdate, 0)
	assert.InDelta(t, 6, six.PerUpdate, 0)
	assert.Less(t, six.Write.Total(), one.Write.Total()/3)
	assert.InDelta(t, 12, f.cost(n, s, time.Hour, time.Minute).PerUpdate, 0)
}

func TestQueriesLongerThanWasMeasuredGrowWithTheirDocuments(t *testing.T) {
	t.Parallel()
	n := meters(t)
	f := made(n, false)
	s := f.sized(store.Bucket, time.Hour, store.Zstd)
	whole := f.cost(n, s, time.Second, time.Minute)
	s.Query = Queried{Span: day, Documents: 26, Seconds: 26 * 50e-6, CPU: CPU{26 * 40e-6, 26 * 10e-6}}
	part := f.cost(n, s, time.Second, time.Minute)
	assert.InEpsilon(t, whole.QuerySeconds, part.QuerySeconds, 1e-6)
	assert.InEpsilon(t, whole.Query.Total(), part.Query.Total(), 1e-6)
}

func TestUpdatesCostALineByTheirReadings(t *testing.T) {
	t.Parallel()
	of := func(one, many float64) Measured {
		return Measured{Updates: []Update{{1, CPU{one, 0}, 2 * one}, {11, CPU{many, 0}, 2 * many}}}
	}
	cpu, seconds := of(3, 23).update(6)
	assert.Equal(t, CPU{13, 0}, cpu)
	assert.InEpsilon(t, 26, seconds, 1e-9)
	cpu, _ = of(3, 2).update(60)
	assert.Equal(t, CPU{3, 0}, cpu, "it does not fall")
	single := Measured{Updates: []Update{{1, CPU{4, 1}, 5}}}
	cpu, _ = single.update(1)
	assert.Equal(t, CPU{4, 1}, cpu, "a document has one reading")
}
