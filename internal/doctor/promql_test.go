package doctor

import (
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachRuleHasAQuery(t *testing.T) {
	t.Parallel()
	rest := make(map[string]bool)
	for name := range promQLs {
		rest[name] = true
	}
	for _, r := range rules {
		assert.True(t, rest[r.name], "%s has no query", r.name)
		delete(rest, r.name)
	}
	assert.Empty(t, rest, "queries of no rule")
	assert.Empty(t, PromQL("none", "", time.Hour, time.Minute))
}

// metric is a name with its selector.
var metric = regexp.MustCompile(`brim_[a-z_]+(\{[^}]*\})?`)

func TestQueriesAskForTheSelectedDaemonsOnly(t *testing.T) {
	t.Parallel()
	b := ofFixture(t)
	for _, r := range rules {
		for _, window := range []time.Duration{0, 2 * time.Hour} {
			query := PromQL(r.name, `job="brim"`, window, time.Minute)
			assert.NotContains(t, query, "$", r.name)
			found := metric.FindAllStringSubmatch(query, -1)
			require.NotEmpty(t, found, r.name)
			for _, m := range found {
				assert.Contains(t, m[1], `job="brim"`, "%s: %s", r.name, m[0])
			}
		}
	}
	families, err := b.registry.Gather()
	require.NoError(t, err)
	there := make(map[string]bool)
	for _, f := range families {
		there[f.GetName()] = true
	}
	for _, q := range promQLs {
		for _, m := range metric.FindAllString(q.expr, -1) {
			name := regexp.MustCompile(`^[a-z_]+`).FindString(m)
			assert.True(t, there[name], "no metric %s", name)
		}
	}
}

func TestASignalIsClassedByAValueFromElsewhere(t *testing.T) {
	t.Parallel()
	s := Signal{Threshold: Threshold{Degrading: 50, Bottleneck: 80}}
	for value, want := range map[float64]Class{10: Healthy, 50: Degrading, 81: Bottleneck} {
		assert.Equal(t, want, s.At(value).Class)
		assert.InDelta(t, value, s.At(value).Value, 0)
	}
	assert.Equal(t, Unknown, s.At(math.NaN()).Class)
}

func TestDiagnosesHaveNames(t *testing.T) {
	t.Parallel()
	names := Diagnoses()
	assert.Contains(t, names, "disk_iops")
	assert.Len(t, names, len(diagnoses)+1)
	assert.Equal(t, FoundFenced, names[0], "nothing is written at all")
}
