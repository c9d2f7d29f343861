package promapi

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/assert"
)

// TestAnswersAreEncodedInMemoryIfSmall: replies are the same either way.
func TestAnswersAreEncodedInMemoryIfSmall(t *testing.T) {
	t.Parallel()
	reply := func(a answer) string {
		w := httptest.NewRecorder()
		x := &exchange{w: w, r: httptest.NewRequest(http.MethodGet, "/", http.NoBody)}
		assert.Equal(t, "200", x.reply(&result{answer: a}))
		return w.Body.String()
	}
	var matrix promql.Matrix // 12 MB as JSON
	var vector promql.Vector // 9 MB
	for i := range 100 {
		one := promql.Series{Metric: labels.FromStrings("sensor", strconv.Itoa(i))}
		for step := range int64(5000) {
			one.Floats = append(one.Floats, promql.FPoint{T: step * 1000, F: math.Pi * 1e-5})
		}
		matrix = append(matrix, one)
	}
	for i := range 100_000 {
		vector = append(vector, promql.Sample{Metric: labels.FromStrings("sensor", "a rather long name, so that it takes space", "n", strconv.Itoa(i)), F: 1})
	}
	for _, c := range []struct {
		data   any
		memory bool
	}{
		{promql.Matrix{{Metric: labels.FromStrings("sensor", `"`), Floats: []promql.FPoint{{T: 1500, F: 1.25}}}}, true},
		{promql.Vector{{T: 1500, F: 1.25}}, true},
		{matrix[:10], true},
		{matrix, false},
		{vector[:1000], true},
		{vector, false},
	} {
		a := answer{data: c.data, warnings: []string{"w"}}
		want := reply(a)
		a.encode()
		assert.Equal(t, c.memory, a.encoded != nil)
		assert.True(t, want == reply(a), "the reply differs") //nolint:testifylint // a failure would print megabytes
	}
}
