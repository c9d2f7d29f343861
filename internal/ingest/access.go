package ingest

import (
	"context"
	"net/http"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A sender is identified before its body is read and before any memory is reserved for
// it.

// Codes that clients of InfluxDB know, in place of those that say more.
const (
	codeInfluxUnauthorized = "unauthorized"
	codeInfluxForbidden    = "forbidden"
)

// identify returns who sent the request; nil without a Guard. A sender that has none of
// the scopes is refused.
func (srv *Server) identify(c access.Credentials, scopes ...access.Scope) (*access.Identity, error) {
	if srv.config.Guard == nil {
		return nil, nil
	}
	who, err := srv.config.Guard.Identify(c)
	if err != nil {
		return nil, err
	}
	return who, requireOne(who, scopes)
}

// requireOne returns an error unless the identity has one of the scopes, or none
// is asked for.
func requireOne(who *access.Identity, scopes []access.Scope) error {
	var refused error
	for _, scope := range scopes {
		err := who.Require(scope)
		if err == nil {
			return nil
		}
		if refused == nil {
			refused = err
		}
	}
	return refused
}

// identifyRequest is identify for a request over HTTP.
func (srv *Server) identifyRequest(r *http.Request, scopes ...access.Scope) (*access.Identity, error) {
	if srv.config.Guard == nil {
		return nil, nil
	}
	return srv.identify(access.OfRequest(r), scopes...)
}

// guarded wraps a handler that those may reach who have one of the scopes.
func (srv *Server) guarded(next http.Handler, scopes ...access.Scope) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := srv.identifyRequest(r, scopes...); err != nil {
			srv.config.Guard.Hold(r.Context(), err)
			srv.WriteProblem(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowSensor refuses a sensor that the sender may not send for.
func (in *intake) allowSensor(sensor string) *telemetry.Refusal {
	if in.who.Allows(sensor) {
		return nil
	}
	return telemetry.Refuse(telemetry.SensorForbidden, "%s may not send for sensor %s; the ids of its sensors begin with %s",
		in.who.Name, telemetry.Quote([]byte(sensor)), telemetry.Quote([]byte(in.who.Prefix())))
}

// admit takes the readings out of their sender's quota. A repetition is told
// from other requests by the journal alone, which gets it when some of the quota
// is left; refund undoes its part.
func (in *intake) admit(b *batch.Batch) error {
	if in.who == nil {
		return nil
	}
	return in.who.Admit(b.Len(), func(yield func(string) bool) {
		for i := range b.SeriesLen() {
			if !yield(b.SeriesAt(i).Sensor) {
				return
			}
		}
	})
}

// refund gives readings back to their sender's quota that were taken before, or
// that the journal had no room for. One that is in doubt stays counted, and so
// does one that is wrong, such as a key that was used with another body.
func (in *intake) refund(readings int) {
	if in.who != nil {
		in.who.Refund(readings)
	}
}

// challenge says how to authenticate, in an answer to an unauthenticated client.
func challenge(h http.Header, e *telemetry.Error) {
	if e.Kind == telemetry.Unauthenticated {
		access.Challenge(h)
	}
}

// influxWords returns the code of an error as clients of InfluxDB look for it,
// and the message, in front of which our own code stands if it is another one.
func influxWords(e *telemetry.Error) (code, message string) {
	switch e.Kind {
	case telemetry.Unauthenticated:
		return codeInfluxUnauthorized, e.Code + ": " + e.Message
	case telemetry.Forbidden:
		return codeInfluxForbidden, e.Code + ": " + e.Message
	default:
		return e.Code, e.Message
	}
}

// stillMay returns an error if who makes a call may not write any more: a stream
// may last longer than the access of who began it.
func (srv *Server) stillMay(ctx context.Context) error {
	if srv.config.Guard == nil {
		return nil
	}
	if err := access.StillKnown(ctx); err != nil {
		return err
	}
	return access.From(ctx).Require(access.Ingest)
}
