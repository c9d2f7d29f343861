package ingest

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A problem is every answer that does not tell of single readings.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Line    uint32 `json:"line,omitempty"`  // line protocol: the first refused line, from 1
	Error   string `json:"error,omitempty"` // line protocol: the message, where clients of InfluxDB 1 look for it
}

// WriteProblem answers an HTTP request that failed with err, in the form that
// every path has in common: the status of the error's kind and an object
// {"code", "message"}. Errors that are no *telemetry.Error are logged, and their
// text stays inside.
func (d *Door) WriteProblem(w http.ResponseWriter, err error) {
	known := d.knownError(protoHTTP, err)
	setRetryAfter(w, known)
	challenge(w.Header(), known)
	writeJSON(w, statuses[resultOf(known.Kind)].http, problem{Code: known.Code, Message: known.Message})
}

// setRetryAfter says when to come back, where that is of use.
func setRetryAfter(w http.ResponseWriter, e *telemetry.Error) {
	if seconds := retrySeconds(e); seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
}

// retrySeconds returns after how many seconds the client may come back, 0 where
// coming back is of no use.
func retrySeconds(e *telemetry.Error) int {
	if e.Kind != telemetry.Unavailable && e.Kind != telemetry.Quota {
		return 0
	}
	wait := e.RetryAfter
	if wait <= 0 {
		wait = retryAfter
	}
	return int(math.Ceil(wait.Seconds()))
}

// writeHead begins an answer in JSON. The names of the headers are written as
// net/http keeps them, and their values share one array: an answer comes often.
func writeHead(w http.ResponseWriter, status int) {
	h, values := w.Header(), []string{"application/json", "nosniff"}
	h["Content-Type"], h["X-Content-Type-Options"] = values[:1:1], values[1:]
	w.WriteHeader(status)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	writeHead(w, status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	// The only error is that of the connection, and then nobody listens.
	_ = e.Encode(v)
}
