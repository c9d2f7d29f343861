package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Codes of requests that are refused here. They do not change.
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
	codeActive      = "quota_active_sensors"
)

// Config is what a Guard is made from.
type Config struct {
	Path       string // of the access file; empty: nobody is asked, and Default holds for all together
	Default    Quota  // of each identity that has none of its own
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
	Now        func() time.Time      // nil: time.Now
	// TLS says which authorities of client certificates are trusted now; nil:
	// those that the handshake asked.
	TLS *TLS
}

// A Guard knows identities by their credentials. A nil Guard asks nobody: all
// may do all. Its methods may be called by several goroutines.
//
//	access file ─ look, once a second at most ─▶ parse ─▶ table ─┐
//	credentials ──────────────── Identify ──────────────────────▶┴▶ Identity
//
// It has no goroutine: the file is looked at when somebody asks. A change is
// taken when a second look finds it as the first did, and a file that cannot be
// used changes nothing, so that half a file and a slip of an editor shut nobody
// out and let nobody in.
type Guard struct {
	path     string
	defaults Quota
	logger   *slog.Logger
	clock    func() time.Time
	metrics  *metrics
	began    time.Time
	nobody   *Identity    // where nobody is asked
	held     atomic.Int64 // refusals; see Hold
	tls      *TLS

	table  atomic.Pointer[table]
	looked atomic.Int64 // nanoseconds from began to the last look at the file
	waits  atomic.Bool  // a change was seen, which is to be seen again before it is taken

	mu   sync.Mutex // held by who looks
	seen sight      // of what was decided on
	next sight      // of the change that waits
}

// A table is the identities of one state of the file.
type table struct {
	all           []*Identity
	byHash        map[[prefixBytes]byte]held // of a token, by the first bytes of its hash
	byCertificate map[string]*Identity
}

// held is an identity with the hash of its token.
type held struct {
	hash     [sha256.Size]byte
	identity *Identity
}

// prefixBytes is how much of a hash finds the token that it may be of. That is
// no secret: who does not have the token learns from it only how its hash
// begins. The hash itself is compared in constant time.
const prefixBytes = 8

// Open reads the access file. Its errors name lines of the file.
func Open(c Config) (*Guard, error) {
	g := &Guard{path: c.Path, defaults: c.Default.over(Quota{}), logger: c.Logger, clock: c.Now, tls: c.TLS}
	if g.logger == nil {
		g.logger = slog.New(slog.DiscardHandler)
	}
	if g.clock == nil {
		g.clock = time.Now
	}
	if err := c.Default.check(); err != nil {
		return nil, fmt.Errorf("set the default quota: %w", err)
	}
	g.began = g.clock()
	g.metrics = newMetrics(c.Registerer, c.Path != "")
	if c.Path == "" {
		g.nobody = &Identity{guard: g, usage: &usage{}}
		g.nobody.may.Store(&rights{own: NoQuota(), quota: g.defaults})
		return g, nil
	}
	content, info, err := g.read()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w; make it with: brim token create NAME --scope ingest --access-file %s", err, c.Path)
		}
		return nil, err
	}
	entries, err := g.parse(content)
	if err != nil {
		return nil, err
	}
	g.seen = sight{info: info, at: g.began, sum: sha256.Sum256(content)}
	g.take(entries)
	g.warn(info)
	return g, nil
}

// Asks reports whether anybody is asked who he is.
func (g *Guard) Asks() bool { return g != nil && g.path != "" }

func (g *Guard) now() time.Time { return g.clock() }

// Identify returns who shows the credentials, and takes a request out of his
// quota. Its errors are *telemetry.Error of kind Unauthenticated, and of kind Quota
// where that is used up.
func (g *Guard) Identify(c Credentials) (*Identity, error) {
	switch {
	case g == nil:
		return everyone, nil
	case !g.Asks():
		return g.asked(g.nobody, g.now())
	case c.problem != "":
		return nil, g.refuse(telemetry.Unauthenticated, codeMalformed, "%s", c.problem)
	case c.Secret != "":
		// Tokens of ours fit, so that they are not copied to the heap.
		var room [128]byte
		return g.ofToken(append(room[:0], c.Secret...))
	case c.Certificate != nil:
		return g.ofCertificate(&c)
	}
	return nil, g.missing()
}

// IdentifyHeader is Identify with nothing but the value of an Authorization
// header. It keeps none of its bytes, and needs no memory.
func (g *Guard) IdentifyHeader(authorization []byte) (*Identity, error) {
	if g == nil {
		return everyone, nil
	}
	if !g.Asks() {
		return g.asked(g.nobody, g.now())
	}
	var room [128]byte
	secret, problem := secretOf(authorization, room[:0])
	switch {
	case problem != "":
		return nil, g.refuse(telemetry.Unauthenticated, codeMalformed, "%s", problem)
	case len(secret) == 0:
		return nil, g.missing()
	}
	return g.ofToken(secret)
}

// asked counts a request of an identity.
func (g *Guard) asked(i *Identity, now time.Time) (*Identity, error) {
	if err := i.ask(now); err != nil {
		return nil, err
	}
	return i, nil
}

func (g *Guard) missing() error {
	return g.refuse(telemetry.Unauthenticated, codeMissing, "this needs a token, in a header Authorization: Bearer TOKEN; brim token create makes one")
}

// ofToken costs the same whether the token is known or not: its hash is made,
// and compared with one of those that are known, or with none in particular.
func (g *Guard) ofToken(secret []byte) (*Identity, error) {
	now := g.now()
	g.look(now)
	sum := sha256.Sum256(secret)
	found := g.table.Load().byHash[[prefixBytes]byte(sum[:])]
	if subtle.ConstantTimeCompare(sum[:], found.hash[:]) != 1 || found.identity == nil {
		return nil, g.refuse(telemetry.Unauthenticated, codeUnknown, "this token is not known; it may have been revoked")
	}
	i := found.identity
	if err := i.checkExpiry(i.may.Load(), now); err != nil {
		return nil, err
	}
	return g.asked(i, now)
}

func (g *Guard) ofCertificate(c *Credentials) (*Identity, error) {
	now := g.now()
	g.look(now)
	if err := g.checkCertificate(c, now); err != nil {
		return nil, err
	}
	t := g.table.Load()
	for _, name := range certificateNames(c.Certificate) {
		if i := t.byCertificate[name]; i != nil {
			if err := i.checkExpiry(i.may.Load(), now); err != nil {
				return nil, err
			}
			return g.asked(i, now)
		}
	}
	return nil, g.refuse(telemetry.Unauthenticated, codeCertificate, "the access file has no identity with a certificate of the names of this one: %s",
		shownText(strings.Join(certificateNames(c.Certificate), ", ")))
}

// checkCertificate looks at what a handshake does not see: a connection may last
// longer than the certificate that it began with, and the trust in its authority.
func (g *Guard) checkCertificate(c *Credentials, now time.Time) error {
	if end := c.Certificate.NotAfter; !end.IsZero() && now.After(end) {
		return g.refuse(telemetry.Unauthenticated, codeExpired, "the client certificate expired at %s; connect again with another", end.UTC().Format(time.RFC3339))
	}
	if !g.tls.trusts(c.chain) {
		return g.refuse(telemetry.Unauthenticated, codeCertificate, "the authority that signed the client certificate is not trusted any more; connect again with a certificate of another")
	}
	return nil
}

// refuse counts a refusal, and returns it.
func (g *Guard) refuse(kind telemetry.ErrorKind, code, format string, args ...any) *telemetry.Error {
	g.metrics.refused(code)
	return telemetry.Errorf(kind, code, format, args...)
}
