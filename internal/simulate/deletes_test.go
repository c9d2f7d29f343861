package simulate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// remove deletes a sensor.
func (w *world) remove(h *host) {
	sensor := fmt.Sprintf("s-%d", w.intN(w.moods.sensors))
	r := &request{host: h, stream: choose(w, streamNames[:]), sensor: sensor, settle: w.removed}
	w.deletes = true
	target := "/v1/sensors/" + sensor + "?stream=" + r.stream
	r.what = "DELETE " + target
	for _, one := range w.ledger.ofSensor(r.stream, sensor) {
		if one.acked && !one.forgiven {
			r.must = append(r.must, one)
		}
		one.deletes++
		r.readings = append(r.readings, one)
	}
	r.reached, r.others = make(map[*host]bool), make(map[*host]*hosted)
	for _, other := range w.hosts {
		r.reached[other], r.others[other] = w.reaches(h, other), other.process
	}
	w.begin(r, func(r *request) { r.send(http.MethodDelete, target, "", nil) })
}

// mayBeDeleted notes that a deletion that is not answered may remove a reading that is sent now.
func (w *world) mayBeDeleted(one *reading) {
	for _, r := range w.open {
		if strings.HasPrefix(r.what, "DELETE ") && r.stream == one.stream && r.sensor == one.sensor {
			one.deletes++
			r.readings = append(r.readings, one)
		}
	}
}

// reaches reports whether a daemon can ask another one, or is it.
func (w *world) reaches(h, other *host) bool {
	known := h.process.known.Load()
	return h == other || known != nil && slices.Contains(*known, other.address)
}

// removed notes the answer to a deletion.
func (w *world) removed(r *request) {
	for _, one := range r.readings {
		one.deletes--
	}
	code := 0
	if !r.process.killed && r.whole {
		code = r.last().Code
	}
	w.tell(r.host.column, clients, "request %d: %s", r.number, outcome(code))
	until := w.clock
	switch code {
	case http.StatusOK:
	case http.StatusServiceUnavailable: // nothing was deleted
		return
	case 0, http.StatusGatewayTimeout:
		until = never
	default:
		w.violate("request %d is answered with %d: %s", r.number, code, r.last().Body)
		return
	}
	for _, one := range w.ledger.ofSensor(r.stream, r.sensor) {
		switch p := one.home.process; {
		case one.gone():
		case one.home != r.host && (!r.reached[one.home] || p == nil || p != r.others[one.home]):
			one.forgiven = true // its daemon may store it later, or again
		case until != never && slices.Contains(r.must, one):
			one.deleted = w.requests
			one.note(removes, r.began, until)
		default:
			one.mayBeGone()
			one.note(mayRemove, r.began, until)
		}
	}
}

// outcome is a status code in a trace.
func outcome(code int) string {
	if code == 0 {
		return "no answer"
	}
	return fmt.Sprint(code)
}

// landed allows what a command that was on its way for long may do: a write may store deleted
// readings again, and a deletion may concern later ones, see docs/api.md.
func (w *world) landed(c *Command) {
	for _, one := range w.ledger.readings {
		switch {
		case one.stream != streamOf(c.Collection):
		case c.Name == "delete":
			one.mayBeGone()
			one.note(mayRemove, w.clock, never) // a majority may have it later, or never
		case (c.Name == "insert" || c.Name == "update") && (one.gone() || one.uncertain || one.deletes > 0):
			one.forgiven, w.returned[one.stream] = true, true
		}
	}
}
