package promapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkRange evaluates a panel over a day of ten sensors that report every minute.
func BenchmarkRange(b *testing.B) {
	const sensors, day, interval = 10, 86_400, 60
	s := &stored{}
	for second := 0; second < day; second += interval {
		for n := range sensors {
			s.readings = append(s.readings, reading(fmt.Sprintf("s-%d", n), second, north(), "user", float64(second), "system", 2.5))
		}
	}
	for i := range s.readings {
		s.readings[i].Tags = s.readings[0].Tags
	}
	a := newAPI(b, s)
	b.ReportAllocs()
	for b.Loop() {
		form := ask(`avg by (site) (user + system)`, url.Values{"start": {strconv.Itoa(epoch)}, "end": {strconv.Itoa(epoch + day)}, "step": {"120"}})
		code, _ := a.get("/api/v1/query_range", form)
		require.Equal(b, http.StatusOK, code)
	}
}
