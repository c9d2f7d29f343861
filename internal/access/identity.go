package access

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An Identity is a sender that is known. Its methods may be called by several
// goroutines. It stays the same while its name and its credentials do: a change
// of what it may do takes effect in place.
type Identity struct {
	Name string // as the operator calls it; empty: anyone, where nobody is asked

	guard *Guard // nil: nobody is asked
	may   atomic.Pointer[rights]
	usage *usage      // of its quota, which outlives a change of credentials
	gone  atomic.Bool // the access file does not hold it any more
}

// rights is what an identity may do.
type rights struct {
	scopes  []Scope
	prefix  string    // of sensors; empty: all
	expires time.Time // zero: never
	own     Quota     // what the access file gives; the rest is Unset
	quota   Quota     // own, and the defaults behind it
}

// everyone is who comes where nobody is asked and nothing is counted.
var everyone = &Identity{} //nolint:gochecknoglobals // it never changes

// rights returns what the identity may do; nil: everything.
func (i *Identity) rights() *rights {
	if i.guard == nil {
		return nil
	}
	return i.may.Load()
}

// Require returns a *telemetry.Error of kind Forbidden unless the identity has
// the scope.
func (i *Identity) Require(scope Scope) error {
	r := i.rights()
	if r == nil || !i.guard.Asks() || slices.Contains(r.scopes, scope) || slices.Contains(r.scopes, Admin) {
		return nil
	}
	return i.guard.refuse(telemetry.Forbidden, codeScope, "this needs the scope %s, and %s has only %s", scope, i.Name, joinScopes(r.scopes))
}

func joinScopes(scopes []Scope) string {
	names := make([]string, len(scopes))
	for n, s := range scopes {
		names[n] = string(s)
	}
	return strings.Join(names, ", ")
}

// Limited reports whether the identity may deal with some sensors only.
func (i *Identity) Limited() bool { return i.Prefix() != "" }

// Prefix is what the ids of the sensors begin with that the identity may deal
// with; empty: it may deal with all.
func (i *Identity) Prefix() string {
	r := i.rights()
	if r == nil {
		return ""
	}
	return r.prefix
}

// Allows reports whether the identity may deal with the sensor.
func (i *Identity) Allows(sensor string) bool { return strings.HasPrefix(sensor, i.Prefix()) }

// RequireSensor returns a *telemetry.Error of kind Forbidden unless the identity
// may deal with the sensor.
func (i *Identity) RequireSensor(sensor string) error {
	if i.Allows(sensor) {
		return nil
	}
	return i.guard.refuse(telemetry.Forbidden, codeSensor, "%s may deal only with sensors whose ids begin with %q", i.Name, i.Prefix())
}

// Check returns a *telemetry.Error of kind Unauthenticated when the identity is
// revoked or has expired since it was identified. What lasts, such as a stream of
// messages, asks it for each of them.
func (i *Identity) Check() error {
	if i.guard == nil || !i.guard.Asks() {
		return nil
	}
	now := i.guard.now()
	i.guard.look(now)
	if i.gone.Load() {
		return i.guard.refuse(telemetry.Unauthenticated, codeUnknown, "the access of %s was revoked", i.Name)
	}
	return i.checkExpiry(i.may.Load(), now)
}

func (i *Identity) checkExpiry(r *rights, now time.Time) error {
	if r.expires.IsZero() || now.Before(r.expires) {
		return nil
	}
	return i.guard.refuse(telemetry.Unauthenticated, codeExpired, "the access of %s expired at %s", i.Name, r.expires.UTC().Format(time.RFC3339))
}
