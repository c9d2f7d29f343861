// Package access decides who may do what: it knows senders by tokens and client
// certificates, what they may do, and how much of it.
//
//	request ─ credentials ─▶ Guard ─▶ Identity ─┬─ Require: 403 without the scope
//	             401 if nobody is known by them  ├─ Allows: only sensors of its own
//	             429 beyond its requests         └─ Admit: 429 beyond its readings
//
// What is refused waits for a moment before it is answered, see Hold: so who does
// not stop asking when he is refused cannot keep the daemon busy with refusing.
package access

import (
	"context"
	"crypto/x509"
	"net/http"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Scope is a kind of thing that a sender may do.
type Scope string

// The scopes. Admin includes the others.
const (
	Ingest Scope = "ingest" // send readings
	Read   Scope = "read"   // read them back, and see metrics, status and the live page
	Admin  Scope = "admin"  // delete, flush, hold, profile
)

// Credentials are what a request shows of its sender. With both, the secret
// decides who that is.
type Credentials struct {
	Secret      string            // a token; empty: none was sent
	Certificate *x509.Certificate // of a client, checked against the authority; nil: none

	chain   []*x509.Certificate // from the certificate to the authority, as the handshake found them
	problem string              // why what was sent is no credentials; empty: nothing is wrong
}

type contextKey struct{}

// With returns a context that carries the identity.
func With(ctx context.Context, i *Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, i)
}

type shownKey struct{}

// WithShown is With for what lasts, such as a stream of messages: StillKnown looks
// again at the credentials by which the identity was found.
func WithShown(ctx context.Context, i *Identity, c Credentials) context.Context {
	if c.Secret == "" && c.Certificate != nil {
		ctx = context.WithValue(ctx, shownKey{}, &c)
	}
	return With(ctx, i)
}

// StillKnown is Identify for each message of a stream: it returns a
// *telemetry.Error of kind Unauthenticated when the identity that the context
// carries, or the certificate that it showed, has come to its end since, and one of
// kind Quota when that is used up.
func StillKnown(ctx context.Context) error {
	i := From(ctx)
	if c, ok := ctx.Value(shownKey{}).(*Credentials); ok && i.guard.Asks() {
		if err := i.guard.checkCertificate(c, i.guard.now()); err != nil {
			return err
		}
	}
	if err := i.Check(); err != nil || i.guard == nil {
		return err
	}
	return i.ask(i.guard.now())
}

// From returns the identity that the context carries; anyone, if none.
func From(ctx context.Context) *Identity {
	if i, ok := ctx.Value(contextKey{}).(*Identity); ok {
		return i
	}
	return everyone
}

// Challenge adds to the head of an answer with status 401 how to say who one is.
// Browsers ask for a name, which can be any, and a password, which is the token.
func Challenge(h http.Header) {
	h["Www-Authenticate"] = []string{`Bearer realm="brim"`, `Basic realm="brim", charset="UTF-8"`}
}

// Require wraps a handler so that it is reached only by those who have the
// scope. The identity is in its requests' context; problem writes a refusal, whose
// head asks for credentials already where they are what is missing.
func Require(g *Guard, scope Scope, problem func(http.ResponseWriter, error), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := g.Identify(OfRequest(r))
		if err == nil {
			err = i.Require(scope)
		}
		if err != nil {
			g.Hold(r.Context(), err)
			if telemetry.KindOf(err) == telemetry.Unauthenticated {
				Challenge(w.Header())
			}
			problem(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(With(r.Context(), i)))
	})
}
