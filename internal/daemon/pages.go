package daemon

import (
	"net/http"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/daemon/openapi"
)

// hosts are the names by which a listener at the address may be called; nil:
// all, where everybody is asked who he is, or everybody is let in.
func (c *Settings) hosts(address string) *access.Hosts {
	if c.AccessFile != "" || c.AllowUnauthenticated == On {
		return nil
	}
	return access.NewHosts(address)
}

// sameSite keeps pages of other sites from the data listener, which a browser on
// this machine reaches for them: they change nothing, and those that made their
// own name lead here read nothing. The requests that the front answers need none
// of it, for what a browser sends has headers that no simple request has.
func (d *daemon) sameSite(next http.Handler) http.Handler {
	hosts := d.cfg.hosts(d.cfg.HTTPAddr)
	return access.SameOrigin(d.door.WriteProblem, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		switch {
		case r.Method == http.MethodPost: // to send readings
			err = hosts.CheckPage(r)
		case r.URL.Path == "/ping", r.URL.Path == "/health", r.URL.Path == openapi.Path: // tell nothing of readings
		default:
			err = hosts.Check(r)
		}
		if err != nil {
			d.door.WriteProblem(w, err)
			return
		}
		next.ServeHTTP(w, r)
	}))
}
