// Package peers asks the other daemons of a database for readings that they have not
// stored yet, so that a query to one daemon returns what another has acknowledged:
//
//	query ─▶ read ─┬─▶ this daemon's journal
//	               ├─▶ Peers.Ask ─▶ GET …?unstored=only ─▶ each live peer, at the same time
//	               └─▶ then MongoDB, to see which of those are stored by now
//
// Peers find each other by their claims in MongoDB (internal/store/claim), which have an
// address and a heartbeat. A peer answers only for itself. It gets the credentials of the
// client that asked, and applies the same access rules.
//
//	reachable ── timeout, or no connection ───▶ unreachable: not asked, named in answers
//	    ▲                                            │
//	    └────── a probe finds the right daemon ──────┘
//
// A daemon that another one cannot reach learns of that from the other's claims, and then
// writes its readings early, see LimitAge.
package peers

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/brim-telemetry/brim/internal/store/claim"
)

// DaemonHeader names the daemon in its answers to peers. An address may lead to a different
// daemon, for example if it belongs to a load balancer.
const DaemonHeader = "Brim-Daemon"

// ProbePath is requested to check that a daemon can be reached. It needs no credentials.
const ProbePath = "/ping"

const (
	refreshEvery  = 2 * time.Second  // reading the list of peers, and probing them
	logEvery      = 5 * time.Second  // logging failures
	failureWindow = time.Minute      // how long a failure counts, see Unreachable
	startupPeriod = 10 * time.Second // in which peers may not know this daemon yet
	// unreachableAge is how long readings may wait in a daemon that others cannot ask.
	unreachableAge = 4 * time.Second
	// deleteTimeoutFactor is how many times longer a DELETE may take than a GET, because the
	// peer writes to MongoDB.
	deleteTimeoutFactor = 10
	// maxAnswers bounds the total size of all peers' answers to one query.
	maxAnswers = 16 << 20
)

// Config of Peers.
type Config struct {
	Address string   // of this daemon, as in its own claims; empty: others cannot ask it
	Streams []string // that this daemon stores in the database
	// Live returns the other daemons of the database that are alive.
	Live func(ctx context.Context) ([]claim.Other, error)
	// TLS is for connections to peers with TLS; nil: the system's authorities.
	TLS *tls.Config
	// RequireTLS refuses to send credentials without TLS; set if this daemon has TLS itself.
	RequireTLS bool
	Timeout    time.Duration     // of a request to a peer; 0: 1 s
	Transport  http.RoundTripper // for connections to peers; nil: the network

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
}

// Peers are the other daemons of a database. Its methods may be called by several
// goroutines. A nil *Peers has none.
type Peers struct {
	cfg    Config
	client *http.Client
	asked  *prometheus.CounterVec
	began  time.Time
	logged atomic.Int64 // when a failure was last logged, in nanoseconds since 1970

	mu     sync.Mutex
	known  []peer
	listed bool // the list was read once
}

// A peer is a daemon, as its claims describe it, with its state.
type peer struct {
	claim.Other
	*state
}

// state is guarded by the lock of Peers.
type state struct {
	down   bool      // the last attempt to reach it failed
	failed time.Time // when it last could not be asked; zero: never
}

// New returns Peers that knows no daemons until Run.
func New(cfg Config) *Peers {
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Second)
	p := &Peers{cfg: cfg, began: time.Now()}
	if cfg.Transport == nil {
		cfg.Transport = &http.Transport{
			TLSClientConfig: cfg.TLS, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, // shorter than the daemon's
		}
	}
	p.client = &http.Client{
		Transport: cfg.Transport,
		// Credentials must go to no other server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	p.register(promauto.With(cfg.Registerer))
	return p
}

// Run updates the list of peers, and probes them, until ctx ends.
func (p *Peers) Run(ctx context.Context) {
	if p == nil {
		return
	}
	defer p.client.CloseIdleConnections()
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for {
		p.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// refresh reads the list of live daemons, and probes them. If the list cannot be read,
// the last one is kept.
func (p *Peers) refresh(ctx context.Context) {
	live, err := p.cfg.Live(ctx)
	if err != nil {
		p.cfg.Logger.Debug("list the other daemons", "err", err)
	} else {
		p.update(live)
	}
	var probes sync.WaitGroup
	for _, one := range p.of("") {
		probes.Go(func() { p.probe(ctx, one) })
	}
	probes.Wait()
}

// update sets the list of live daemons. If several have the same address, all but the last
// have ended: the daemon was killed and restarted.
func (p *Peers) update(live []claim.Other) {
	slices.SortFunc(live, func(a, b claim.Other) int { return b.Since.Compare(a.Since) })
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.known
	p.known, p.listed = nil, true
	for _, one := range live {
		if one.Address != "" && slices.ContainsFunc(p.known, func(later peer) bool { return later.Address == one.Address }) {
			continue
		}
		now := peer{one, &state{}}
		if i := slices.IndexFunc(before, func(b peer) bool { return b.Daemon == one.Daemon && b.Address == one.Address }); i >= 0 {
			now.state = before[i].state
		}
		p.known = append(p.known, now)
	}
}

// of returns the peers that can be asked for readings of a stream, or of any stream if it
// is empty.
func (p *Peers) of(stream string) (out []peer) {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.known {
		if one.Daemon != "" && one.Address != "" && (stream == "" || one.stores(stream)) {
			out = append(out, one)
		}
	}
	return out
}

func (one *peer) stores(stream string) bool {
	return len(one.Streams) == 0 || slices.Contains(one.Streams, stream)
}

// All reports whether the live daemons are known, and can is true for all with the stream. Without
// peers it is true, so that a journal can be replayed.
func (p *Peers) All(stream string, can func(*claim.Holder) bool) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listed && !slices.ContainsFunc(p.known, func(one peer) bool { return one.stores(stream) && !can(&one.Holder) })
}

// LimitAge returns how long readings may wait before they must be sent to MongoDB, or 0 for
// no limit. It is 4 s in a daemon that others cannot ask, because it has no address, because
// one of them could not reach it within the last minute, or because they may not know it yet.
func (p *Peers) LimitAge() time.Duration {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.known {
		if !slices.ContainsFunc(p.cfg.Streams, one.stores) {
			continue
		}
		if p.cfg.Address == "" || slices.Contains(one.Unreachable, p.cfg.Address) || time.Since(p.began) < startupPeriod {
			return unreachableAge
		}
	}
	return 0
}

// Unreachable returns the addresses of peers that could not be asked within the last
// minute, sorted. They are part of this daemon's claims.
func (p *Peers) Unreachable() (out []string) {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.known {
		if !one.failed.IsZero() && time.Since(one.failed) < failureWindow {
			out = append(out, one.Address)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Ask sends a request with the method, GET or DELETE, for target, a path with its query, to
// all peers that store the stream, and returns at once. collect waits for the answers, to
// GET for a second at most, passes the body of each to take, and returns the sorted
// addresses of the peers that did not answer, or whose answer take refused. A peer that has
// nothing answers 404, which counts as an empty body.
//
// credentials is the value of the client's Authorization header, empty if it has none.
func (p *Peers) Ask(ctx context.Context, method, stream, target, credentials string) (collect func(take func(body []byte) error) (failed []string)) {
	type answer struct {
		from peer
		body []byte
		err  *failure
	}
	of := p.of(stream)
	if len(of) == 0 || !slices.Contains(p.cfg.Streams, stream) {
		return func(func([]byte) error) []string { return nil }
	}
	timeout := p.cfg.Timeout
	if method == http.MethodDelete {
		timeout *= deleteTimeoutFactor
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	answers := make(chan answer, len(of))
	left := new(atomic.Int64)
	left.Store(maxAnswers)
	for _, one := range of {
		if p.isDown(one) {
			answers <- answer{one, nil, &failure{skipped, errors.New("not asked, since the last attempt to reach it failed")}}
			continue
		}
		go func() { // ends with ctx
			body, err := p.get(ctx, one, request{method, target, credentials}, left)
			if err != nil && err.reason == timedOut && method == http.MethodDelete {
				err.reason = busy // or rather its MongoDB
			}
			answers <- answer{one, body, err}
		}()
	}
	return func(take func([]byte) error) (failed []string) {
		defer cancel()
		for range of {
			a := <-answers
			if a.err == nil && len(a.body) > 0 {
				if err := take(a.body); err != nil {
					a.err = &failure{malformed, err}
				}
			}
			if p.note(ctx, a.from, a.err); a.err != nil {
				failed = append(failed, a.from.Address)
			}
		}
		slices.Sort(failed)
		return slices.Compact(failed)
	}
}

// A request is what peers are asked.
type request struct {
	method, target, credentials string
}

// Reasons why a peer gave no answer. They are also label values.
const (
	answered    = "answered"
	timedOut    = "timeout"
	unreachable = "unreachable" // no connection, or a connection to another daemon
	refused     = "refused"     // it refuses the request: its access rules or limits differ
	busy        = "busy"        // it refuses requests at the moment
	malformed   = "malformed"
	skipped     = "skipped" // an earlier attempt to reach it failed
)

// A failure says why a peer gave no answer.
type failure struct {
	reason string
	err    error
}

// get returns the body of an answer, or nil if the peer has nothing.
func (p *Peers) get(ctx context.Context, one peer, what request, left *atomic.Int64) ([]byte, *failure) {
	resp, failed := p.send(ctx, one, what)
	if failed != nil {
		return nil, failed
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, nil
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return nil, &failure{busy, fmt.Errorf("it answered %s", resp.Status)}
	default:
		return nil, &failure{refused, fmt.Errorf("it answered %s", resp.Status)}
	}
	body, err := io.ReadAll(&limitedReader{resp.Body, left})
	if errors.Is(err, errTooLong) {
		return nil, &failure{malformed, err}
	}
	if err != nil {
		return nil, unanswered(ctx, err)
	}
	return body, nil
}

// send sends a request, and returns the answer if it is from the right daemon, or a
// refusal of the credentials.
func (p *Peers) send(ctx context.Context, one peer, what request) (*http.Response, *failure) {
	scheme := "http"
	if one.TLS {
		scheme = "https"
	} else if p.cfg.RequireTLS {
		return nil, &failure{unreachable, errors.New("it has no TLS, and this daemon passes credentials on only over TLS")}
	}
	req, err := http.NewRequestWithContext(ctx, what.method, scheme+"://"+one.Address+what.target, http.NoBody)
	if err != nil {
		return nil, &failure{unreachable, fmt.Errorf("make the request: %w", err)}
	}
	req.Header.Set("Accept", "application/x-ndjson, application/json")
	if what.credentials != "" {
		req.Header.Set("Authorization", what.credentials)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, unanswered(ctx, err)
	}
	of := resp.Header.Get(DaemonHeader)
	if of == one.Daemon || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound && what.target != ProbePath {
		return resp, nil
	}
	_ = resp.Body.Close()
	if of == "" {
		return nil, &failure{unreachable, errors.New("what answers there is not a Brim daemon of this release; its --advertise-addr must be the address of the daemon itself")}
	}
	return nil, &failure{unreachable, errors.New("another daemon answers there: it was restarted, or its --advertise-addr leads to a load balancer rather than to the daemon")}
}

// unanswered says why there was no answer.
func unanswered(ctx context.Context, err error) *failure {
	network, ok := errors.AsType[net.Error](err)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || ok && network.Timeout() {
		return &failure{timedOut, fmt.Errorf("no answer in time: %w", err)}
	}
	return &failure{unreachable, err}
}

var errTooLong = fmt.Errorf("the answers are longer than %d MiB", maxAnswers>>20)

// A limitedReader fails once all readers of one query together have read too much.
type limitedReader struct {
	io.Reader

	left *atomic.Int64
}

// Read implements io.Reader.
func (b *limitedReader) Read(to []byte) (int, error) {
	n, err := b.Reader.Read(to)
	if b.left.Add(int64(-n)) < 0 {
		return n, errTooLong
	}
	return n, err
}

// probe checks whether a peer can be reached.
func (p *Peers) probe(ctx context.Context, one peer) {
	asking, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	resp, failed := p.send(asking, one, request{method: http.MethodGet, target: ProbePath})
	if failed == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<10)) // so that the connection can be reused
		_ = resp.Body.Close()
	}
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if failed == nil {
		if one.down {
			p.cfg.Logger.Info("another daemon can be reached again", "address", one.Address)
		}
		one.down = false
		return
	}
	p.fail(one, failed)
}

// note counts the outcome of a request.
func (p *Peers) note(ctx context.Context, one peer, f *failure) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the client disconnected
	}
	if f == nil {
		p.asked.WithLabelValues(answered).Inc()
		return
	}
	p.asked.WithLabelValues(f.reason).Inc()
	if f.reason == skipped {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(one, f)
}

// fail notes a failure; p is locked. A temporary one does not count as unreachable, since
// the peer would then write earlier and be even busier.
func (p *Peers) fail(one peer, f *failure) {
	fresh := !one.down
	one.down = one.down || f.reason == timedOut || f.reason == unreachable
	if f.reason != busy {
		one.failed = time.Now()
	}
	if last, now := p.logged.Load(), time.Now().UnixNano(); fresh && now-last >= int64(logEvery) && p.logged.CompareAndSwap(last, now) {
		p.cfg.Logger.Warn("cannot ask another daemon for readings that it has not stored yet; answers to queries name it in the header Brim-Incomplete",
			"address", one.Address, "reason", f.reason, "err", f.err)
	}
}

func (p *Peers) isDown(one peer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return one.down
}

// CheckAddress returns an error unless s is a HOST:PORT that other daemons can use.
func CheckAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() || strings.ContainsAny(host, " /@?#%[]$()") {
		return fmt.Errorf("%q is not a HOST:PORT at which other daemons can reach this one, like brim-1.example.org:8430", s)
	}
	return nil
}
