package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
)

// A caller is a command as a client of daemons: what it shows them of itself,
// and which certificates of theirs it trusts. A nil caller shows nothing, and
// trusts what the system does.
type caller struct {
	token string      // empty: none
	tls   *tls.Config // nil: what the system trusts, and no certificate
}

// clientFlags adds the flags of a command that calls a daemon. The result is to
// be called when the flags are parsed.
func clientFlags(flags *pflag.FlagSet) func(*process) (*caller, error) {
	tokenFile := flags.String("token-file", "", "`FILE` with the token to show the daemon; without it that in "+daemon.EnvToken+" ("+daemon.EnvTokenFile+")")
	ca := flags.String("ca", "", "`FILE` with certificates of authorities to trust beside the system's ("+daemon.EnvCA+")")
	cert := flags.String("cert", "", "`FILE` with a certificate to show the daemon ("+daemon.EnvCert+")")
	key := flags.String("key", "", "`FILE` with the key of --cert ("+daemon.EnvKey+")")
	return func(p *process) (*caller, error) {
		file := cmp.Or(*tokenFile, config.LookupEnv(p.env, daemon.EnvTokenFile))
		c := &caller{token: config.LookupEnv(p.env, daemon.EnvToken)}
		if *tokenFile != "" || c.token == "" {
			var err error
			if c.token, err = readToken(file); err != nil {
				return nil, config.Usage(fmt.Errorf("--token-file: %w", err))
			}
		}
		if err := checkToken(c.token); err != nil {
			return nil, config.Usage(fmt.Errorf("%s: %w", daemon.EnvToken, err))
		}
		var err error
		c.tls, err = clientTLS(cmp.Or(*ca, config.LookupEnv(p.env, daemon.EnvCA)), cmp.Or(*cert, config.LookupEnv(p.env, daemon.EnvCert)), cmp.Or(*key, config.LookupEnv(p.env, daemon.EnvKey)))
		if err != nil {
			return nil, config.Usage(err)
		}
		return c, nil
	}
}

// maxTokenFile is more than any token has, and less than a wrong file may.
const maxTokenFile = 4 << 10

// readToken reads the only line of a file; none, if it has no name.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return "", fmt.Errorf("%s is empty; it should hold a token, as `brim token create` prints it", path)
	}
	if err := checkToken(token); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return token, nil
}

// checkToken refuses what cannot stand in a header, without repeating it.
func checkToken(token string) error {
	if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errors.New("this is no token: it has spaces, line breaks or other characters that a token has not")
	}
	return nil
}

// clientTLS returns nil where nothing was asked for.
func clientTLS(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil //nolint:nilnil // the system's is meant
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		content, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool() // a machine may trust nobody
		}
		if !config.RootCAs.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("--ca: %s has no certificate in PEM", ca)
		}
	}
	switch {
	case cert == "" && key == "":
	case cert == "" || key == "":
		return nil, errors.New("--cert and --key belong together; give both")
	default:
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("--cert, --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// client returns an HTTP client that calls daemons as c; each request has the
// timeout, 0: none. It follows no redirect, for a daemon makes none, and where
// it would lead nobody knows.
func (c *caller) client(timeout time.Duration) *http.Client {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: lookTimeout, IdleConnTimeout: time.Minute}
	client := &http.Client{
		Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if c == nil {
		return client
	}
	transport.TLSClientConfig = c.tls.Clone()
	if c.token != "" {
		client.Transport = &tokenTransport{transport, c.token}
	}
	return client
}

// A tokenTransport shows a token with every request.
type tokenTransport struct {
	*http.Transport

	token string
}

// RoundTrip implements http.RoundTripper.
func (t *tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if inClear(r.URL) {
		if r.Body != nil {
			_ = r.Body.Close() // nothing was read of it
		}
		return nil, clearError{r.URL.Host}
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.token)
	return t.Transport.RoundTrip(r)
}

// inClear reports whether others can read what is sent there.
func inClear(u *url.URL) bool {
	return u.Scheme != "https" && u.Scheme != "grpcs" && !loopback(u.Hostname())
}

// mayShow refuses to show the token at a target where others could read it.
func (c *caller) mayShow(target string) error {
	u, err := url.Parse(target)
	if err != nil || c.token == "" || !inClear(u) {
		return nil //nolint:nilerr // who uses the target says what is wrong with it
	}
	return clearError{u.Host}
}

// A clearError says that a token was not sent where others could read it.
type clearError struct{ host string }

func (e clearError) Error() string {
	return fmt.Sprintf("the token was not sent, for everybody on the way to %s could read it: give an address of https:// or grpcs:// (and --ca FILE, if its authority is your own), or forward a port of this machine (ssh -L) and call 127.0.0.1", e.host)
}

// explainCall tells what to do about an error of a request to a daemon at where,
// which flag names.
func explainCall(where, flag string, err error) error {
	where = config.MaskUser(where)
	var inClear clearError
	var unverified *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &inClear):
		return config.Usage(fmt.Errorf("%s: %w", flag, inClear))
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no daemon answers at %s: start one with `brim serve`, or name another with %s", where, flag)
	case errors.As(err, &unverified):
		return fmt.Errorf("%s: the certificate of %s is not trusted: %w; --ca FILE names the authority that signed it", flag, where, unverified.Err)
	case errors.As(err, &noTLS), err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // which has no type
		return fmt.Errorf("%s: %s speaks no TLS; call it by http://", flag, where)
	}
	return err
}

// hint says what may help against a refusal.
func (c *caller) hint(status int) string {
	switch {
	case status == http.StatusUnauthorized && (c == nil || c.token == ""):
		return "; give a token by " + daemon.EnvToken + " or --token-file"
	case status == http.StatusUnauthorized:
		return "; the token that was shown is that of " + daemon.EnvToken + " or --token-file"
	}
	return ""
}

// wantsTLS reports whether an answer is that of a listener which speaks TLS to a
// request that came without.
func wantsTLS(status int, body []byte) bool {
	return status == http.StatusBadRequest && strings.Contains(string(body), "HTTP request to an HTTPS server")
}
