package promapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/assert"
)

// TestAnswersAreEncodedInMemoryIfSmall compares replies with and without that.
func TestAnswersAreEncodedInMemoryIfSmall(t *testing.T) {
	t.Parallel()
	reply := func(a answer) string {
		w := httptest.NewRecorder()
		x := &exchange{w: w, r: httptest.NewRequest(http.MethodGet, "/", http.NoBody)}
		assert.Equal(t, "200", x.reply(&result{answer: a}))
		return w.Body.String()
	}
	full := promql.Series{Metric: labels.FromStrings("sensor", "s-1"), Floats: make([]promql.FPoint, mostEncoded)}
	for _, c := range []struct {
		data   any
		memory bool
	}{
		{promql.Matrix{{Metric: labels.FromStrings("sensor", `"`), Floats: []promql.FPoint{{T: 1500, F: 1.25}}}}, true},
		{promql.Vector{{T: 1500, F: 1.25}}, true},
		{promql.Matrix{full}, true},
		{promql.Matrix{full, {Floats: []promql.FPoint{{T: 1}}}}, false},
	} {
		released := 0
		a := answer{data: c.data, warnings: []string{"w"}, close: func() { released++ }}
		want := reply(a)
		a.encode()
		assert.Equal(t, c.memory, a.encoded != nil)
		assert.True(t, want == reply(a), "the reply differs") //nolint:testifylint // a failure would print megabytes
		a.close()
		assert.Equal(t, 1, released)
	}
}
