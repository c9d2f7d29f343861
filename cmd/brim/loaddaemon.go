package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/load/send"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// discover asks the daemon about the stream that is written to.
func (o *loadOptions) discover(ctx context.Context, p *process) (load.Stream, error) {
	about, err := o.adminStatus(ctx)
	if err != nil {
		return load.Stream{}, err
	}
	if about != nil {
		if err := o.otherDaemon(&about.Addresses); err != nil {
			return load.Stream{}, config.Usage(err)
		}
	}
	base, flag, err := o.httpSide(about)
	if err != nil {
		return load.Stream{}, err
	}
	s, err := send.Discover(ctx, o.caller.client(0), base, o.stream)
	if errors.Is(err, send.ErrUnauthorized) {
		return s, fmt.Errorf("%s: %w%s", flag, err, o.caller.hint(http.StatusUnauthorized))
	}
	if err != nil {
		return s, explainTarget(base, flag, err)
	}
	if s.GranularitySeconds < 1 {
		return s, fmt.Errorf("the daemon at %s does not tell the granularity of stream %q", base, s.Name)
	}
	if o.admin != "" && s.Storage == "memory" {
		_, _ = fmt.Fprintln(p.stderr, "the stream is kept in memory: nothing is written to MongoDB, and store_by_fill tells of memory")
	}
	return s, nil
}

// withScheme makes HOST:PORT a URL.
func withScheme(target string) string {
	if _, port, err := net.SplitHostPort(target); err == nil && !strings.Contains(target, "/") {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			return "http://" + target
		}
	}
	return target
}

// adminAddress takes host:port, or the URL that it is the address of. That it
// is of https stays.
func adminAddress(place *string) func(string) error {
	return func(s string) error {
		s = strings.TrimSuffix(s, "/")
		rest, secure := strings.CutPrefix(s, schemeTLS)
		var at string
		if err := config.Address(&at)(strings.TrimPrefix(rest, "http://")); err != nil {
			return err
		}
		if *place = at; secure {
			*place = schemeTLS + at
		}
		return nil
	}
}

// localGRPC is the port of the gRPC side of a local daemon, whose HTTP side is
// localDaemon.
const localGRPC = "8431"

// httpSide returns where the daemon answers HTTP, and the flag that says so. A
// gRPC target does not tell; the admin listener does, and where a local daemon
// has its sides by default is known.
func (o *loadOptions) httpSide(about *daemon.Status) (base, flag string, err error) {
	target, err := url.Parse(o.target)
	if err != nil {
		return "", "", config.Usage(errors.New("--target: it is not a URL"))
	}
	switch {
	case o.http != "":
		return o.http, "--http", nil
	case !strings.HasPrefix(target.Scheme, "grpc"):
		return o.target, "--target", nil
	case about != nil:
		base, err = o.reachable(about.Addresses.HTTP)
		return base, "--http", err
	case loopback(target.Hostname()) && target.Port() == localGRPC:
		return localDaemon, "--http", nil
	}
	return "", "", config.Usage(fmt.Errorf("--target: %s does not tell about its streams; name the HTTP side of the same daemon with --http, or its admin listener with --admin", target.Redacted()))
}

// loopback reports whether a host is this one, as seen by itself.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// adminStatus asks the admin listener about the daemon; nil without one.
func (o *loadOptions) adminStatus(ctx context.Context) (*daemon.Status, error) {
	if o.admin == "" {
		return nil, nil //nolint:nilnil // there is no admin listener to ask
	}
	ctx, cancel := context.WithTimeout(ctx, o.adminTimeout)
	defer cancel()
	return o.caller.askStatus(ctx, o.admin)
}

// otherDaemon tells that the admin listener is plainly that of another daemon
// than the target: both are on this machine, on ports that do not belong
// together. Of a name, another machine or a forwarded port that cannot be told.
func (o *loadOptions) otherDaemon(at *daemon.Addresses) error {
	adminHost, adminPort, err := net.SplitHostPort(hostPort(o.admin))
	if err != nil || adminHost != "" && !loopback(adminHost) {
		return nil //nolint:nilerr // it is not seen here
	}
	if _, port, err := net.SplitHostPort(at.Admin); err != nil || port != adminPort {
		return nil //nolint:nilerr // the port is forwarded: the daemon does not know those that are seen here
	}
	for _, side := range []struct{ flag, url string }{{"--target", o.target}, {"--http", o.http}} {
		u, err := url.Parse(side.url)
		if err != nil || !loopback(u.Hostname()) {
			continue
		}
		listens, usual := at.HTTP, "80"
		if strings.HasPrefix(u.Scheme, "grpc") {
			listens, usual = at.GRPC, ""
		} else if u.Scheme == "https" {
			usual = "443"
		}
		_, port, err := net.SplitHostPort(listens)
		if err == nil && port != cmp.Or(u.Port(), usual) {
			return fmt.Errorf("--admin: %s is the admin listener of another daemon, which takes readings at %s (HTTP) and %s (gRPC), and %s is %s", o.admin, at.HTTP, at.GRPC, side.flag, u.Redacted())
		}
	}
	return nil
}

// reachable makes the URL of what the daemon calls its HTTP address. Its
// listeners speak TLS all or none.
func (o *loadOptions) reachable(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("read the status of the daemon at %s: its HTTP address is %q", o.admin, address)
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		if host, _, err = net.SplitHostPort(hostPort(o.admin)); err != nil || host == "" {
			host = "127.0.0.1"
		}
	}
	scheme := "http://"
	if strings.HasPrefix(o.admin, schemeTLS) {
		scheme = schemeTLS
	}
	return scheme + net.JoinHostPort(host, port), nil
}

// explainTarget tells what may be wrong where there is no daemon's side of the
// kind that was expected.
func explainTarget(where, flag string, err error) error {
	switch {
	case errors.Is(err, send.ErrNoStreams):
		return fmt.Errorf("%s: %s answers HTTP, and does not know /v1/streams (404): is it a daemon's admin listener? The HTTP side is another, by default %s", flag, where, localDaemon)
	case errors.Is(err, send.ErrNotHTTP):
		return fmt.Errorf("%s: %s does not speak HTTP: is it a daemon's gRPC side? That is named by --target grpc://HOST:PORT; the HTTP side is another, by default %s", flag, where, localDaemon)
	case errors.Is(err, send.ErrNotGRPC):
		return fmt.Errorf("%s: %s does not speak gRPC: is it a daemon's HTTP side or its admin listener? The HTTP side is named by --target http://HOST:PORT", flag, where)
	}
	return explainCall(where, flag, err)
}

// adminHint says what may be wrong where --admin is something else.
const adminHint = "is it a daemon's HTTP or gRPC side? The admin listener is another, by default 127.0.0.1:8432"

// askAdmin asks the admin listener and returns its answer.
func (c *caller) askAdmin(ctx context.Context, method, admin, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, adminURL(admin)+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the admin listener: %w", err)
	}
	req.Close = true // there are only a few questions
	resp, err := c.client(0).Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("ask %s%s (--admin): no answer came in time", admin, path)
	} else if err != nil {
		err = explainCall(admin, "--admin", fmt.Errorf("ask the admin listener: %w", err))
		if send.SpeaksNoHTTP(err) {
			err = fmt.Errorf("--admin: %s does not speak HTTP; %s", admin, adminHint)
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("--admin: %s does not know %s (404); %s", admin, path, adminHint)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the admin listener's answer: %w", err)
	}
	if wantsTLS(resp.StatusCode, body) {
		return nil, fmt.Errorf("--admin: %s speaks TLS; name it https://%s", admin, hostPort(admin))
	}
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Message string }
		if json.Unmarshal(body, &problem) != nil || problem.Message == "" {
			problem.Message = "it does not say why; is this the daemon's --admin-addr?"
		}
		return nil, fmt.Errorf("%s %s%s answered %s: %s%s", method, admin, path, resp.Status, problem.Message, c.hint(resp.StatusCode))
	}
	return body, nil
}

// adminURL is where a listener at host:port, or at https://host:port, is asked;
// an empty host is this one.
func adminURL(admin string) string {
	scheme := "http://"
	if strings.HasPrefix(admin, schemeTLS) {
		scheme, admin = schemeTLS, hostPort(admin)
	}
	if strings.HasPrefix(admin, ":") {
		admin = "127.0.0.1" + admin
	}
	return scheme + admin
}

// schemeTLS begins the address of an admin listener that speaks TLS.
const schemeTLS = "https://"

// hostPort is the address of an admin listener without its scheme.
func hostPort(admin string) string { return strings.TrimPrefix(admin, schemeTLS) }

// A storeLook measures what the daemon takes to write a stream's buckets, from
// one look at its metrics to another.
type storeLook struct {
	caller        *caller
	admin, stream string
	before        scrape.Sample
}

const (
	lookTimeout  = 10 * time.Second
	flushTimeout = time.Minute
)

func (c *caller) newStoreLook(ctx context.Context, admin, stream string) (*storeLook, error) {
	l := &storeLook{caller: c, admin: admin, stream: stream}
	var err error
	l.before, err = l.look(ctx)
	return l, err
}

func (l *storeLook) look(ctx context.Context) (scrape.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	client := l.caller.client(0)
	defer client.CloseIdleConnections()
	look, err := scrape.Get(ctx, client, adminURL(l.admin)+"/metrics")
	if err != nil {
		return nil, explainCall(l.admin, "--admin", err)
	}
	return look, nil
}

// finish has the daemon store what it took, and returns ten rows. The error
// tells what may be missing from them.
func (l *storeLook) finish(ctx context.Context) ([]load.FillRow, error) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout+lookTimeout)
	defer cancel()
	_, missed := l.caller.askAdmin(ctx, http.MethodPost, l.admin, "/flush?timeout="+flushTimeout.String())
	after, err := l.look(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]load.FillRow, len(store.Fills))
	for i, fill := range store.Fills {
		labels := scrape.Labels{"stream": l.stream, "fill": fill}
		const name = "brim_store_write_seconds"
		h := after.Histogram(name, labels).Since(l.before.Histogram(name, labels))
		rows[i] = load.FillRow{From: float64(i) / 10, To: float64(i+1) / 10, Count: int64(math.Round(h.Count))}
		if rows[i].Count > 0 {
			rows[i].P50, rows[i].P99 = h.Quantile(0.5), h.Quantile(0.99)
		}
	}
	return rows, missed
}
