package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
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
			config.RootCAs = x509.NewCertPool() // a machine may have none
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
// timeout, 0: none. It follows no redirect, for a daemon makes none, and a redirect could
// lead anywhere.
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

// A site is where a command works that looks at, or repairs, what daemons
// write: a MongoDB, and the streams in it.
type site struct {
	uri      string // may have a secret
	database string
	streams  []daemon.Stream // as the daemon has them, or else the configuration
	admin    string          // of a daemon, host:port or https://host:port
	caller   *caller
	// thresholds is the file of what the doctor holds signals against; empty:
	// the built-in ones.
	thresholds string
	daemon     *daemon.Status // of the daemon there if it writes to this MongoDB; nil: none answers
	chosen     string         // name of the stream that was asked for; empty: the default one
}

// siteSettings are the daemon's settings that say where it writes.
var siteSettings = []string{daemon.UriSetting, daemon.UriFileSetting, "database", "admin-addr", "stream"}

// siteFlags adds the flags that name a site, which are the daemon's own, so
// that its environment and its file can be used. The result is to be called
// when the flags are parsed.
func siteFlags(flags *pflag.FlagSet) func(context.Context, *process) (*site, error) {
	path := flags.String("config", "", "YAML `FILE` with the daemon's settings and streams")
	texts := make(map[string]*string)
	for _, s := range (&daemon.Settings{}).All() {
		if !slices.Contains(siteSettings, s.Name) {
			continue
		}
		name, usage := s.Name, s.Usage
		switch name {
		case daemon.UriSetting:
			usage = "MongoDB; empty: that of the daemon at --admin"
		case daemon.UriFileSetting:
			usage = "file that holds the URI, which has no place in a list of processes if it has a password"
		case "admin-addr":
			name, usage = "admin", "a daemon's admin listener, which tells its MongoDB and its streams; https://HOST:PORT with TLS"
		case "stream":
			usage = "the stream"
		}
		text := s.Initial
		set := func(given string) error { text = given; return nil }
		if name == "admin" {
			set = adminListener(&text)
		}
		flags.Var(&flagText{text: &text, kind: s.Kind, set: set}, name, usage)
		texts[name] = &text
	}
	access := clientFlags(flags)
	return func(ctx context.Context, p *process) (*site, error) {
		given := make(map[string]string)
		for name, text := range texts {
			if flags.Changed(name) {
				given[strings.Replace(name, "admin", "admin-addr", 1)] = hostPort(*text)
			}
		}
		c, err := daemon.Sources{Flags: given, Env: p.env, Path: *path}.Load()
		if err != nil {
			return nil, err
		}
		caller, err := access(p)
		if err != nil {
			return nil, err
		}
		admin := c.AdminAddr
		if flags.Changed("admin") {
			admin = *texts["admin"]
		} else if c.TLSCert != "" { // the configuration is the daemon's own
			admin = schemeTLS + admin
		}
		out, err := caller.findSite(ctx, c, admin)
		if err == nil && flags.Changed("stream") {
			out.chosen = *texts["stream"]
		}
		return out, err
	}
}

// adminListener takes a daemon's admin listener: the setting of that name would
// be complained about under another.
func adminListener(place *string) func(string) error {
	return func(s string) error {
		if adminAddress(place)(s) != nil {
			return fmt.Errorf("%q is not HOST:PORT of a daemon's admin listener, like 127.0.0.1:8432", s)
		}
		return nil
	}
}

// findSite asks the daemon for what the configuration does not say.
func (c *caller) findSite(ctx context.Context, cfg *daemon.Config, admin string) (*site, error) {
	s := &site{uri: cfg.MongoURI, database: cfg.Database, streams: cfg.Streams, admin: admin, caller: c, chosen: cfg.Default.Name, thresholds: cfg.Thresholds}
	asked, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	about, err := c.askStatus(asked, admin)
	switch {
	case s.uri != "" && (err != nil || !isAt(about, s.uri) || about.Database != s.database):
		return s, nil // what answers there is no daemon of this MongoDB
	case err != nil:
		return nil, fmt.Errorf("there is no --mongo-uri, and no daemon tells its MongoDB: %w", err)
	case about.MongoURI == "":
		return nil, fmt.Errorf("the daemon at %s stores nothing in MongoDB yet, or not at all; name a MongoDB by --mongo-uri", s.admin)
	case s.uri == "" && about.Mongod == nil && strings.Contains(about.MongoURI, config.Masked):
		return nil, fmt.Errorf("the daemon at %s does not tell the password of its MongoDB; give its --mongo-uri (%s), or its --config", s.admin, mongoURIVariable())
	case s.uri == "":
		if s.uri, err = reachableURI(about); err != nil {
			return nil, fmt.Errorf("the embedded MongoDB of the daemon at %s asks for a password: %w", s.admin, err)
		}
		s.database = about.Database
	}
	s.daemon, s.chosen = about, defaultStream(about)
	s.streams, err = streamsOf(about)
	return s, err
}

// metrics returns the daemon's metrics.
func (s *site) metrics(parent context.Context) (scrape.Sample, error) {
	ctx, cancel := context.WithTimeout(parent, lookTimeout)
	defer cancel()
	return scrape.Get(ctx, s.caller.client(0), adminURL(s.admin)+"/metrics")
}

// writePath asks the daemon how long its writes take.
func (s *site) writePath(ctx context.Context) doctor.WritePath {
	seen, err := s.metrics(ctx)
	if err != nil {
		return doctor.WritePath{Why: "the daemon's metrics cannot be read: " + err.Error()}
	}
	return doctor.WritePathOf(seen)
}

// isAt reports whether the daemon stores in the MongoDB at a URI. An embedded
// one has other users than the daemon's.
func isAt(s *daemon.Status, uri string) bool {
	if s.Mongod != nil {
		return config.Deployment(s.MongoURI) == config.Deployment(uri)
	}
	return s.MongoURI == config.MaskURI(uri)
}

// reachableURI is the daemon's, with the password that an embedded MongoDB
// keeps in a file beside its data.
func reachableURI(s *daemon.Status) (string, error) {
	if s.Mongod == nil || !s.Mongod.Auth {
		return s.MongoURI, nil
	}
	path := s.Mongod.URIFile
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("it is in %s, which only the user that runs the daemon may read; run this command as that user, or give --mongo-uri (%s)", path, mongoURIVariable())
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("it is in %s of the daemon's machine, which is not here; run this command there, or give --mongo-uri (%s)", path, mongoURIVariable())
	case err != nil:
		return "", fmt.Errorf("read it from the file that the daemon names: %w", err)
	}
	uri := strings.TrimSpace(string(text))
	if config.Deployment(uri) != config.Deployment(s.MongoURI) {
		return "", fmt.Errorf("what is in %s is not the URI of %s; is it of another machine? Run this command on the daemon's, or give --mongo-uri (%s)", path, s.MongoURI, mongoURIVariable())
	}
	return uri, nil
}

func mongoURIVariable() string { return daemon.Setting{Name: "mongo-uri"}.Variable() }

// askStatus asks a daemon about itself.
func (c *caller) askStatus(ctx context.Context, admin string) (*daemon.Status, error) {
	body, err := c.askAdmin(ctx, http.MethodGet, admin, "/status")
	if err != nil {
		return nil, err
	}
	var s daemon.Status
	if err := json.Unmarshal(body, &s); err != nil || s.Addresses.HTTP == "" {
		return nil, fmt.Errorf("--admin: what %s answers is not the status of a daemon; %s", admin, adminHint)
	}
	return &s, nil
}

// streamsOf are the daemon's, as it is configured.
func streamsOf(s *daemon.Status) ([]daemon.Stream, error) {
	out := make([]daemon.Stream, 0, len(s.Streams))
	for _, one := range s.Streams {
		granularity := time.Duration(one.GranularitySeconds) * time.Second
		if one.Name == "" || granularity <= 0 {
			return nil, errors.New("the daemon does not tell its streams: is it of another version?")
		}
		out = append(out, daemon.Stream{
			Name: one.Name, Storage: store.Storage(one.Storage), Granularity: granularity,
			BucketMaxReadings: one.BucketMaxReadings, BucketMaxBytes: one.BucketMaxBytes, MaxReadingsPerUpdate: one.MaxReadingsPerUpdate,
			Compressor: store.Compressor(one.Compressor), Retention: time.Duration(one.RetentionSeconds) * time.Second,
		})
	}
	return out, nil
}

func defaultStream(s *daemon.Status) string {
	for _, one := range s.Streams {
		if one.Default {
			return one.Name
		}
	}
	return ""
}

// stream returns the one that is to be worked on.
func (s *site) stream() (daemon.Stream, error) {
	names := make([]string, 0, len(s.streams))
	for _, one := range s.streams {
		if one.Name == s.chosen {
			return one, nil
		}
		names = append(names, one.Name)
	}
	return daemon.Stream{}, config.Usage(fmt.Errorf("--stream: there is no stream %q%s; allowed are %s", s.chosen, config.DidYouMean("", s.chosen, names), strings.Join(names, ", ")))
}

// connect prepares a connection with the concerns of the daemon's. The server
// shows it under the command's name.
func (s *site) connect(command string, log *slog.Logger) (*store.Connection, error) {
	return store.Connect(store.ConnectionConfig{URI: s.uri, Database: s.database, App: "brim " + command, Logger: log})
}
