package access

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Codes of requests that pages of other sites have a browser send.
const (
	codeHost        = "host_forbidden"
	codeCrossOrigin = "cross_origin"
)

// Hosts are the names by which a listener may be called that asks nobody who he
// is. Such a listener is safe because only this machine reaches it, and a browser
// on this machine runs pages of anybody. A page may not read the answers of
// another site, unless it makes that the same one: the name that it came from is
// made to lead to 127.0.0.1. But its requests still hold that name, so what is
// called by a name that is not its own is not for that page. Addresses cannot be
// made to lead elsewhere. Nil Hosts are all.
type Hosts struct{ own string }

// NewHosts returns the hosts of a listener at an address, HOST:PORT: every IP
// address, localhost, and HOST.
func NewHosts(address string) *Hosts {
	return &Hosts{own: hostOf(address)}
}

// Check returns a *telemetry.Error of kind Forbidden when a request calls the
// listener by another name.
func (h *Hosts) Check(r *http.Request) error {
	if h == nil {
		return nil
	}
	host := hostOf(r.Host)
	if host == "" || host == "localhost" || host == h.own { // a browser always says which
		return nil
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	return telemetry.Errorf(telemetry.Forbidden, codeHost,
		"this is called by the name %s, as a page of another site could: nobody is asked who he is here, so call it by its IP address, by localhost or by the name in the listener's address, "+
			"or start the daemon with --access-file FILE, or with --allow-unauthenticated on", shownText(host))
}

// CheckPage is Check for requests to send readings, of which only those are
// refused that a browser sends: senders may know this machine by any name.
func (h *Hosts) CheckPage(r *http.Request) error {
	if h == nil || len(r.Header["Origin"]) == 0 && len(r.Header["Sec-Fetch-Site"]) == 0 {
		return nil
	}
	return h.Check(r)
}

// hostOf returns the host of HOST or HOST:PORT in small letters, without
// brackets and without the dot that may end a name.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// SameOrigin wraps a handler so that pages of other sites cannot change anything:
// a browser sends their forms without asking, and adds by itself the password
// that was typed in for this site. Programs that are no browsers say nothing of
// sites. problem writes a refusal.
func SameOrigin(problem func(http.ResponseWriter, error), next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem(w, telemetry.Errorf(telemetry.Forbidden, codeCrossOrigin,
			"%s %s was sent by a page of another site; send it without a browser, or from a page of this listener", shownText(r.Method), shownText(r.URL.Path)))
	}))
	return protection.Handler(next)
}
