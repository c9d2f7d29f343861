package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/load/send"
	"github.com/brim-telemetry/brim/internal/scrape"
)

// discover asks the daemon about the stream that is written to.
func (o *loadOptions) discover(ctx context.Context, p *process) (load.Stream, error) {
	base, flag, err := o.httpSide(ctx)
	if err != nil {
		return load.Stream{}, err
	}
	s, err := send.Discover(ctx, base, o.stream)
	if err != nil {
		return s, explainUnreachable(base, flag, err)
	}
	if s.GranularitySeconds < 1 {
		return s, fmt.Errorf("the daemon at %s does not tell the granularity of stream %q", base, s.Name)
	}
	if o.admin != "" && s.Storage == "memory" {
		_, _ = fmt.Fprintln(p.stderr, "the stream is kept in memory: nothing is written to MongoDB, and store_by_fill tells of memory")
	}
	return s, nil
}

// httpSide returns where the daemon answers HTTP, and the flag that says so. A
// gRPC target does not tell; the admin listener does, and a local daemon is
// where daemons are by default.
func (o *loadOptions) httpSide(ctx context.Context) (base, flag string, err error) {
	target, err := url.Parse(o.target)
	if err != nil {
		return "", "", usageError{errors.New("--target: it is not a URL")}
	}
	switch {
	case o.http != "":
		return o.http, "--http", nil
	case !strings.HasPrefix(target.Scheme, "grpc"):
		return o.target, "--target", nil
	case o.admin != "":
		base, err = o.httpByStatus(ctx)
		return base, "--http", err
	}
	host := target.Hostname()
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return o.daemon, "--http", nil
	}
	return "", "", usageError{fmt.Errorf("--target: %s does not tell about its streams; name the daemon's HTTP side with --http, or its admin listener with --admin", target.Redacted())}
}

// httpByStatus asks the admin listener where the HTTP side is.
func (o *loadOptions) httpByStatus(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, o.adminTimeout)
	defer cancel()
	body, err := askAdmin(ctx, http.MethodGet, o.admin, "/status")
	if err != nil {
		return "", err
	}
	var s status
	if err := json.Unmarshal(body, &s); err != nil {
		return "", fmt.Errorf("read the status of the daemon at %s: %w", o.admin, err)
	}
	host, port, err := net.SplitHostPort(s.Addresses.HTTP)
	if err != nil {
		return "", fmt.Errorf("read the status of the daemon at %s: its HTTP address is %q", o.admin, s.Addresses.HTTP)
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		if host, _, err = net.SplitHostPort(o.admin); err != nil || host == "" {
			host = "127.0.0.1"
		}
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// askAdmin asks the admin listener and returns its answer.
func askAdmin(ctx context.Context, method, admin, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, adminURL(admin)+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the admin listener: %w", err)
	}
	req.Close = true // there are only a few questions
	resp, err := http.DefaultClient.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("ask %s%s (--admin): no answer came in time", admin, path)
	} else if err != nil {
		return nil, explainUnreachable(admin, "--admin", fmt.Errorf("ask the admin listener: %w", err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the admin listener's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Message string }
		if json.Unmarshal(body, &problem) != nil || problem.Message == "" {
			problem.Message = "it does not say why; is this the daemon's --admin-addr?"
		}
		return nil, fmt.Errorf("%s %s%s answered %s: %s", method, admin, path, resp.Status, problem.Message)
	}
	return body, nil
}

// adminURL is where a listener at host:port is asked; an empty host is this one.
func adminURL(admin string) string {
	if strings.HasPrefix(admin, ":") {
		admin = "127.0.0.1" + admin
	}
	return "http://" + admin
}

// A storeLook measures what the daemon takes to write a stream's buckets, from
// one look at its metrics to another.
type storeLook struct {
	admin, stream string
	before        scrape.Look
}

const (
	lookTimeout  = 10 * time.Second
	flushTimeout = time.Minute
)

func newStoreLook(ctx context.Context, admin, stream string) (*storeLook, error) {
	l := &storeLook{admin: admin, stream: stream}
	var err error
	l.before, err = l.look(ctx)
	return l, err
}

func (l *storeLook) look(ctx context.Context) (scrape.Look, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true}
	look, err := scrape.Get(ctx, &http.Client{Transport: transport}, adminURL(l.admin)+"/metrics")
	if err != nil {
		return nil, explainUnreachable(l.admin, "--admin", err)
	}
	return look, nil
}

// finish has the daemon store what it took, and returns ten rows. The error
// tells what may be missing from them.
func (l *storeLook) finish(ctx context.Context) ([]load.FillRow, error) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout+lookTimeout)
	defer cancel()
	_, missed := askAdmin(ctx, http.MethodPost, l.admin, "/flush?timeout="+flushTimeout.String())
	after, err := l.look(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]load.FillRow, 10)
	for i := range rows {
		labels := scrape.Labels{"stream": l.stream, "fill": fmt.Sprintf("%d-%d", 10*i, 10*i+10)}
		const name = "brim_store_write_seconds"
		h := after.Histogram(name, labels).Since(l.before.Histogram(name, labels))
		rows[i] = load.FillRow{From: float64(i) / 10, To: float64(i+1) / 10, Count: int64(math.Round(h.Count))}
		if rows[i].Count > 0 {
			rows[i].P50, rows[i].P99 = h.Quantile(0.5), h.Quantile(0.99)
		}
	}
	return rows, missed
}
