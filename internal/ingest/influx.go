package ingest

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Requests of InfluxDB clients other than writes. Brim has no databases or InfluxDB buckets,
// so it reports all of them as existing.

const pathWriteV3 = "/api/v3/write_lp"

// serveLinesV3 accepts line protocol from InfluxDB 3 clients.
func (srv *Server) serveLinesV3(x *exchange) error {
	query, err := parseQuery(x.r, "ack", "precision", "db", "org", "orgID", "accept_partial", "no_sync") // the Python library sends org
	if err != nil {
		return err
	}
	p, err := precisionOfV3(query.Get("precision"))
	if err != nil {
		return err
	}
	partial := true
	for name, to := range map[string]*bool{"accept_partial": &partial, "no_sync": new(bool)} { // lines are always synced
		if text := query.Get(name); text != "" {
			if *to, err = strconv.ParseBool(text); err != nil {
				return telemetry.Errorf(telemetry.Invalid, codeParameter, "%s is %s; allowed: true, false", name, telemetry.Quote([]byte(text)))
			}
		}
	}
	return srv.takeLines(x, query, p, partial)
}

// precisionOfV3 returns the unit of timestamps for a name that InfluxDB 3 uses.
func precisionOfV3(name string) (precision, error) {
	switch name {
	case "", "auto":
		return precision{name: "auto"}, nil
	case "nanosecond":
		name = "ns"
	case "microsecond":
		name = "us"
	case "millisecond":
		name = "ms"
	case "second":
		name = "s"
	}
	if p, err := precisionOf(name); err == nil && p.name != "m" && p.name != "h" {
		return p, nil
	}
	return precision{}, telemetry.Errorf(telemetry.Invalid, codePrecision,
		"precision %s is unknown; allowed: auto, nanosecond, microsecond, millisecond, second", telemetry.Quote([]byte(name)))
}

// guess returns the unit of a timestamp, guessed from its size.
func (p precision) guess(n int64) precision {
	const most = 5_000_000_000 // seconds: the year 2128
	if n < 0 {
		n = -n
	}
	for _, name := range []string{"s", "ms", "us"} {
		if guessed, _ := precisionOf(name); n < most {
			return guessed
		}
		n /= 1000
	}
	p, _ = precisionOf("ns")
	return p
}

// A refusedLine describes a refused line in the format of InfluxDB 3.
type refusedLine struct {
	Line    uint32 `json:"line_number"`
	Message string `json:"error_message"`
	Text    string `json:"original_line"` // always empty
}

// refusedLines lists the refused lines.
func (in *intake) refusedLines() []refusedLine {
	out := make([]refusedLine, 0, len(in.answer.Errors))
	for _, e := range in.answer.Errors {
		out = append(out, refusedLine{Line: in.lines[e.Index], Message: string(e.Code) + ": " + e.Message})
	}
	return out
}

// noneRefused returns an error if lines were refused.
func (in *intake) noneRefused() error {
	if in.answer.Rejected == 0 {
		return nil
	}
	first := in.answer.Errors[0]
	return telemetry.Errorf(telemetry.Invalid, codeNothingTaken, "parsing failed for write_lp endpoint: %d of %d lines are invalid, nothing was accepted (accept_partial=false); line %d: %s: %s",
		in.answer.Rejected, in.count, in.lines[first.Index], first.Code, first.Message)
}

// influxCodes are error codes that InfluxDB clients know. Brim's own are more precise.
var influxCodes = map[telemetry.ErrorKind]string{telemetry.Unauthenticated: "unauthorized", telemetry.Forbidden: "forbidden"}

// maxStatements is the largest size of a request with InfluxQL, in bytes.
const maxStatements = 16 << 10

var (
	createDatabase = regexp.MustCompile(`(?is)^create\s+database\s+\S`)
	showDatabases  = regexp.MustCompile(`(?i)^show\s+databases$`)
)

// serveInfluxQL answers the statements that InfluxDB 1 clients send before they write.
func (srv *Server) serveInfluxQL(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxStatements)
	type series struct {
		Name    string     `json:"name"`
		Columns []string   `json:"columns"`
		Values  [][]string `json:"values"`
	}
	type result struct {
		Statement int      `json:"statement_id"`
		Series    []series `json:"series,omitempty"`
	}
	var results []result
	for statement := range strings.SplitSeq(r.FormValue("q"), ";") {
		statement = strings.TrimSpace(statement)
		one := result{Statement: len(results)}
		switch {
		case statement == "":
			continue
		case showDatabases.MatchString(statement):
			one.Series = []series{{Name: "databases", Columns: []string{"name"}}}
			for _, s := range srv.order {
				one.Series[0].Values = append(one.Series[0].Values, []string{s.Name})
			}
		case !createDatabase.MatchString(statement):
			refuseInflux(w, http.StatusBadRequest, telemetry.Quote([]byte(statement))+" is not supported; allowed: CREATE DATABASE and SHOW DATABASES; to read, use GET /v1/sensors/SENSOR/readings or PromQL")
			return
		}
		results = append(results, one)
	}
	if len(results) == 0 {
		refuseInflux(w, http.StatusBadRequest, `missing required parameter "q", or it is too long`)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"results": results})
}

// refuseInflux sends an error with the members for clients of all versions.
func refuseInflux(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, problem{Code: "invalid", Message: message, Error: message})
}

// serveBuckets returns the bucket that an InfluxDB 2 client asks for, or lists the streams.
func (srv *Server) serveBuckets(w http.ResponseWriter, r *http.Request) {
	names := r.URL.Query()["name"]
	if len(names) == 0 {
		for _, s := range srv.order {
			names = append(names, s.Name)
		}
	}
	buckets := make([]map[string]any, 0, len(names))
	for _, name := range names {
		buckets = append(buckets, map[string]any{"id": influxID(name), "orgID": influxID(""), "type": "user", "name": name, "retentionRules": []string{}})
	}
	writeJSON(w, http.StatusOK, map[string]any{"buckets": buckets, "links": map[string]string{"self": r.URL.Path}})
}

// influxID returns an ID in the format of InfluxDB 2.
func influxID(name string) string {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name)) // never fails
	return fmt.Sprintf("%016x", hash.Sum64())
}
