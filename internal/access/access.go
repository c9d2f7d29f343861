// Package access authenticates clients by tokens and certificates, and decides what
// they may do and how much.
//
//	request ─ credentials ─▶ Guard ─▶ Identity ─┬─ Require: 403 without the scope
//	             401 if they are unknown         ├─ Allows: only sensors with its prefix
//	             429 over the request quota      └─ Admit: 429 over the reading quota
//
// The files: guard.go finds the identity, quota.go counts what it uses, file.go reads
// and edits the access file, watch.go applies file changes, credentials.go takes
// credentials from a request, tls.go and listener.go protect the listeners.
package access

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Scope is a group of operations.
type Scope string

// The scopes. Admin includes the others.
const (
	Ingest Scope = "ingest" // send readings
	Read   Scope = "read"   // read them back, and see metrics, status and the live page
	Admin  Scope = "admin"  // delete, flush, seal, profile
)

var scopes = [...]Scope{Ingest, Read, Admin}

func joinScopes(scopes []Scope) string {
	names := make([]string, len(scopes))
	for n, s := range scopes {
		names[n] = string(s)
	}
	return strings.Join(names, ", ")
}

// An Identity is an authenticated client. Its methods may be called from several
// goroutines. A change of its rights takes effect in place; only a change of its name or
// credentials makes another Identity.
type Identity struct {
	Name string // in the access file; empty without authentication

	guard  *Guard // nil: unrestricted
	rights atomic.Pointer[rights]
	usage  *usage      // survives a change of credentials; nil: unrestricted
	gone   atomic.Bool // no longer in the access file
}

// rights are what an identity may do.
type rights struct {
	scopes  []Scope
	prefix  string    // of sensors; empty: all
	expires time.Time // zero: never
	own     Quota     // from the access file; other limits are unset
	quota   Quota     // own, completed by the defaults
}

// unrestricted is the identity of all clients if there is no Guard.
var unrestricted = &Identity{} //nolint:gochecknoglobals // it never changes

// everything is what an identity without a Guard may do.
var everything = &rights{scopes: []Scope{Admin}} //nolint:gochecknoglobals // it never changes

// may returns what the identity may do.
func (i *Identity) may() *rights {
	if i.guard == nil {
		return everything
	}
	return i.rights.Load()
}

func newIdentity(name string, g *Guard, u *usage, r *rights) *Identity {
	i := &Identity{Name: name, guard: g, usage: u}
	i.rights.Store(r)
	return i
}

// Require returns a *telemetry.Error of kind Forbidden unless the identity has one of the
// scopes, or no scope is required.
func (i *Identity) Require(scopes ...Scope) error {
	r := i.may()
	if len(scopes) == 0 || slices.Contains(r.scopes, Admin) || slices.ContainsFunc(scopes, func(s Scope) bool { return slices.Contains(r.scopes, s) }) {
		return nil
	}
	return i.guard.refuse(telemetry.Forbidden, codeScope, "this needs the scope %s, and %s has only %s", scopes[0], i.Name, joinScopes(r.scopes))
}

// Prefix is the prefix of the ids of the sensors that the identity may access; empty: all.
func (i *Identity) Prefix() string { return i.may().prefix }

// Limited reports whether the identity may access only some sensors.
func (i *Identity) Limited() bool { return i.Prefix() != "" }

// Allows reports whether the identity may access the sensor.
func (i *Identity) Allows(sensor string) bool { return strings.HasPrefix(sensor, i.Prefix()) }

// RequireSensor returns a *telemetry.Error of kind Forbidden unless the identity may
// access the sensor.
func (i *Identity) RequireSensor(sensor string) error {
	if i.Allows(sensor) {
		return nil
	}
	return i.guard.refuse(telemetry.Forbidden, codeSensor, "%s may access only sensors whose ids begin with %q", i.Name, i.Prefix())
}

// Check returns a *telemetry.Error of kind Unauthenticated if the identity was
// revoked or has expired. A long-lived stream calls it for each message.
func (i *Identity) Check() error {
	if i.gone.Load() {
		return i.guard.refuse(telemetry.Unauthenticated, codeUnknown, "the access of %s was revoked", i.Name)
	}
	return i.checkExpiry()
}

func (i *Identity) checkExpiry() error {
	end := i.may().expires
	if end.IsZero() || i.guard.now().Before(end) {
		return nil
	}
	return i.guard.refuse(telemetry.Unauthenticated, codeExpired, "the access of %s expired at %s", i.Name, end.UTC().Format(time.RFC3339))
}

type (
	identityKey    struct{}
	credentialsKey struct{}
)

// With returns a context that carries the identity.
func With(ctx context.Context, i *Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// From returns the identity in the context; an unrestricted one if there is none.
func From(ctx context.Context) *Identity {
	if i, ok := ctx.Value(identityKey{}).(*Identity); ok {
		return i
	}
	return unrestricted
}

// WithCredentials is With for a long-lived stream: Recheck checks the credentials again.
func WithCredentials(ctx context.Context, i *Identity, c Credentials) context.Context {
	if c.Secret == "" && c.Certificate != nil {
		ctx = context.WithValue(ctx, credentialsKey{}, &c)
	}
	return With(ctx, i)
}

// Recheck is Identify for each message of a stream: it returns a *telemetry.Error
// of kind Unauthenticated if the identity in the context, or its certificate, is no
// longer valid, and one of kind Quota if its requests are used up.
func Recheck(ctx context.Context) error {
	i := From(ctx)
	if c, ok := ctx.Value(credentialsKey{}).(*Credentials); ok && i.guard.Authenticates() {
		if err := i.guard.checkClientCertificate(c, i.guard.now()); err != nil {
			return err
		}
	}
	if err := i.Check(); err != nil {
		return err
	}
	return i.countRequests(1)
}

// Challenge adds to the header of a 401 answer how to authenticate. Browsers ask for a
// name, which is ignored, and a password, which is the token.
func Challenge(h http.Header) {
	h["Www-Authenticate"] = []string{`Bearer realm="brim"`, `Basic realm="brim", charset="UTF-8"`}
}

// Require wraps a handler that requires the scope. The handler gets requests with the
// identity in their context. problem writes a refusal.
func Require(g *Guard, scope Scope, problem func(http.ResponseWriter, error), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := g.Identify(OfRequest(r))
		if err == nil {
			err = i.Require(scope)
		}
		if err != nil {
			g.DelayRefusal(r.Context(), err)
			if telemetry.KindOf(err) == telemetry.Unauthenticated {
				Challenge(w.Header())
			}
			problem(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(With(r.Context(), i)))
	})
}
