package report

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/load/send"
)

// saturatedHead begins the first line of a saturated run's report.
const saturatedHead = "SATURATED: "

// A run is saturated if more was due than could be taken: readings were dropped, a
// percent of the requests was turned away or not answered in time, or the median
// request waited to be sent, several times as long as its answer took. Single
// stalls, however long, and requests refused for other reasons do not count.
const (
	turnedAwayShare = 0.01
	waitFactor      = 3     // median response time by median service time
	leastWait       = 0.050 // s between the two
	busyShare       = 0.8   // of the connections; from there on all count as busy
)

// Saturation says how a run was saturated and what to do, in sentences; empty if
// it was not.
func Saturation(r *load.Result) string {
	var why []string
	if r.Dropped > 0 {
		due := r.Sent + r.Dropped
		why = append(why, fmt.Sprintf("%s of %s (%s) %s dropped", count(r.Dropped), readings(due), share(float64(r.Dropped), float64(due)), was(r.Dropped)))
	}
	if n := turnedAway(r); n > 0 && float64(n) >= turnedAwayShare*float64(r.Requests) {
		why = append(why, fmt.Sprintf("%s of %s %s (%s) %s turned away or not answered in time", count(n), count(r.Requests), plural(r.Requests, "request"), share(float64(n), float64(r.Requests)), was(n)))
	}
	if queued(r) {
		why = append(why, fmt.Sprintf("the median response took %s and the median service %s, so requests waited to be sent: %s", span(r.Response.P50), span(r.Service.P50), limit(r)))
	}
	if len(why) == 0 {
		return ""
	}
	return strings.Join(why, "; ") + ". Response times of this run include time in a queue. Lower the load (--rate, --sensors or --speedup) or send larger requests (--batch)."
}

// turnedAway counts the requests that failed as they do under overload.
func turnedAway(r *load.Result) int64 {
	n := int64(0)
	for reason, requests := range r.Failures {
		if slices.Contains([]string{send.FailureTimeout, "503", "504", codes.Unavailable.String(), codes.ResourceExhausted.String(), codes.DeadlineExceeded.String()}, reason) {
			n += requests
		}
	}
	return n
}

// queued reports whether the median request waited to be sent. If all were due at
// once, it waits in any case.
func queued(r *load.Result) bool {
	wait := r.Response.P50 - r.Service.P50
	return r.OfferedRate > 0 && r.Service.P50 > 0 && wait >= leastWait && r.Response.P50 >= waitFactor*r.Service.P50
}

// limit says what the requests waited for: by Little's law, as many connections
// are busy on average as requests are sent in the time that one takes.
func limit(r *load.Result) string {
	busy := float64(r.Requests) * r.Service.Mean / max(r.Seconds, 1e-9)
	if connections := r.Setup.Connections; busy >= busyShare*float64(connections) {
		return fmt.Sprintf("all %s connections waited for answers", count(int64(connections)))
	}
	return "the generator was late, because there was too little CPU for it and its target"
}
