package read

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Config says what can be read.
type Config struct {
	Sources       map[string]Source // by stream
	DefaultStream string
	Available     func() error // nil while the database answers; otherwise requests end with 503
	// Problem writes an error as the API's answer.
	Problem func(w http.ResponseWriter, err error)
}

// Handler serves GET /v1/sensors/{sensorId}/readings.
func Handler(cfg Config) http.Handler {
	h := handler{cfg}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sensors/{sensorId}/readings", h.readings)
	return mux
}

type handler struct{ cfg Config }

// request is one parsed query string.
type request struct {
	source Source
	query  telemetry.Query
	after  cursor
	ndjson bool
}

func (h handler) readings(w http.ResponseWriter, r *http.Request) {
	req, err := h.parse(r)
	if err != nil {
		h.cfg.Problem(w, err)
		return
	}
	if err := h.cfg.Available(); err != nil {
		h.cfg.Problem(w, away(err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	page, err := readPage(ctx, req.source, req.query, req.after)
	if err != nil {
		if ctx.Err() == nil && h.cfg.Available() != nil || r.Context().Err() == nil && timedOut(err) {
			err = away(err)
		}
		h.cfg.Problem(w, err)
		return
	}
	if req.ndjson {
		writeLines(w, page)
		return
	}
	writeObject(w, page)
}

// timedOut reports whether the database, or a connection to it, was waited for
// in vain.
func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// readTimeout is how long MongoDB may take for one page.
const readTimeout = time.Minute

func away(err error) error {
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "mongodb_away", Message: "MongoDB does not answer; nothing can be read until it is back",
		RetryAfter: time.Second, Err: err,
	}
}

func invalid(format string, args ...any) error {
	return telemetry.Errorf(telemetry.Invalid, "invalid_parameter", format, args...)
}

// parameters are what the query string may hold.
var parameters = []string{"after", "from", "limit", "stream", "to"}

func (h handler) parse(r *http.Request) (request, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return request{}, invalid("the query string is malformed: %v", err)
	}
	for key := range values {
		if !slices.Contains(parameters, key) {
			return request{}, invalid("parameter %s is unknown; allowed are %s", telemetry.Quote([]byte(key)), strings.Join(parameters, ", "))
		}
	}
	req := request{query: telemetry.Query{Sensor: r.PathValue("sensorId"), Limit: DefaultLimit}}
	if refusal := telemetry.CheckSensor([]byte(req.query.Sensor)); refusal != nil {
		return request{}, invalid("%s", refusal.Message)
	}
	name := values.Get("stream")
	if name == "" {
		name = h.cfg.DefaultStream
	}
	if req.source = h.cfg.Sources[name]; req.source == nil {
		return request{}, telemetry.Errorf(telemetry.NotFound, "stream_unknown", "stream %s does not exist; GET /v1/streams lists those that do", telemetry.Quote([]byte(name)))
	}
	if req.query.From, err = parseTime(values, "from", 0); err != nil {
		return request{}, err
	}
	if req.query.To, err = parseTime(values, "to", maxTime); err != nil {
		return request{}, err
	}
	if req.query.From > req.query.To {
		return request{}, invalid("from %s is after to %s", telemetry.FormatMillis(req.query.From), telemetry.FormatMillis(req.query.To))
	}
	if s := values.Get("limit"); s != "" {
		if req.query.Limit, err = strconv.Atoi(s); err != nil || req.query.Limit < 1 || req.query.Limit > MaxLimit {
			return request{}, invalid("limit %s is not a number from 1 to %d", telemetry.Quote([]byte(s)), MaxLimit)
		}
	}
	if s := values.Get("after"); s != "" {
		if req.after, err = parseCursor(s); err != nil {
			return request{}, invalid("%v", err)
		}
	}
	req.ndjson, err = wantsLines(r.Header.Get("Accept"))
	return req, err
}

// maxTime is the end of the year 9999, in milliseconds since the epoch.
const maxTime = 253_402_300_800_000

// parseTime reads RFC 3339 or integer milliseconds since the epoch.
func parseTime(values url.Values, key string, absent int64) (int64, error) {
	s := values.Get(key)
	if s == "" {
		return absent, nil
	}
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil && ms >= 0 && ms <= maxTime {
		return ms, nil
	}
	// A + that was not escaped arrives as a space.
	t, err := time.Parse(time.RFC3339Nano, strings.ReplaceAll(s, " ", "+"))
	if err != nil {
		return 0, invalid("%s %s is neither RFC 3339 nor milliseconds since 1970", key, telemetry.Quote([]byte(s)))
	}
	return t.UnixMilli(), nil
}

const (
	typeJSON  = "application/json"
	typeLines = "application/x-ndjson"
)

// wantsLines decides between the two forms of an answer; JSON is the default.
func wantsLines(accept string) (bool, error) {
	if accept == "" {
		return false, nil
	}
	for part := range strings.SplitSeq(accept, ",") {
		media, _, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		switch media {
		case typeLines:
			return true, nil
		case typeJSON, "application/*", "*/*":
			return false, nil
		}
	}
	return false, telemetry.Errorf(telemetry.Unsupported, "unsupported_accept", "nothing of Accept %s can be given; there are %s and %s", telemetry.Quote([]byte(accept)), typeJSON, typeLines)
}

// writeObject answers {"readings":[…],"after":"…"}; after is absent on the
// last page.
func writeObject(w http.ResponseWriter, page Page) {
	w.Header().Set("Content-Type", typeJSON)
	body := []byte(`{"readings":[`)
	for i, reading := range page.Readings {
		if i > 0 {
			body = append(body, ',', '\n')
		}
		if body = reading.AppendJSON(body); len(body) > 1<<16 {
			if _, err := w.Write(body); err != nil {
				return // the client is gone
			}
			body = body[:0]
		}
	}
	body = append(body, ']')
	if page.After != "" {
		body = append(body, `,"after":`+strconv.Quote(page.After)...)
	}
	_, _ = w.Write(append(body, "}\n"...)) // fails only if the client is gone
}

// afterHeader tells where the next page of an NDJSON answer begins.
const afterHeader = "Brim-After"

// writeLines answers a reading a line.
func writeLines(w http.ResponseWriter, page Page) {
	w.Header().Set("Content-Type", typeLines)
	if page.After != "" {
		w.Header().Set(afterHeader, page.After)
	}
	var body []byte
	for _, reading := range page.Readings {
		if body = append(reading.AppendJSON(body), '\n'); len(body) > 1<<16 {
			if _, err := w.Write(body); err != nil {
				return // the client is gone
			}
			body = body[:0]
		}
	}
	_, _ = w.Write(body) // fails only if the client is gone
}
