package bench_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/checkpoint"
	"github.com/brim-telemetry/brim/internal/bench/compression"
	"github.com/brim-telemetry/brim/internal/bench/fill"
	"github.com/brim-telemetry/brim/internal/bench/granularity"
	"github.com/brim-telemetry/brim/internal/bench/sealed"
	"github.com/brim-telemetry/brim/internal/bench/speed"
	"github.com/brim-telemetry/brim/internal/bench/storage"
	"github.com/brim-telemetry/brim/internal/bench/timeseries"
)

// TestClaimsAreAboutDeclaredFigures covers every experiment: a claim about an undeclared table
// or measure would never be checked.
func TestClaimsAreAboutDeclaredFigures(t *testing.T) {
	t.Parallel()
	for _, e := range []*bench.Experiment{
		granularity.Experiment(), fill.Experiment(), timeseries.Experiment(), compression.Experiment(), sealed.Experiment(), checkpoint.Experiment(), storage.Experiment(), speed.Experiment(),
	} {
		names := make(map[string]bench.Table)
		for _, table := range e.Tables {
			assert.NotContains(t, names, table.Name, e.Name)
			assert.NotEmpty(t, table.Title, "%s: %s", e.Name, table.Name)
			assert.NotEmpty(t, table.Variant, "%s: %s", e.Name, table.Name)
			names[table.Name] = table
		}
		for _, c := range e.Cells {
			assert.Equal(t, e.Name == "fill", c.Run == nil, "%s: cell %s must have a function; those of fill take turns", e.Name, c.Name)
		}
		assert.NotEmpty(t, e.Claims, e.Name)
		says := make(map[string]bool)
		for _, c := range e.Claims {
			assert.False(t, says[c.Says], c.Says)
			says[c.Says] = true
			assert.NotEmpty(t, c.PublishedAs, c.Says)
			figures := []bench.Figure{c.Of}
			if c.From != (bench.Figure{}) {
				figures = append(figures, c.From)
			}
			for _, f := range figures {
				table, found := names[f.Table]
				assert.True(t, found, "%s: table %q", c.Says, f.Table)
				assert.NotEmpty(t, f.Variant, c.Says)
				dynamic := len(table.Measures) == 0 || table.Unit != ""
				assert.True(t, dynamic || slices.ContainsFunc(table.Measures, func(m bench.Measure) bool { return m.Name == f.Measure }), "%s: %q", c.Says, f.Measure)
			}
		}
		for _, a := range e.Answers {
			assert.True(t, says[a.Claim], "%s: an answer rests on %q, which is no claim", e.Name, a.Claim)
			assert.Equal(t, 1, strings.Count(a.Says, "%s"), a.Says)
		}
	}
}
