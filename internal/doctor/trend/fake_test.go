package trend

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noon is when all reports of these tests end.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// A curve gives a value by the days since a span began; false: there is none.
type curve func(day float64) (value float64, ok bool)

func steady(v float64) curve { return func(float64) (float64, bool) { return v, true } }

func growing(from, to, overDays float64) curve {
	return func(d float64) (float64, bool) { return from + (to-from)*d/overDays, true }
}

// noisy adds what looks like noise and is the same each time, in shares of the
// value.
func (c curve) noisy(share float64) curve {
	return func(d float64) (float64, bool) {
		v, ok := c(d)
		hash := math.Sin(d*12.9898+v) * 43758.5453
		return v * (1 + share*2*(hash-math.Floor(hash)-0.5)), ok
	}
}

func (c curve) without(from, to float64) curve {
	return func(d float64) (float64, bool) {
		v, ok := c(d)
		return v, ok && (d < from || d >= to)
	}
}

// A fake is a Prometheus that knows some series by the names of what is looked
// at; it answers every other query with nothing.
type fake struct {
	t      testing.TB
	config Config
	curves map[string]curve
	up     []string // instances
	upHas  curve    // when they were there; nil: always
	resets curve
	kind   string
	fails  map[string]string // by name: the error
	check  func(*http.Request)
}

func newFake(t testing.TB, curves map[string]curve) *fake {
	return &fake{t: t, curves: curves, up: []string{"127.0.0.1:8432"}, kind: "ssd",
		config: Config{Selector: `job="brim"`, Span: 21 * day, Now: func() time.Time { return noon }}}
}

// ask starts the fake and asks it.
func (f *fake) ask() (*Report, error) {
	server := httptest.NewServer(f)
	defer server.Close()
	if f.config.Prometheus == "" {
		f.config.Prometheus = server.URL
	} else { // user and password were given
		f.config.Prometheus = strings.Replace(server.URL, "http://", f.config.Prometheus, 1)
	}
	return Ask(f.t.Context(), f.config)
}

func (f *fake) report() *Report {
	f.t.Helper()
	r, err := f.ask()
	require.NoError(f.t, err)
	return r
}

// named returns which series a query asks for.
func (f *fake) named(query string) string {
	a := &asking{config: f.config, span: rangeOf(f.config.Span, noon)}
	for _, m := range allMeasures(f.config.Thresholds, f.kind) {
		if m.query(f.config.Selector, a.span.Step, a.resolution()) == query {
			return m.name
		}
	}
	for _, mark := range []string{"brim_mongodb_up", "resets", "brim_disk_info"} {
		if strings.Contains(query, mark) {
			return mark
		}
	}
	assert.Fail(f.t, "a query of nothing", query)
	return ""
}

type fakeSeries struct {
	Metric map[string]string `json:"metric"`
	Values [][2]any          `json:"values"`
}

func (f *fake) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if f.check != nil {
		f.check(req)
	}
	if strings.HasPrefix(req.URL.Path, "/api/v1/label/job/values") {
		f.answer(w, []string{"brim", "other"})
		return
	}
	assert.Equal(f.t, "/api/v1/query_range", req.URL.Path)
	name := f.named(req.FormValue("query"))
	if problem := f.fails[name]; problem != "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"status":"error","errorType":"execution","error":"` + problem + `"}`))
		return
	}
	out := []fakeSeries{}
	one := func(labels map[string]string, c curve) {
		if values := f.values(req, c); len(values) > 0 {
			out = append(out, fakeSeries{labels, values})
		}
	}
	switch name {
	case "brim_mongodb_up":
		has := f.upHas
		if has == nil {
			has = steady(1)
		}
		for _, instance := range f.up {
			one(map[string]string{"job": "brim", "instance": instance}, has)
		}
	case "resets":
		if f.resets != nil {
			one(map[string]string{}, f.resets)
		}
	case "brim_disk_info":
		one(map[string]string{"kind": f.kind}, steady(1))
	default:
		if c := f.curves[name]; c != nil {
			one(map[string]string{}, c)
		}
	}
	f.answer(w, map[string]any{"resultType": "matrix", "result": out})
}

func (f *fake) answer(w http.ResponseWriter, data any) {
	w.Header().Set("Content-Type", "application/json")
	assert.NoError(f.t, json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data}))
}

// values are a curve's at the moments that were asked for.
func (f *fake) values(req *http.Request, c curve) [][2]any {
	number := func(name string) float64 {
		v, err := strconv.ParseFloat(req.FormValue(name), 64)
		assert.NoError(f.t, err)
		return v
	}
	var r prometheus.Range
	r.Start, r.End = time.Unix(int64(number("start")), 0), time.Unix(int64(number("end")), 0)
	r.Step = time.Duration(number("step")) * time.Second
	assert.Less(f.t, r.End.Sub(r.Start)/r.Step, time.Duration(11_000), "Prometheus gives no more points")
	var out [][2]any
	for at := r.Start; !at.After(r.End); at = at.Add(r.Step) {
		if v, ok := c(at.Sub(r.Start).Hours() / 24); ok {
			out = append(out, [2]any{at.Unix(), strconv.FormatFloat(v, 'g', -1, 64)})
		}
	}
	return out
}
