package advise

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// tiny is the scale of the tests.
func tiny() amounts {
	return amounts{
		sizeReadings: 40_000, sizeDocuments: 1500, grownReadings: 1000, updating: 20 * time.Millisecond,
		ingestTime: 200 * time.Millisecond, followReadings: 80_000, followTime: 2 * time.Second,
	}
}

// inLab runs f in a lab with a scratch database in the shared mongod.
func inLab(t *testing.T, n Needs, f func(ctx context.Context, s *session)) {
	t.Helper()
	uri := mongodtest.URI(t) // skips where there is none
	e := &bench.Experiment{Name: "advise", Run: func(ctx context.Context, lab *bench.Lab) {
		lab.On(ctx, bench.Setting{}, func(m *bench.MongoDB) {
			s := newSession(lab, m, n)
			s.amounts = tiny()
			f(ctx, s)
		})
	}}
	_, err := bench.Run(t.Context(), e, bench.Config{
		Hasty: true, Brim: program.Path(t), URI: uri, Database: "advise_" + strings.ToLower(rand.Text()), Seed: 1, Quick: true, Dir: t.TempDir(),
	})
	require.NoError(t, err)
}

// TestFollowedAdviceMatchesThePrediction predicts a day's documents and bytes for several
// users, and checks them against what a daemon stores.
func TestFollowedAdviceMatchesThePrediction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		needs Needs
		as    Candidate
	}{
		"sensors every 5 s":        {dashboards(t), Candidate{store.Bucket, 5 * time.Minute, 1000, 256 << 10, store.Zstd, false}},
		"meters, as a time series": {meters(t, func(n *Needs) { n.Duplicates = Rare }), Candidate{store.TimeSeries, time.Hour, 0, 0, store.Snappy, false}},
		"a signal":                 {signal(t), Candidate{store.Bucket, time.Minute, 4000, 256 << 10, store.Zstd, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inLab(t, c.needs, func(ctx context.Context, s *session) {
				m := Measured{Candidate: c.as, Updates: []Update{{PerUpdate: 1}}}
				s.size(ctx, &m)
				a := bench.Must(choose(c.needs, &Figures{Candidates: []Measured{m}}))
				s.m.Drop(ctx)
				f := s.follow(ctx, a)
				assert.InDelta(t, 0, f.Documents.Off(), 0.15, "documents %+v", f.Documents)
				assert.InDelta(t, 0, f.Bytes.Off(), 0.15, "bytes %+v", f.Bytes)
				t.Logf("documents %+.1f %%, bytes %+.1f %%", 100*f.Documents.Off(), 100*f.Bytes.Off())
			})
		})
	}
}

// TestMeasure measures two forms of storage.
func TestMeasure(t *testing.T) {
	t.Parallel()
	n := dashboards(t)
	inLab(t, n, func(ctx context.Context, s *session) {
		s.candidates = []Candidate{
			{store.Bucket, time.Minute, 1000, 256 << 10, store.Snappy, false},
			{store.Bucket, time.Minute, 1000, 256 << 10, store.Zstd, false},
			{store.Bucket, time.Hour, 20_000, 2 << 20, store.Zstd, true},
			{store.TimeSeries, time.Hour, 0, 0, store.Zstd, false},
		}
		f := s.measure(ctx)
		require.Len(t, f.Candidates, 4)
		assert.Positive(t, f.Candidates[2].Seal.Total(), "sealing is measured")
		assert.Less(t, f.Candidates[2].Data, f.Candidates[1].Data)
		assert.Equal(t, f.Candidates[0].Updates, f.Candidates[1].Updates, "whatever the compressor")
		for _, m := range f.Candidates {
			assert.Len(t, m.Updates, 2, m)
			for _, u := range m.Updates {
				assert.Positive(t, u.CPU.Mongod, u)
				assert.Positive(t, u.Seconds, u)
			}
			assert.Positive(t, m.Rewrite.Bytes, m)
			assert.Positive(t, m.Data, m)
			assert.Positive(t, m.Index, m)
			assert.Positive(t, m.Query.Seconds, m)
			assert.InEpsilon(t, float64(m.full(n.Interval)), m.perDocument(), 0.02, m)
		}
		assert.Positive(t, f.Ingest)
		bench.Must(choose(n, f))
	})
}
