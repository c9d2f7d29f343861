package access

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Codes of refusals. They do not change.
const (
	codeMissing     = "token_missing"
	codeMalformed   = "credentials_malformed"
	codeUnknown     = "token_unknown"
	codeExpired     = "token_expired"
	codeCertificate = "certificate_unknown"
	codeScope       = "scope_missing"
	codeSensor      = "sensor_forbidden"
	codeRequests    = "quota_requests"
	codeReadings    = "quota_readings"
	codeNewSensors  = "quota_new_sensors"
	codeActive      = CodeActiveSensors
)

// CodeActiveSensors is the code of a refusal for a new sensor beyond the active ones that
// an identity may have. Unlike other quotas it does not refill.
const CodeActiveSensors = "quota_active_sensors"

// Config of a Guard.
type Config struct {
	Path       string // of the access file; empty: no authentication, and Default limits all clients together
	Default    Quota  // of each identity without a quota of its own; its limits are checked
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
	Now        func() time.Time      // nil: time.Now
	// TLS has the currently trusted authorities of client certificates; nil: those of the
	// handshake stay trusted.
	TLS *TLS
}

// A Guard finds identities by their credentials. A nil Guard allows everything. Its
// methods may be called from several goroutines.
//
//	access file ─ Watch ─▶ parse ─▶ table ─┐
//	credentials ──── Identify ────────────▶┴▶ Identity
//
// A partly written file neither locks clients out nor lets any in, see watched.
type Guard struct {
	path       string
	defaults   Quota
	logger     *slog.Logger
	now        func() time.Time
	tls        *TLS
	anyone     *Identity // all clients together, without authentication
	refusals   map[string]prometheus.Counter
	delaying   prometheus.Gauge
	fileOK     prometheus.Gauge
	identities prometheus.Gauge
	delayed    atomic.Int64 // see DelayRefusal

	table atomic.Pointer[table]
	files watched // the access file; its lock guards the fields below, and defaults

	info   os.FileInfo // of the file when it was read; nil: never
	readAt time.Time
}

// A table has the identities of one version of the file, by Entry.credential and by name.
// The time of a lookup depends on the hash of a token, so it reveals nothing about the token.
type table struct{ credentials, names map[string]*Identity }

// Open reads the access file. Its errors name lines of the file.
func Open(c Config) (*Guard, error) {
	g := &Guard{path: c.Path, defaults: c.Default.over(Quota{}), logger: cmp.Or(c.Logger, slog.New(slog.DiscardHandler)), now: c.Now, tls: c.TLS}
	if g.now == nil {
		g.now = time.Now
	}
	g.files = watched{read: g.read, apply: g.apply, refuse: g.invalid}
	g.register(c.Registerer)
	if c.Path == "" {
		g.anyone = newIdentity("", g, newUsage(), &rights{scopes: []Scope{Admin}, own: NoQuota(), quota: g.defaults})
		return g, nil
	}
	if err := g.files.open(); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; create it with: brim token create NAME --scope ingest --access-file %s", err, c.Path)
	} else if err != nil {
		return nil, err
	}
	return g, nil
}

func (g *Guard) register(r prometheus.Registerer) {
	factory := promauto.With(r)
	refused := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_access_refused_total", Help: "Requests, and messages of streams, refused by authentication, authorization or a quota, by reason.",
	}, []string{"reason"})
	g.refusals = make(map[string]prometheus.Counter)
	for _, code := range []string{
		codeMissing, codeMalformed, codeUnknown, codeExpired, codeCertificate, codeScope, codeSensor, codeRequests, codeReadings, codeNewSensors, codeActive,
	} {
		g.refusals[code] = refused.WithLabelValues(code)
	}
	g.delaying = factory.NewGauge(prometheus.GaugeOpts{Name: "brim_access_refusals_held", Help: "Refusals whose answer is delayed at the moment."})
	if g.path == "" {
		factory = promauto.With(nil) // without a file, it is neither valid nor invalid
	}
	g.fileOK = factory.NewGauge(prometheus.GaugeOpts{Name: "brim_access_file_ok", Help: "Whether the access file is valid (1), or its previous content stays in force (0)."})
	g.identities = factory.NewGauge(prometheus.GaugeOpts{Name: "brim_access_identities", Help: "Identities in force from the access file."})
}

// Authenticates reports whether clients have to authenticate.
func (g *Guard) Authenticates() bool { return g != nil && g.path != "" }

// SetDefault changes Config.Default. It does not reset what identities have used of their
// quotas.
func (g *Guard) SetDefault(q Quota) {
	if g == nil {
		return
	}
	g.files.mu.Lock()
	defer g.files.mu.Unlock()
	g.defaults = q.over(Quota{})
	all := map[string]*Identity{"": g.anyone}
	if g.Authenticates() {
		all = g.table.Load().credentials
	}
	for _, i := range all {
		r := *i.rights.Load()
		r.quota = r.own.over(g.defaults)
		i.rights.Store(&r)
	}
}

// Identify returns the identity with the credentials, and counts a request of its
// quota. Its errors are *telemetry.Error of kind Unauthenticated, and of kind Quota if
// that is used up.
func (g *Guard) Identify(c Credentials) (*Identity, error) {
	switch {
	case g == nil:
		return unrestricted, nil
	case !g.Authenticates():
		return g.anyone.admitted(1)
	case c.problem != "":
		return nil, g.refuse(telemetry.Unauthenticated, codeMalformed, "%s", c.problem)
	case c.Secret != "":
		var buf [128]byte // fits a token, so that it is not copied to the heap
		return g.identifyToken(append(buf[:0], c.Secret...))
	case c.Certificate != nil:
		return g.identifyCertificate(&c)
	}
	return nil, g.refuse(telemetry.Unauthenticated, codeMissing, "this needs a token, in a header Authorization: Bearer TOKEN; brim token create makes one")
}

func (g *Guard) identifyToken(secret []byte) (*Identity, error) {
	hash := sha256.Sum256(secret)
	i := g.table.Load().credentials[string(hash[:])]
	if i == nil {
		return nil, g.refuse(telemetry.Unauthenticated, codeUnknown, "this token is unknown; it may have been revoked")
	}
	return i.admitted(1)
}

func (g *Guard) identifyCertificate(c *Credentials) (*Identity, error) {
	if err := g.checkClientCertificate(c, g.now()); err != nil {
		return nil, err
	}
	known, names := g.table.Load().credentials, certificateNames(c.Certificate)
	for _, name := range names {
		if i := known[name]; i != nil {
			return i.admitted(1)
		}
	}
	return nil, g.refuse(telemetry.Unauthenticated, codeCertificate, "the access file has no identity with one of this certificate's names: %s", excerpt(strings.Join(names, ", ")))
}

// Named returns the identity with this name, for a sender in the daemon's own configuration,
// and counts requests of its quota. Without authentication it returns the identity of all
// clients together. With authentication, an empty name stands for an unrestricted sender.
// It returns the same errors as Identify.
func (g *Guard) Named(name string, requests int) (*Identity, error) {
	switch {
	case g == nil || name == "" && g.Authenticates():
		return unrestricted, nil
	case !g.Authenticates():
		return g.anyone.admitted(requests)
	}
	if i := g.table.Load().names[name]; i != nil {
		return i.admitted(requests)
	}
	return nil, g.refuse(telemetry.Unauthenticated, codeUnknown, "the access file has no identity %s; it may have been revoked", excerpt(name))
}

// admitted counts requests. It returns the identity unless it has expired or its request
// quota is used up.
func (i *Identity) admitted(requests int) (*Identity, error) {
	err := i.checkExpiry()
	if err == nil {
		err = i.countRequests(requests)
	}
	if err != nil {
		return nil, err
	}
	return i, nil
}

// checkClientCertificate repeats checks of the handshake: since then, the certificate may
// have expired, or its authority may no longer be trusted.
func (g *Guard) checkClientCertificate(c *Credentials, now time.Time) error {
	if end := c.Certificate.NotAfter; !end.IsZero() && now.After(end) {
		return g.refuse(telemetry.Unauthenticated, codeExpired, "the client certificate expired at %s; connect again with another", end.UTC().Format(time.RFC3339))
	}
	if !g.tls.trusts(c.chain) {
		return g.refuse(telemetry.Unauthenticated, codeCertificate, "the authority that signed the client certificate is no longer trusted; connect again with a certificate of another")
	}
	return nil
}

// refuse counts a refusal, and returns it.
func (g *Guard) refuse(kind telemetry.ErrorKind, code, format string, args ...any) *telemetry.Error {
	g.refusals[code].Inc()
	return telemetry.Errorf(kind, code, format, args...)
}

// A refusal is delayed by minDelay, or longer, up to maxDelay, to limit refusals to
// refusalRate a second. The limits on connections and calls bound how many are delayed.
const (
	minDelay    = 50 * time.Millisecond
	maxDelay    = 2 * time.Second
	refusalRate = 500 // a second
)

// DelayRefusal delays the answer to a refused request, at most until ctx ends. Otherwise a
// few connections could keep the daemon busy with refusals. For other errors it returns
// immediately.
func (g *Guard) DelayRefusal(ctx context.Context, err error) {
	kind := telemetry.KindOf(err)
	if g == nil || kind != telemetry.Unauthenticated && kind != telemetry.Forbidden && kind != telemetry.Quota {
		return
	}
	g.delaying.Inc()
	defer g.delaying.Dec()
	// If each of n refusals is delayed by n/refusalRate seconds, there are refusalRate a second.
	delay := time.Duration(g.delayed.Add(1)) * time.Second / refusalRate
	defer g.delayed.Add(-1)
	_ = machine.Pause(ctx, min(max(minDelay, delay), maxDelay)) // the client may be gone
}

// A file larger than smallFile is read again only if its time, size or mode have
// changed, or after a minute.
const (
	smallFile      = 1 << 20
	rereadInterval = time.Minute
)

// poll applies the access file if it has changed.
func (g *Guard) poll() {
	if g.Authenticates() {
		_ = g.files.check(false) // the failure is logged and counted
	}
}

// Reload applies the current access file. If it is invalid, Reload returns an error, and the
// previous content stays in force.
func (g *Guard) Reload() error {
	if !g.Authenticates() {
		return nil
	}
	return g.files.check(true)
}

// read reads the file for watched. It also refuses a file owned by another user, who can
// write to it regardless of its mode.
func (g *Guard) read(all bool) ([][]byte, error) {
	if now, err := os.Stat(g.path); !all && err == nil && g.info != nil && now.Size() > smallFile && now.Size() == g.info.Size() &&
		now.ModTime().Equal(g.info.ModTime()) && now.Mode() == g.info.Mode() && g.now().Sub(g.readAt).Abs() < rereadInterval {
		return nil, errUnchanged
	}
	content, info, err := readFile(g.path)
	if err != nil {
		return nil, err
	}
	if owner, ok := ownerOf(info); ok && !trusted(owner, os.Geteuid()) {
		return nil, fmt.Errorf("refuse the access file: %s belongs to user %d; allowed: root and the daemon's user, %d: chown it", g.path, owner, os.Geteuid())
	}
	g.info, g.readAt = info, g.now()
	return [][]byte{content}, nil
}

// invalid logs why the current identities stay in force.
func (g *Guard) invalid(err error) {
	g.fileOK.Set(0)
	g.logger.Error("the access file is invalid, its previous content stays in force", "file", g.path, "err", err)
}

// parse is the function parse, but also refuses what is probably an incomplete file.
func (g *Guard) parse(content []byte) ([]Entry, error) {
	if len(content) > 0 && content[len(content)-1] != '\n' {
		return nil, fmt.Errorf("%s:%d: the last line of the access file has no line break, as if the file was not written completely; add one", g.path, 1+bytes.Count(content, []byte{'\n'}))
	}
	entries, emptied, err := parse(g.path, content)
	if err != nil {
		return nil, err
	}
	if known := g.table.Load(); len(entries) == 0 && !emptied && known != nil && len(known.credentials) > 0 {
		return nil, fmt.Errorf("%s:1: the access file has no identities any more; to lock all clients out write: %s: []", g.path, keyIdentities)
	}
	return entries, nil
}

// apply puts the identities of the file in force. Known identities keep what they have
// used of their quotas.
func (g *Guard) apply(contents [][]byte) error {
	entries, err := g.parse(contents[0])
	if err != nil {
		return err
	}
	known, used := make(map[string]*Identity), make(map[string]*usage)
	if before := g.table.Load(); before != nil {
		g.logger.Info("access file loaded", "file", g.path, "identities", len(entries))
		for credential, i := range before.credentials {
			known[i.Name+"\x00"+credential] = i
			used[i.Name] = i.usage
		}
	}
	t := table{make(map[string]*Identity), make(map[string]*Identity)}
	for n := range entries {
		e := &entries[n]
		key := e.Name + "\x00" + e.credential()
		r := &rights{scopes: e.Scopes, prefix: e.SensorPrefix, expires: e.Expires, own: e.Quota, quota: e.Quota.over(g.defaults)}
		i := known[key]
		if i == nil {
			i = newIdentity(e.Name, g, cmp.Or(used[e.Name], newUsage()), r)
		}
		delete(known, key)
		i.rights.Store(r)
		t.credentials[e.credential()], t.names[e.Name] = i, i
	}
	g.table.Store(&t)
	for _, i := range known {
		i.gone.Store(true)
	}
	g.fileOK.Set(1)
	g.identities.Set(float64(len(t.credentials)))
	warnOpen(g.logger, g.path, g.info)
	return nil
}
