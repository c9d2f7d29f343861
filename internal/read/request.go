package read

import (
	"context"
	"fmt"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A call is a value of the label of that name.
type call string

const (
	callSensors  call = "sensors"
	callLatest   call = "latest"
	callReadings call = "readings"
	callMany     call = "readings_many"
	callSummary  call = "summary"
	callDelete   call = "delete"

	callDeleteMany call = "delete_many"

	callWaiting call = "waiting" // any call with unstored=only
)

// An endpoint describes the parameters and the answer of a call.
type endpoint struct {
	path    string
	method  string
	allowed []string                        // names of its parameters
	parse   func(*params, url.Values) error // parses its own parameters; nil: it has none
	lines   bool                            // the answer can be NDJSON
	answer  func(*query, context.Context) error
}

const (
	// root is the prefix of all paths except readingsPath.
	root     = "/v1/sensors"
	ofSensor = root + "/{sensorId}"
)

var endpoints = map[call]endpoint{
	callSensors:    {root, http.MethodGet, []string{"after", "limit", "prefix", "sensor", "stream", "tag", "unstored"}, (*params).parseList, true, (*query).sensors},
	callDelete:     {ofSensor, http.MethodDelete, []string{"stream", "unstored"}, nil, false, (*query).delete},
	callDeleteMany: {root, http.MethodDelete, []string{"after", "dry-run", "limit", "prefix", "stream", "tag", "unstored"}, (*params).parseDelete, false, (*query).deleteMany},
	callLatest:     {ofSensor + "/latest", http.MethodGet, []string{"stream", "unstored"}, nil, false, (*query).latest},
	callReadings:   {ofSensor + "/readings", http.MethodGet, []string{"after", "from", "limit", "stream", "to", "unstored"}, (*params).parseReadings, true, (*query).readings},
	callMany:       {readingsPath, http.MethodGet, []string{"after", "from", "limit", "sensor", "stream", "to", "unstored"}, (*params).parseMany, true, (*query).many},
	callSummary:    {ofSensor + "/summary", http.MethodGet, []string{"every", "from", "stream", "to", "unstored"}, (*params).parseSummary, true, (*query).summary},
}

// parsePath returns the call and the sensor of an escaped path. It does not use an
// http.ServeMux, which redirects if a sensor id contains "//" or "..".
func parsePath(escaped string) (c call, sensor string, ok bool) {
	switch escaped {
	case root:
		return callSensors, "", true
	case readingsPath:
		return callMany, "", true
	}
	rest, ok := strings.CutPrefix(escaped, root+"/")
	id, what, deeper := strings.Cut(rest, "/")
	c, path := callDelete, ofSensor
	if deeper {
		c, path = call(what), path+"/"+what
	}
	sensor, err := url.PathUnescape(id)
	return c, sensor, ok && endpoints[c].path == path && err == nil && sensor != ""
}

// Serves reports whether a request is the reader's.
func Serves(r *http.Request) bool {
	p := r.URL.EscapedPath()
	return p == root || strings.HasPrefix(p, root+"/") || p == readingsPath && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// Paths returns the methods of each path that a reader serves, in the notation of OpenAPI.
func Paths() map[string][]string {
	paths := make(map[string][]string)
	for _, e := range endpoints {
		paths[e.path] = append(paths[e.path], e.method)
	}
	return paths
}

// Handler serves the requests for which Serves is true.
func (r *Reader) Handler() http.Handler {
	reads := access.Require(r.cfg.Guard, access.Read, r.cfg.Problem, http.HandlerFunc(r.route))
	deletes := access.Require(r.cfg.Guard, access.Admin, r.cfg.Problem, http.HandlerFunc(r.route))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodDelete {
			deletes.ServeHTTP(w, req)
			return
		}
		reads.ServeHTTP(w, req)
	})
}

// UnguardedHandler is Handler without access control, for a listener that has its own: the
// identity, if any, is in the request's context.
func (r *Reader) UnguardedHandler() http.Handler { return http.HandlerFunc(r.route) }

// route answers a request after access control.
func (r *Reader) route(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	c, sensor, ok := parsePath(req.URL.EscapedPath())
	if !ok {
		r.cfg.Problem(w, telemetry.Errorf(telemetry.NotFound, "path_unknown",
			"the path %s does not exist; a sensor has %s/{sensorId}/readings, /summary and /latest, with its id percent-encoded", telemetry.Quote([]byte(req.URL.Path)), root))
		return
	}
	methods := []string{endpoints[c].method}
	if methods[0] == http.MethodGet {
		methods = append(methods, http.MethodHead)
	}
	if c == callSensors {
		methods = append(methods, http.MethodDelete)
		if req.Method == http.MethodDelete {
			c = callDeleteMany
		}
	}
	if slices.Contains(methods, req.Method) {
		r.serve(w, req, c, sensor)
		return
	}
	allowed := strings.Join(methods, ", ")
	w.Header().Set("Allow", allowed)
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(http.StatusMethodNotAllowed)
	hint := ""
	if methods[0] == http.MethodDelete && req.Method == http.MethodGet {
		hint = "; read a sensor with GET at its paths /readings, /summary and /latest"
	}
	_, _ = w.Write([]byte(`{"code":"method_not_allowed","message":"this method is not allowed here; allowed: ` + allowed + hint + `"}` + "\n"))
}

// params are the parsed parameters of a request.
type params struct {
	call    call
	stream  string
	query   telemetry.Query // without Unstored
	sensors []string        // of callMany, sorted
	after   telemetry.Cursor
	every   int64 // milliseconds; 0: one step
	list    telemetry.SensorQuery
	dryRun  bool
	lines   bool         // NDJSON rather than JSON
	table   files.Format // CSV or Parquet; empty: neither

	storedOnly  bool // unstored=off
	waitingOnly bool // unstored=only: another daemon asks for readings that this one has not stored yet
}

// neverEmpty are the parameters that need a value.
var neverEmpty = []string{"dry-run", "every", "from", "limit", "sensor", "tag", "to", "unstored"}

func invalid(format string, args ...any) error {
	return telemetry.Errorf(telemetry.Invalid, "invalid_parameter", format, args...)
}

// parse parses the parameters of a request.
func parse(c call, sensor string, r *http.Request) (params, error) {
	p, e := params{call: c, query: telemetry.Query{Sensor: sensor}}, endpoints[c]
	if sensor != "" {
		if refusal := telemetry.CheckSensor([]byte(sensor)); refusal != nil {
			return params{}, invalid("%s", refusal.Message)
		}
	}
	values, err := parseQuery(r.URL.RawQuery, e.allowed)
	if err != nil {
		return params{}, err
	}
	p.stream = values.Get("stream")
	if err := p.parseUnstored(values.Get("unstored")); err != nil {
		return params{}, err
	}
	if e.parse != nil {
		if err := e.parse(&p, values); err != nil {
			return p, err
		}
	}
	forms := []string{typeJSON}
	if e.lines {
		forms = append(forms, typeLines)
	}
	if c == callMany || c == callReadings && !p.waitingOnly {
		forms = append(forms, files.CSV.MediaType(), files.Parquet.MediaType())
	}
	media, err := wantedForm(r.Header.Values("Accept"), forms)
	switch media {
	case typeLines:
		p.lines = true
	case files.CSV.MediaType():
		p.table = files.CSV
	case files.Parquet.MediaType():
		p.table = files.Parquet
	}
	return p, err
}

func (p *params) parseUnstored(s string) error {
	allowed := "on, off and only"
	switch p.call {
	case callSummary, callMany:
		allowed = "on and off"
	case callDelete, callDeleteMany:
		allowed = "on and only"
	}
	switch {
	case s == "", s == "on":
	case s == "off" && p.call != callDelete && p.call != callDeleteMany:
		p.storedOnly = true
	case s == "only" && p.call != callSummary && p.call != callMany:
		p.waitingOnly = true
	default:
		return invalid("unstored %s is unknown; allowed: %s", telemetry.Quote([]byte(s)), allowed)
	}
	return nil
}

// parseQuery returns the parameters. Each may be given once, except tag and sensor.
func parseQuery(raw string, allowed []string) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalid("the query string is malformed: %v", err)
	}
	for key, given := range values {
		if !slices.Contains(allowed, key) {
			return nil, invalid("parameter %s is unknown; allowed: %s", telemetry.Quote([]byte(key)), strings.Join(allowed, ", "))
		}
		if len(given) > 1 && key != "tag" && key != "sensor" {
			return nil, invalid("parameter %s is given %d times; it is allowed once", key, len(given))
		}
		if given[0] == "" && slices.Contains(neverEmpty, key) {
			return nil, invalid("parameter %s has no value; give it one, or leave it out", key)
		}
	}
	return values, nil
}

func (p *params) parseReadings(values url.Values) error {
	if err := p.parseSpan(values); err != nil {
		return err
	}
	var err error
	if p.query.Limit, err = parseLimit(values, DefaultLimit, MaxLimit); err != nil {
		return err
	}
	if s := values.Get("after"); s != "" {
		if p.waitingOnly {
			return invalid("after is not allowed with unstored=only, which has only one page; use from to continue")
		}
		if p.after, err = parseCursor(s); err != nil {
			return invalid("%v", err)
		}
	}
	return nil
}

func (p *params) parseSpan(values url.Values) error {
	var err error
	if p.query.From, err = parseTime(values, "from", 0); err != nil {
		return err
	}
	if p.query.To, err = parseTime(values, "to", maxTime); err != nil {
		return err
	}
	if p.query.From > p.query.To {
		return invalid("from %s is after to %s", telemetry.FormatMillis(p.query.From), telemetry.FormatMillis(p.query.To))
	}
	return nil
}

// maxSteps is the maximum number of steps in a summary: 10,000 steps of ten
// fields are some 8 MB of JSON.
const maxSteps = 10_000

func (p *params) parseSummary(values url.Values) error {
	if err := p.parseSpan(values); err != nil {
		return err
	}
	text := values.Get("every")
	if text == "" {
		return nil
	}
	every, err := parseEvery(text)
	if err != nil {
		return invalid("every %v", err)
	}
	to, end := p.query.To, telemetry.FormatMillis(p.query.To)
	if values.Get("to") == "" {
		to, end = time.Now().UnixMilli(), "now" // steps in the future count when they have readings
	}
	if p.query.From < to {
		if steps := (to-1)/every - p.query.From/every + 1; steps > maxSteps {
			return invalid("the span from %s to %s has %d steps of %s; at most %d are allowed: give a narrower span with from and to, or a longer every",
				telemetry.FormatMillis(p.query.From), end, steps, text, maxSteps)
		}
	}
	p.every = every
	return nil
}

func (p *params) parseList(values url.Values) error {
	p.list = telemetry.SensorQuery{Prefix: values.Get("prefix"), After: values.Get("after")}
	for key, text := range map[string]string{"prefix": p.list.Prefix, "after": p.list.After} {
		if len(text) > telemetry.MaxSensorBytes || !utf8.ValidString(text) {
			return invalid("%s %s cannot be part of a sensor id, which is UTF-8 of at most %d bytes", key, telemetry.Quote([]byte(text)), telemetry.MaxSensorBytes)
		}
	}
	var err error
	if p.list.Tags, err = parseMatchers(values, "tag", ""); err != nil {
		return err
	}
	if p.list.Sensor, err = parseMatchers(values, "sensor", "sensor"); err != nil {
		return err
	}
	if len(p.list.Sensor) > 0 && !p.waitingOnly {
		return invalid("sensor is only allowed with unstored=only; use prefix to list certain sensors")
	}
	limit := maxSensors
	if p.waitingOnly {
		limit++ // another daemon asks for one more, to see whether there is another page
	}
	p.list.Limit, err = parseLimit(values, DefaultLimit, limit)
	return err
}

// parseDelete parses which sensors to delete. It refuses to delete all.
func (p *params) parseDelete(values url.Values) error {
	if err := p.parseList(values); err != nil {
		return err
	}
	if p.list.Prefix == "" && len(p.list.Tags) == 0 {
		return invalid("say which sensors to delete, with prefix=TEXT or tag=NAME=VALUE; to delete all, drop the stream's collection in MongoDB")
	}
	// A variable that is not set, as in tag=site=$SITE, would delete all sensors without the tag.
	empty := func(m telemetry.Matcher) bool { return m.Kind == telemetry.MatchEqual && m.Value == "" }
	if p.list.Prefix == "" && !slices.ContainsFunc(p.list.Tags, func(m telemetry.Matcher) bool { return !empty(m) }) {
		return invalid("tag %s has no value; to delete all sensors without that tag, use %s!~.+", p.list.Tags[0], p.list.Tags[0].Name)
	}
	switch s := values.Get("dry-run"); s {
	case "", "false":
	case "true":
		p.dryRun = true
	default:
		return invalid("dry-run %s is unknown; allowed: true and false", telemetry.Quote([]byte(s)))
	}
	return nil
}

// maxMatchers bounds the matchers of one parameter.
const maxMatchers = 32

// parseMatchers parses the values of a parameter. They begin with the name of a tag, unless
// named says what all of them match.
func parseMatchers(values url.Values, parameter, named string) ([]telemetry.Matcher, error) {
	given := values[parameter]
	if len(given) > maxMatchers {
		return nil, invalid("parameter %s is given %d times; at most %d are allowed", parameter, len(given), maxMatchers)
	}
	out := make([]telemetry.Matcher, len(given))
	for i, text := range given {
		var err error
		if out[i], err = telemetry.ParseMatcher(named + text); err != nil {
			return nil, invalid("%s %s: %v", parameter, telemetry.Quote([]byte(text)), err)
		}
		out[i].Name = strings.TrimPrefix(out[i].Name, named)
	}
	return out, nil
}

func parseLimit(values url.Values, absent, largest int) (int, error) {
	s := values.Get("limit")
	if s == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > largest {
		return 0, invalid("limit %s is not a number from 1 to %d", telemetry.Quote([]byte(s)), largest)
	}
	return n, nil
}

// parseEvery parses the length of a step, like 90s, 5m, 1h or 7d, in milliseconds.
func parseEvery(s string) (int64, error) {
	wrong := fmt.Errorf("%s is not a duration of whole milliseconds up to 3000000d, written as %s", telemetry.Quote([]byte(s)), config.DurationForms)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n < 1 || n > 3_000_000 || days[0] == '+' {
			return 0, wrong
		}
		return n * 24 * time.Hour.Milliseconds(), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Millisecond || d%time.Millisecond != 0 {
		return 0, wrong
	}
	return d.Milliseconds(), nil
}

// maxTime is the end of the year 9999, in milliseconds since the epoch.
const maxTime = 253_402_300_800_000

// parseTime returns a time in milliseconds since the epoch.
func parseTime(values url.Values, key string, absent int64) (int64, error) {
	s := values.Get(key)
	if s == "" {
		return absent, nil
	}
	t, err := config.ParseTime(s, time.Now())
	if err != nil {
		return 0, invalid("%s: %v", key, err)
	}
	return min(max(0, t.UnixMilli()), maxTime), nil
}

const (
	typeJSON  = "application/json"
	typeLines = "application/x-ndjson"
)

// wantedForm chooses one of the possible media types: the first one in Accept, or JSON if
// any is accepted.
func wantedForm(accept, possible []string) (string, error) {
	if len(accept) == 0 || len(accept) == 1 && accept[0] == "" {
		return typeJSON, nil
	}
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, given, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		if q, err := strconv.ParseFloat(given["q"], 64); err == nil && q == 0 || math.IsNaN(q) {
			continue // explicitly refused
		}
		switch {
		case slices.Contains(possible, media):
			return media, nil
		case media == "application/*", media == "*/*":
			return typeJSON, nil
		}
	}
	return "", telemetry.Errorf(telemetry.NotAcceptable, "unsupported_accept", "none of the types in Accept %s is available; available: %s",
		telemetry.Quote([]byte(strings.Join(accept, ", "))), strings.Join(possible, ", "))
}

// cut ends a page on which a reading of the time ms does not fit, and returns where the next
// one begins. last is the cursor after the readings on this page.
func cut(p page, last telemetry.Cursor, ms int64) telemetry.Cursor {
	switch {
	case ms != last.Millis:
		return telemetry.Cursor{Set: true, Millis: last.Millis + 1}
	case p.rollback():
		return telemetry.Cursor{Set: true, Millis: ms}
	default:
		return last
	}
}

func parseCursor(s string) (telemetry.Cursor, error) {
	const mostSeen = 1 << 30
	c, err := telemetry.ParseCursor(s)
	if err != nil || c.Millis > maxTime || c.Seen > mostSeen {
		return telemetry.Cursor{}, fmt.Errorf("after %s is not a cursor; use the one of the previous page", telemetry.Quote([]byte(s)))
	}
	return c, nil
}
