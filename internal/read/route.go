package read

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A call is a value of the label of that name.
type call string

const (
	callSensors  call = "sensors"
	callLatest   call = "latest"
	callReadings call = "readings"
	callSummary  call = "summary"
	callDelete   call = "delete"
)

// A route is a path with what can be done there.
type route struct {
	sensor string // of the path; empty: it has none
	get    call   // empty: not allowed
	delete bool
}

// root is the path that all others begin with.
const root = "/v1/sensors"

// findRoute returns the route of an escaped path. It is read here rather than by
// an http.ServeMux, which redirects where a sensor id holds "//" or "..".
func findRoute(escaped string) (rt route, ok bool) {
	if escaped == root {
		return route{get: callSensors}, true
	}
	rest, ok := strings.CutPrefix(escaped, root+"/")
	if !ok {
		return route{}, false
	}
	id, what, deeper := strings.Cut(rest, "/")
	sensor, err := url.PathUnescape(id)
	if err != nil || sensor == "" {
		return route{}, false
	}
	rt.sensor = sensor
	switch {
	case !deeper:
		rt.delete = true
	case what == string(callLatest), what == string(callReadings), what == string(callSummary):
		rt.get = call(what)
	default:
		return route{}, false
	}
	return rt, true
}

// Serves reports whether requests with the path are the reader's.
func Serves(u *url.URL) bool {
	p := u.EscapedPath()
	return p == root || strings.HasPrefix(p, root+"/")
}

// Paths are the paths that a reader serves, as the description of the API has them.
func Paths() map[string][]string {
	return map[string][]string{
		root:                          {http.MethodGet},
		root + "/{sensorId}":          {http.MethodDelete},
		root + "/{sensorId}/latest":   {http.MethodGet},
		root + "/{sensorId}/readings": {http.MethodGet},
		root + "/{sensorId}/summary":  {http.MethodGet},
	}
}

// Handler serves the paths for which Serves is true.
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

// route answers whom it is allowed to.
func (r *Reader) route(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	rt, ok := findRoute(req.URL.EscapedPath())
	if !ok {
		r.cfg.Problem(w, telemetry.Errorf(telemetry.NotFound, "path_unknown",
			"there is nothing at %s; a sensor has %s/{sensorId}/readings, /summary and /latest, and its id is percent-encoded", telemetry.Quote([]byte(req.URL.Path)), root))
		return
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead:
		if rt.get != "" {
			r.serve(w, req, rt.get, rt.sensor)
			return
		}
	case http.MethodDelete:
		if rt.delete {
			r.serve(w, req, callDelete, rt.sensor)
			return
		}
	}
	allowed := "GET, HEAD"
	if rt.delete {
		allowed = http.MethodDelete
	}
	w.Header().Set("Allow", allowed)
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(http.StatusMethodNotAllowed)
	_, _ = w.Write([]byte(`{"code":"method_not_allowed","message":"this method is not allowed here; allowed are ` + allowed + `"}` + "\n"))
}
