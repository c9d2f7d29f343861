package doctor

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// BenchmarkSample measures one interval's work; collections are sampled once a
// minute.
func BenchmarkSample(b *testing.B) {
	db := mongodtest.Database(b)
	insert(b, db, "readings", 100)
	bench := newBench(b, Config{Database: db, Streams: []Stream{{Name: "readings", Storage: store.Bucket}}})
	bench.Sample(b.Context())
	b.Run("server and disk", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			bench.Sample(b.Context())
		}
	})
	b.Run("with collections", func(b *testing.B) {
		for b.Loop() {
			clear(bench.sizes)
			bench.Sample(b.Context())
		}
	})
	b.Run("server alone", func(b *testing.B) {
		for b.Loop() {
			var now sample
			bench.sampleServer(b.Context(), &now)
		}
	})
	b.Run("scrape", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := prometheus.Gatherer(bench.registry).Gather()
			require.NoError(b, err)
		}
	})
}
