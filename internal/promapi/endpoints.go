package promapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An endpoint is one call of the API.
type endpoint struct {
	name    string                // after /api/v1/; also a value of the label call
	post    bool                  // parameters may be sent as a form
	static  bool                  // needs no stored readings
	prepare func(*exchange) error // called before there is a session; may be nil
	answer  func(*exchange, context.Context) (answer, error)
}

func (e *endpoint) methods() string {
	if e.post {
		return "GET, HEAD, POST"
	}
	return "GET, HEAD"
}

const callLabelValues = "label_values"

// endpoints has all calls except label/{name}/values.
var endpoints = []endpoint{
	{"query", true, false, (*exchange).query, (*exchange).evaluate},
	{"query_range", true, false, (*exchange).queryRange, (*exchange).evaluate},
	{"series", true, false, nil, (*exchange).series},
	{"labels", true, false, nil, (*exchange).labels},
	{"metadata", false, false, nil, (*exchange).metadata},
	{"status/buildinfo", false, true, nil, (*exchange).buildInfo},
	{"query_exemplars", true, true, nil, (*exchange).emptyList},
	{"rules", false, true, nil, (*exchange).noRules},
	{"alerts", false, true, nil, (*exchange).noAlerts},
}

// labelValues returns the endpoint label/{name}/values.
func labelValues() *endpoint {
	return &endpoint{callLabelValues, false, false, nil, (*exchange).labelValues}
}

// find returns the endpoint for the part of a path after /api/v1/; nil if there is none.
func find(rest string) (e *endpoint, label string) {
	if name, ok := strings.CutPrefix(rest, "label/"); ok {
		if name, ok = strings.CutSuffix(name, "/values"); ok {
			if label, err := url.PathUnescape(name); err == nil {
				return labelValues(), label
			}
		}
		return nil, ""
	}
	for i := range endpoints {
		if endpoints[i].name == rest {
			return &endpoints[i], ""
		}
	}
	return nil, ""
}

// Paths returns the paths of the API with their methods, as in openapi.yaml.
func Paths() map[string][]string {
	paths := make(map[string][]string)
	for _, e := range append(slices.Clone(endpoints), endpoint{name: "label/{name}/values"}) {
		paths[root+version+e.name] = []string{http.MethodGet}
		if e.post {
			paths[root+version+e.name] = []string{http.MethodGet, http.MethodPost}
		}
	}
	return paths
}

// An exchange is one request and its answer.
type exchange struct {
	api    *API
	w      http.ResponseWriter
	r      *http.Request
	stream string
	label  string // of label/{name}/values
	active *activeQuery

	evaluation evaluation // of query and query_range
	hasSlot    bool       // it holds a slot of the scheduler
	session    *read.Session
}

// maxForm is the maximum size of a request's parameters in bytes.
const maxForm = 256 << 10

// maxWait is how long a request waits for a slot. A dashboard requests all its panels at once, and
// does not retry.
const maxWait = 30 * time.Second

// run answers the request, and returns the code of its answer.
func (x *exchange) run(e *endpoint) string {
	x.r.Body = http.MaxBytesReader(x.w, x.r.Body, maxForm)
	if err := x.r.ParseForm(); err != nil || len(x.r.URL.RawQuery) > maxForm {
		var tooLong *http.MaxBytesError
		if err == nil || errors.As(err, &tooLong) {
			return x.refuse(telemetry.Errorf(telemetry.TooLarge, "body_too_large", "the parameters have more than %d bytes, which is the limit", maxForm))
		}
		return x.refuse(invalid("the parameters cannot be read: %v", err))
	}
	if e.prepare != nil {
		if err := e.prepare(x); err != nil {
			return x.refuse(err)
		}
	}
	if e.static {
		got, _ := e.answer(x, x.r.Context())
		return x.reply(&result{answer: got})
	}
	return x.api.flights.answer(x, e)
}

func (x *exchange) refuse(err error) string { return x.reply(x.failure(x.r.Context(), err)) }

// answer computes the answer to a request in a session, which lasts until the result is closed. It
// calls begin before anything is read.
func (x *exchange) answer(e *endpoint, begin func()) *result {
	ctx, session, err := x.api.cfg.Reader.Begin(x.r.Context(), read.SessionConfig{Stream: x.stream, Credentials: x.r.Header.Get("Authorization"), Wait: maxWait})
	if begin(); err != nil {
		return x.failure(x.r.Context(), err)
	}
	x.session = session
	cleanups := []func(){session.End}
	end := func() {
		for _, one := range slices.Backward(cleanups) {
			one()
		}
	}
	returned := false
	defer func() {
		if !returned {
			end() // after a panic
		}
	}()
	out := &result{}
	ctx, cancel, err := x.withTimeout(ctx)
	if err == nil {
		cleanups = append(cleanups, cancel)
		out.answer, err = e.answer(x, ctx)
		if out.close != nil {
			cleanups = append(cleanups, out.close)
		}
	} else {
		ctx = x.r.Context()
	}
	if err != nil {
		out = x.failure(ctx, err)
	}
	out.warnings = append(out.warnings, x.missing()...)
	out.close, returned = end, true
	return out
}

// withTimeout applies the parameter timeout, which can only shorten the session's timeout.
func (x *exchange) withTimeout(ctx context.Context) (context.Context, context.CancelFunc, error) {
	text := x.r.FormValue("timeout")
	if text == "" {
		return ctx, func() {}, nil
	}
	d, err := parseDuration(text)
	if err != nil {
		return nil, nil, invalid("timeout %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d, errOwnTimeout)
	return ctx, cancel, nil
}

func invalid(format string, args ...any) error {
	return telemetry.Errorf(telemetry.Invalid, "invalid_parameter", format, args...)
}

// maxSteps is the maximum number of steps of a range query, as in Prometheus.
const maxSteps = 11_000

// parseTime reads seconds since the epoch, or RFC 3339.
func parseTime(s string) (time.Time, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(f) || math.Abs(f) > math.MaxInt64/1000 {
			return time.Time{}, fmt.Errorf("%s is out of range", telemetry.Quote([]byte(s)))
		}
		whole, part := math.Modf(f)
		part = math.Round(part*1000) / 1000
		return time.Unix(int64(whole), int64(part*float64(time.Second))).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is not a time; allowed: seconds since the epoch and RFC 3339", telemetry.Quote([]byte(s)))
	}
	return t, nil
}

// parseDuration reads seconds, or a duration like 5m.
func parseDuration(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		d := f * float64(time.Second)
		if math.IsNaN(d) || math.Abs(d) > math.MaxInt64/2 {
			return 0, fmt.Errorf("%s is out of range", telemetry.Quote([]byte(s)))
		}
		return time.Duration(d), nil
	}
	d, err := model.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%s is not a duration; allowed: seconds, and numbers with a unit like 30s, 5m, 1h or 1d", telemetry.Quote([]byte(s)))
	}
	return time.Duration(d), nil
}

// time returns the value of a time parameter.
func (x *exchange) time(name string, absent time.Time) (time.Time, error) {
	text := x.r.FormValue(name)
	if text == "" {
		if absent.IsZero() {
			return absent, invalid("parameter %s is missing", name)
		}
		return absent, nil
	}
	t, err := parseTime(text)
	if err != nil {
		return t, invalid("%s %v", name, err)
	}
	return t, nil
}

// limit returns the parameter limit; 0: no limit.
func (x *exchange) limit() (int, error) {
	text := x.r.FormValue("limit")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, invalid("limit %s is not a number from 0 on", telemetry.Quote([]byte(text)))
	}
	return n, nil
}

func (x *exchange) query() error {
	at, err := x.time("time", time.Now())
	if err != nil {
		return err
	}
	return x.parse(at, at, 0)
}

func (x *exchange) queryRange() error {
	start, err := x.time("start", time.Time{})
	if err != nil {
		return err
	}
	end, err := x.time("end", time.Time{})
	if err != nil {
		return err
	}
	step, err := parseDuration(x.r.FormValue("step"))
	switch {
	case err != nil:
		return invalid("step %v", err)
	case end.Before(start):
		return invalid("end %s is before start %s", end.Format(time.RFC3339), start.Format(time.RFC3339))
	case step < time.Millisecond:
		return invalid("step %s is too short; allowed: 1ms or more", telemetry.Quote([]byte(x.r.FormValue("step"))))
	}
	// In unsigned milliseconds: Sub returns at most 292 years.
	if steps := (uint64(end.UnixMilli()) - uint64(start.UnixMilli())) / uint64(step.Milliseconds()); steps > maxSteps {
		return invalid("the range has %d steps; at most %d are allowed: use a longer step or a shorter range", steps, maxSteps)
	}
	return x.parse(start, end, step)
}

// span returns the parameters start and end of series, labels and label values, in milliseconds.
func (x *exchange) span() (from, to int64, err error) {
	start, err := x.time("start", time.UnixMilli(0))
	if err != nil {
		return 0, 0, err
	}
	end, err := x.time("end", time.UnixMilli(maxTime))
	if err != nil {
		return 0, 0, err
	}
	return start.UnixMilli(), end.UnixMilli(), nil
}

// selectors returns the parameters match[].
func (x *exchange) selectors(needed bool) ([][]*labels.Matcher, error) {
	given := x.r.Form["match[]"]
	if len(given) == 0 && needed {
		return nil, invalid("parameter match[] is missing; it is a selector like temperature{site=\"north\"}")
	}
	for _, text := range given {
		if err := checkSize(text); err != nil {
			return nil, err
		}
	}
	sets, err := x.api.parser.ParseMetricSelectors(given)
	if err != nil {
		return nil, invalid("match[] cannot be parsed: %v", err)
	}
	for _, set := range sets {
		if !slices.ContainsFunc(set, func(m *labels.Matcher) bool { return !m.Matches("") }) {
			return nil, invalid("match[] must have a matcher that an empty value does not satisfy")
		}
	}
	return sets, nil
}

// list calls each for the labels of each series that the request selects; some may be repeated.
func (x *exchange) list(ctx context.Context, needed bool, each func(labels.Labels) error) error {
	from, to, err := x.span()
	if err != nil {
		return err
	}
	sets, err := x.selectors(needed)
	if err != nil {
		return err
	}
	if len(sets) == 0 {
		sets = [][]*labels.Matcher{nil}
	}
	q := &querier{exchange: x}
	for _, set := range sets {
		s := &selection{querier: q, matchers: sortMatchers(set), from: max(0, from), to: min(to, maxTime-1) + 1}
		for _, ask := range s.matchers.queries() {
			for one, err := range x.session.Find(ctx, ask) {
				if err == nil {
					err = s.describe(&one, each)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// maxListed is the maximum number of bytes of labels in an answer.
const maxListed = 64 << 20

// A listing collects the first entries of an answer: labels or strings.
type listing struct {
	limit int // of entries; 0: none
	found map[string]labels.Labels
	bytes int
	last  string // entries after it were left out; empty: none were
}

func (x *exchange) newListing() (*listing, error) {
	limit, err := x.limit()
	return &listing{limit: limit, found: make(map[string]labels.Labels)}, err
}

// add adds an entry. The listing holds at most twice as many entries as the limit.
func (k *listing) add(key string, l labels.Labels) error {
	if _, known := k.found[key]; known || k.last != "" && key > k.last {
		return nil
	}
	key = strings.Clone(key) // it may be part of a document
	k.found[key] = l
	const entry = 64 // approximately
	if k.bytes += 2*len(key) + entry; k.limit > 0 && len(k.found) > 2*k.limit {
		k.cut()
	}
	if k.bytes > maxListed {
		return tooManyLabels()
	}
	return nil
}

// cut drops the entries beyond the limit.
func (k *listing) cut() {
	if k.limit == 0 || len(k.found) <= k.limit {
		return
	}
	keys := slices.Sorted(maps.Keys(k.found))
	clear(keys[k.limit:])
	first := make(map[string]labels.Labels, 2*k.limit)
	k.bytes = 0
	for _, key := range keys[:k.limit] {
		first[key] = k.found[key]
		k.bytes += 2 * len(key)
	}
	k.found, k.last = first, keys[k.limit-1]
}

// gather answers with data(entries), where add adds the entries for the labels of each series.
func (x *exchange) gather(ctx context.Context, needed bool, add func(*listing, labels.Labels) error, data func(map[string]labels.Labels) any) (answer, error) {
	found, err := x.newListing()
	if err == nil {
		err = x.list(ctx, needed, func(l labels.Labels) error { return add(found, l) })
	}
	if err != nil {
		return answer{}, err
	}
	found.cut()
	out := answer{data: data(found.found)}
	if found.last != "" {
		out.warnings = []string{truncated}
	}
	return out, nil
}

const truncated = "results truncated due to limit"

func (x *exchange) series(ctx context.Context) (answer, error) {
	return x.gather(ctx, true, func(to *listing, l labels.Labels) error { return to.add(l.String(), l) }, func(found map[string]labels.Labels) any {
		return labelSets(slices.SortedFunc(maps.Values(found), labels.Compare))
	})
}

// stringList answers with a sorted list of the strings that of finds in the labels of each series.
func (x *exchange) stringList(ctx context.Context, of func(l labels.Labels, add func(word string))) (answer, error) {
	return x.gather(ctx, false, func(to *listing, l labels.Labels) (err error) {
		of(l, func(word string) { err = errors.Join(err, to.add(word, labels.EmptyLabels())) })
		return err
	}, func(found map[string]labels.Labels) any {
		return append([]string{}, slices.Sorted(maps.Keys(found))...)
	})
}

func (x *exchange) labels(ctx context.Context) (answer, error) {
	return x.stringList(ctx, func(l labels.Labels, add func(string)) {
		l.Range(func(one labels.Label) { add(one.Name) })
	})
}

func (x *exchange) labelValues(ctx context.Context) (answer, error) {
	name := x.label
	if strings.HasPrefix(name, "U__") {
		name = model.UnescapeName(name, model.ValueEncodingEscaping)
	}
	if !model.UTF8Validation.IsValidLabelName(name) {
		return answer{}, invalid("%s cannot be the name of a label", telemetry.Quote([]byte(name)))
	}
	return x.stringList(ctx, func(l labels.Labels, add func(string)) {
		if v := l.Get(name); v != "" {
			add(v)
		}
	})
}

// metadata answers with the types of metrics, which are unknown.
func (x *exchange) metadata(ctx context.Context) (answer, error) {
	wanted := x.r.FormValue("metric")
	return x.gather(ctx, false, func(to *listing, l labels.Labels) error {
		if name := l.Get(model.MetricNameLabel); wanted == "" || name == wanted {
			return to.add(name, labels.EmptyLabels())
		}
		return nil
	}, func(found map[string]labels.Labels) any {
		all := make(map[string][]metadata, len(found))
		for name := range found {
			all[name] = []metadata{{Type: "unknown"}}
		}
		return all
	})
}

type metadata struct {
	Type string `json:"type"`
	Help string `json:"help"`
	Unit string `json:"unit"`
}

// prometheusVersion is the version reported to clients, which use it to choose features.
const prometheusVersion = "3.13.5"

func (x *exchange) buildInfo(context.Context) (answer, error) {
	return answer{data: map[string]string{
		"version": prometheusVersion, "revision": "brim-" + x.api.cfg.Version, "branch": "", "buildUser": "", "buildDate": "", "goVersion": runtime.Version(),
	}}, nil
}

func (x *exchange) emptyList(context.Context) (answer, error) { return answer{data: []string{}}, nil }

func (x *exchange) noRules(context.Context) (answer, error) {
	return answer{data: map[string][]string{"groups": {}}}, nil
}

func (x *exchange) noAlerts(context.Context) (answer, error) {
	return answer{data: map[string][]string{"alerts": {}}}, nil
}
