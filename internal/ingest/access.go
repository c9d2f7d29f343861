package ingest

import (
	"net/http"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// identify returns the sender of a request, before its body is read and memory is
// reserved for it. A sender with none of the scopes is refused.
func (srv *Server) identify(c access.Credentials, scopes ...access.Scope) (*access.Identity, error) {
	who, err := srv.config.Guard.Identify(c)
	if err != nil {
		return nil, err
	}
	return who, who.Require(scopes...)
}

// identifyRequest is identify for a request over HTTP.
func (srv *Server) identifyRequest(r *http.Request, scopes ...access.Scope) (*access.Identity, error) {
	var credentials access.Credentials
	if srv.config.Guard != nil {
		credentials = access.OfRequest(r)
	}
	return srv.identify(credentials, scopes...)
}

// guarded wraps a handler that requires one of the scopes.
func (srv *Server) guarded(next http.Handler, scopes ...access.Scope) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := srv.identifyRequest(r, scopes...); err != nil {
			srv.config.Guard.DelayRefusal(r.Context(), err)
			srv.WriteProblem(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowSensor refuses a sensor that the sender has no access to.
func (in *intake) allowSensor(sensor string) *telemetry.Refusal {
	if in.who.Allows(sensor) {
		return nil
	}
	return telemetry.Refuse(telemetry.SensorForbidden, "%s may not send for sensor %s; the ids of its sensors begin with %s",
		in.who.Name, telemetry.Quote([]byte(sensor)), telemetry.Quote([]byte(in.who.Prefix())))
}

// admit charges the readings to the sender's quota. Only the journal knows whether a request
// is a repetition, so a repetition is charged too, and refunded later.
func (in *intake) admit(b *batch.Batch) error {
	return in.who.Admit(b.Len(), func(yield func(string) bool) {
		for i := range b.SeriesLen() {
			if !yield(b.SeriesAt(i).Sensor) {
				return
			}
		}
	})
}
