package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/pkg/client"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Where a daemon listens by default.
const (
	localDaemon = "http://127.0.0.1:8430"
	localGRPC   = "8431" // port
	localAdmin  = "127.0.0.1:8432"
)

// How long a daemon may take to answer.
const (
	adminTimeout = 10 * time.Second
	flushTimeout = time.Minute
)

// daemonURL returns the default of --url.
func daemonURL(p *process) string {
	return cmp.Or(config.LookupEnv(p.env, daemon.EnvURL), localDaemon)
}

// A caller has a command's credentials for daemons: its token and trusted certificates.
type caller struct {
	token string      // empty: none
	tls   *tls.Config // nil: system certificates, and no client certificate
}

// clientFlags adds the flags of a command that calls a daemon. Call the result after the flags are
// parsed.
func clientFlags(flags *pflag.FlagSet) func(*process) (*caller, error) {
	flags.SortFlags = false
	var tokenFile, ca, cert, key string
	add := flagAdder(flags)
	add("token-file", "", "FILE", "file with the token to send to the daemon; default: $"+daemon.EnvToken+", or the file $"+daemon.EnvTokenFile, config.Text(&tokenFile, nil))
	add("ca", "", "FILE", "file with certificates of authorities to trust in addition to the system's ("+daemon.EnvCA+")", config.Text(&ca, nil))
	add("cert", "", "FILE", "file with a client certificate ("+daemon.EnvCert+")", config.Text(&cert, nil))
	add("key", "", "FILE", "file with the key of --cert ("+daemon.EnvKey+")", config.Text(&key, nil))
	return func(p *process) (*caller, error) {
		c, ctx := &caller{}, context.Background()
		var err error
		variable, file := config.LookupEnv(p.env, daemon.EnvToken), cmp.Or(tokenFile, config.LookupEnv(p.env, daemon.EnvTokenFile))
		switch {
		case variable != "" && tokenFile == "":
			if c.token, err = client.Token(variable)(ctx); err != nil {
				return nil, config.Usage(fmt.Errorf("%s: %w", daemon.EnvToken, err))
			}
		case file != "":
			if c.token, err = client.TokenFile(file)(ctx); err != nil {
				return nil, config.Usage(fmt.Errorf("--token-file: %w", err))
			}
		}
		authorities, certificate, itsKey := cmp.Or(ca, config.LookupEnv(p.env, daemon.EnvCA)), cmp.Or(cert, config.LookupEnv(p.env, daemon.EnvCert)), cmp.Or(key, config.LookupEnv(p.env, daemon.EnvKey))
		if authorities+certificate+itsKey != "" {
			if c.tls, err = client.LoadTLS(authorities, certificate, itsKey); err != nil {
				return nil, config.Usage(fmt.Errorf("--ca, --cert, --key: %w", err))
			}
		}
		return c, nil
	}
}

// client returns an HTTP client with the credentials of c and a timeout per request; 0: none.
// It does not follow redirects, which a daemon never sends.
func (c *caller) client(timeout time.Duration) *http.Client {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: adminTimeout, IdleConnTimeout: time.Minute}
	out := &http.Client{
		Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	transport.TLSClientConfig = c.tls.Clone()
	if c.token != "" {
		out.Transport = &tokenTransport{transport, c}
	}
	return out
}

// A tokenTransport sends a token with every request.
type tokenTransport struct {
	*http.Transport

	caller *caller
}

// RoundTrip implements http.RoundTripper.
func (t *tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.caller.checkCleartext(r.URL); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // nothing was read from it
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.caller.token)
	return t.Transport.RoundTrip(r)
}

// checkCleartext refuses to send the token where others could read it.
func (c *caller) checkCleartext(u *url.URL) error {
	if c.token == "" || u.Scheme == "https" || u.Scheme == "grpcs" || loopback(u.Hostname()) {
		return nil
	}
	return cleartextError{u.Host}
}

// A cleartextError means that a token was not sent because others could have read it.
type cleartextError struct{ host string }

func (e cleartextError) Error() string {
	return fmt.Sprintf("the token was not sent, because anyone on the network path to %s could read it: give an address of https:// or grpcs:// (and --ca FILE, if the authority is your own), or forward a port of this machine (ssh -L) and call 127.0.0.1", e.host)
}

// loopback reports whether a host is a loopback or unspecified address.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// explainCall adds advice to the error of a request to a daemon at where, given by flag.
func explainCall(where, flag string, err error) error {
	where = config.MaskUser(where)
	var cleartext cleartextError
	var unverified *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &cleartext):
		return config.Usage(fmt.Errorf("%s: %w", flag, cleartext))
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no daemon answers at %s: start one with `brim serve`, or name another with %s", where, flag)
	case errors.As(err, &unverified):
		return fmt.Errorf("%s: the certificate of %s is not trusted: %w; --ca FILE names the authority that signed it", flag, where, unverified.Err)
	case errors.As(err, &noTLS), err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // untyped error
		return fmt.Errorf("%s: %s does not speak TLS; call it by http://", flag, where)
	}
	return err
}

// A remote is a daemon's listener that a flag selected.
type remote struct {
	*caller
	client     *http.Client
	base, flag string
	hint       string // advice if the answer is not a daemon's
}

// ask sends a request and returns the response, regardless of its status.
func (r *remote) ask(ctx context.Context, method, path string, header map[string]string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	where := config.MaskUser(r.base)
	resp, err := r.client.Do(req)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("ask %s%s (%s): no answer came in time", where, path, r.flag)
	case err != nil && speaksNoHTTP(err):
		return nil, fmt.Errorf("%s: %s does not speak HTTP; %s", r.flag, where, r.hint)
	case err != nil:
		return nil, explainCall(r.base, r.flag, fmt.Errorf("ask the daemon at %s: %w", where, err))
	}
	return resp, nil
}

// speaksNoHTTP reports whether an HTTP client's error means that the server does not speak HTTP:
// its response is not HTTP, or it sent data before the request, as gRPC does. Neither error has a
// type.
func speaksNoHTTP(err error) bool {
	return strings.Contains(err.Error(), "malformed HTTP") || strings.Contains(err.Error(), "readLoopPeekFail")
}

// accepted returns the response to a request with status 200, otherwise an error. accept is the
// media type of the response.
func (r *remote) accepted(ctx context.Context, method, path, accept string) (*http.Response, error) {
	resp, err := r.ask(ctx, method, path, map[string]string{"Accept": accept}, http.NoBody)
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read the daemon's answer: %w", err)
	}
	if resp.StatusCode == http.StatusBadRequest && strings.Contains(string(body), "HTTP request to an HTTPS server") {
		return nil, config.Usage(fmt.Errorf("%s: %s speaks TLS; use %s", r.flag, config.MaskUser(r.base), strings.Replace(config.MaskUser(r.base), "http://", "https://", 1)))
	}
	var problem struct{ Code, Message string }
	if json.Unmarshal(body, &problem) != nil || problem.Message == "" {
		return nil, &answerError{resp.StatusCode, "", fmt.Errorf("%s: the daemon answered %s without saying why; %s", r.flag, resp.Status, r.hint)}
	}
	err = fmt.Errorf("%s (%s, HTTP %d)%s", problem.Message, problem.Code, resp.StatusCode, r.tokenHint(resp.StatusCode))
	if missing := resp.Header.Get(telemetry.IncompleteHeader); missing != "" {
		err = fmt.Errorf("%w; %s", err, incompleteText(missing))
	}
	switch {
	case problem.Code == "path_unknown":
		err = fmt.Errorf("%s: %w; %s", r.flag, err, r.hint)
	case resp.StatusCode == http.StatusBadRequest:
		err = config.Usage(err)
	}
	return nil, &answerError{resp.StatusCode, problem.Code, err}
}

// read returns the body of a successful answer.
func (r *remote) read(ctx context.Context, method, path string) ([]byte, error) {
	resp, err := r.accepted(ctx, method, path, asJSON)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the daemon's answer: %w", err)
	}
	return body, nil
}

// incompleteText describes the header Brim-Incomplete.
func incompleteText(daemons string) string {
	return "readings that are acknowledged but not stored yet may be missing: " + daemons + " could not be asked for them"
}

// persist repeats a request with growing pauses while again allows it, up to patience.
func persist(ctx context.Context, patience time.Duration, again func(tried int, err error) bool, try func() error) error {
	const longest = 5 * time.Second
	until := time.Now().Add(patience)
	for tried := 0; ; tried++ {
		err := try()
		left := time.Until(until)
		if err == nil || left <= 0 || !again(tried, err) {
			return err
		}
		if machine.Pause(ctx, min(left, rand.N(min(longest, 100*time.Millisecond<<min(tried, 10))))) != nil {
			return context.Cause(ctx)
		}
	}
}

// An answerError is a response whose status is not 200.
type answerError struct {
	status int
	code   string // of the problem; empty: none
	err    error
}

func (e *answerError) Error() string { return e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

// tokenHint returns advice for a request that was refused.
func (c *caller) tokenHint(status int) string {
	switch {
	case status != http.StatusUnauthorized:
		return ""
	case c.token == "":
		return "; give a token by " + daemon.EnvToken + " or --token-file"
	default:
		return "; the token sent comes from " + daemon.EnvToken + " or --token-file"
	}
}

// withRemote adds the flags of a command that calls a daemon's HTTP listener, and runs it with that.
func withRemote(cmd *cobra.Command, p *process, run func(ctx context.Context, r *remote, args []string) error) {
	flags := cmd.Flags()
	base := flags.String("url", daemonURL(p), "`URL` of the daemon ("+daemon.EnvURL+")")
	access := clientFlags(flags)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if u, err := url.Parse(*base); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return config.Usage(fmt.Errorf("--url: %q is not the URL of a daemon, like %s", config.MaskUser(*base), localDaemon))
		}
		caller, err := access(p)
		if err != nil {
			return err
		}
		r := &remote{caller, caller.client(time.Minute), strings.TrimSuffix(*base, "/"), "--url", "is this its --http-addr?"}
		return run(cmd.Context(), r, args)
	}
}

// An admin listener is named HOST:PORT, or https://HOST:PORT with TLS.
const schemeTLS = "https://"

// adminAddress returns a setter for the address of an admin listener, which may begin with
// http://.
func adminAddress(place *string) func(string) error {
	return func(s string) error {
		var address string
		if config.Address(&address)(hostPort(s)) != nil {
			return fmt.Errorf("%q is not HOST:PORT of a daemon's admin listener, like %s", config.MaskUser(s), localAdmin)
		}
		*place = strings.TrimPrefix(strings.TrimSuffix(s, "/"), "http://")
		return nil
	}
}

// hostPort returns the address of an admin listener without its scheme.
func hostPort(admin string) string {
	return strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(admin, "/"), schemeTLS), "http://")
}

// adminURL returns the URL of an admin listener; an empty host means this machine.
func adminURL(admin string) string {
	scheme, address := "http://", hostPort(admin)
	if strings.HasPrefix(admin, schemeTLS) {
		scheme = schemeTLS
	}
	if strings.HasPrefix(address, ":") {
		address = "127.0.0.1" + address
	}
	return scheme + address
}

// adminHint is advice if --admin is not an admin listener.
const adminHint = "is it a daemon's HTTP or gRPC listener? The admin listener is another, by default " + localAdmin

// askAdmin asks the admin listener and returns its answer.
func (c *caller) askAdmin(ctx context.Context, timeout time.Duration, method, admin, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := &remote{c, c.client(0), adminURL(admin), "--admin", adminHint}
	defer r.client.CloseIdleConnections() // there are only a few requests
	return r.read(ctx, method, path)
}

// askStatus returns a daemon's status.
func (c *caller) askStatus(ctx context.Context, admin string) (*daemon.Status, error) {
	body, err := c.askAdmin(ctx, adminTimeout, http.MethodGet, admin, "/status")
	if err != nil {
		return nil, err
	}
	var s daemon.Status
	if err := json.Unmarshal(body, &s); err != nil || s.Addresses.HTTP == "" {
		return nil, fmt.Errorf("--admin: what %s answers is not the status of a daemon; %s", admin, adminHint)
	}
	return &s, nil
}

// metrics returns a daemon's metrics.
func (c *caller) metrics(parent context.Context, admin string) (scrape.Sample, error) {
	ctx, cancel := context.WithTimeout(parent, adminTimeout)
	defer cancel()
	web := c.client(0)
	defer web.CloseIdleConnections()
	sample, err := scrape.Get(ctx, web, adminURL(admin)+"/metrics")
	if err != nil {
		return nil, explainCall(admin, "--admin", err)
	}
	return sample, nil
}

// flushed makes a daemon store everything it has accepted.
func (c *caller) flushed(ctx context.Context, admin string) error {
	_, err := c.askAdmin(ctx, flushTimeout+adminTimeout, http.MethodPost, admin, "/flush?timeout="+flushTimeout.String())
	return err
}
