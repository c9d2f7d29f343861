package access

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// northToken is a test token; any text will do.
const northToken = "brim_north"

// A clock only advances when told to.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Now().Add(time.Hour)} } // files are older than that

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// A guarded is a guard under test.
type guarded struct {
	*Guard
	clock    *clock
	path     string
	log      *bytes.Buffer
	registry *prometheus.Registry
}

func guardOf(t *testing.T, identities string) *guarded {
	t.Helper()
	g := &guarded{clock: newClock(), path: filepath.Join(t.TempDir(), "access.yaml"), log: &bytes.Buffer{}, registry: prometheus.NewRegistry()}
	g.write(t, identities)
	var err error
	g.Guard, err = Open(Config{Path: g.path, Logger: slog.New(slog.NewTextHandler(g.log, nil)), Registerer: g.registry, Now: g.clock.now})
	require.NoError(t, err)
	return g
}

// write replaces the file like an editor, and applies it.
func (g *guarded) write(t *testing.T, identities string) {
	t.Helper()
	next := g.path + ".next"
	require.NoError(t, os.WriteFile(next, []byte("identities:\n"+identities), 0o600))
	require.NoError(t, os.Rename(next, g.path))
	g.settle()
}

// settle makes the guard read the file twice, so that a change is applied.
func (g *guarded) settle() {
	g.poll()
	g.poll()
}

// entry is an identity in the file with a token and further lines.
func entry(name, token string, lines ...string) string {
	if len(lines) == 0 {
		lines = []string{"scopes: [ingest]"}
	}
	return fmt.Sprintf("  - name: %s\n    hash: %s\n    %s\n", name, HashOf(token), strings.Join(lines, "\n    "))
}

// wantRefusal checks an error's kind and code.
func wantRefusal(t *testing.T, err error, kind telemetry.ErrorKind, code string) *telemetry.Error {
	t.Helper()
	var refusal *telemetry.Error
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, code, refusal.Code)
	assert.Equal(t, kind, refusal.Kind)
	assert.NotContains(t, refusal.Error(), "brim_", "no token is in a message")
	return refusal
}

func TestIdentifyByToken(t *testing.T) {
	t.Parallel()
	g := guardOf(t, entry("north", northToken, "scopes: [ingest]", "sensor_prefix: n-")+entry("boss", "brim_boss", "scopes: [admin]"))
	assert.True(t, g.Authenticates())
	north, err := g.Identify(Credentials{Secret: northToken})
	require.NoError(t, err)
	assert.Equal(t, "north", north.Name)
	require.NoError(t, north.Check())
	require.NoError(t, north.Require(Ingest))
	assert.ErrorContains(t, wantRefusal(t, north.Require(Read), telemetry.Forbidden, codeScope), "needs the scope read, and north has only ingest")
	wantRefusal(t, north.Require(Admin), telemetry.Forbidden, codeScope)
	assert.True(t, north.Limited())
	assert.True(t, north.Allows("n-1"))
	assert.False(t, north.Allows("s-1"))
	require.NoError(t, north.RequireSensor("n-1"))
	wantRefusal(t, north.RequireSensor("s-1"), telemetry.Forbidden, codeSensor)

	boss, err := g.Identify(Credentials{Secret: "brim_boss"})
	require.NoError(t, err)
	for _, s := range scopes {
		require.NoError(t, boss.Require(s), "admin includes the others")
	}
	assert.False(t, boss.Limited())
	assert.True(t, boss.Allows("anything"))

	_, err = g.Identify(Credentials{})
	wantRefusal(t, err, telemetry.Unauthenticated, codeMissing)
	for _, secret := range []string{"brim_nort", "brim_northh", "x", strings.Repeat("brim_", 1000)} {
		_, err = g.Identify(Credentials{Secret: secret})
		wantRefusal(t, err, telemetry.Unauthenticated, codeUnknown)
	}
	for reason, n := range map[string]float64{codeMissing: 1, codeUnknown: 4, codeScope: 2, codeSensor: 1, codeExpired: 0} {
		assert.Equal(t, n, testutil.ToFloat64(g.refusals[reason]), reason)
	}
	problems, err := testutil.GatherAndLint(g.registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
	n, err := testutil.GatherAndCount(g.registry, "brim_access_refused_total")
	require.NoError(t, err)
	assert.Equal(t, 11, n, "every reason is there from the start")
}

func TestEverythingIsAllowedWithoutAuthentication(t *testing.T) {
	t.Parallel()
	limited, err := Open(Config{Default: Quota{ReadingsPerSecond: 1}})
	require.NoError(t, err)
	for _, g := range []*Guard{nil, limited} {
		assert.False(t, g.Authenticates())
		for _, c := range []Credentials{{}, {Secret: "anything"}, {problem: "two headers"}} {
			i, err := g.Identify(c)
			require.NoError(t, err)
			require.NoError(t, i.Require(Admin))
			require.NoError(t, i.Check())
			require.NoError(t, i.RequireSensor("s"))
			assert.False(t, i.Limited())
			assert.Empty(t, i.Name)
		}
		i, err := g.Identify(Credentials{Secret: "x"})
		require.NoError(t, err)
		require.NoError(t, i.Admit(5, none))
		i.Refund(1)
	}
	i, err := limited.Identify(Credentials{})
	require.NoError(t, err)
	refusal := wantRefusal(t, i.Admit(1, none), telemetry.Quota, codeReadings)
	assert.Contains(t, refusal.Message, "all clients together", "the default quota holds for all that come")
	require.NoError(t, From(t.Context()).Admit(1, none))
	assert.Same(t, i, From(With(t.Context(), i)))
}

func TestRevokedAndExpiredTokensAreRefused(t *testing.T) {
	t.Parallel()
	c := newClock()
	soon := c.now().Add(time.Minute).UTC().Format(time.RFC3339)
	g := guardOf(t, entry("north", northToken)+entry("short", "brim_short", "scopes: [read]", "expires: "+soon))
	north, err := g.Identify(Credentials{Secret: northToken})
	require.NoError(t, err)
	short, err := g.Identify(Credentials{Secret: "brim_short"})
	require.NoError(t, err)
	require.NoError(t, short.Check())
	g.clock.pass(2 * time.Minute)
	wantRefusal(t, short.Check(), telemetry.Unauthenticated, codeExpired)
	_, err = g.Identify(Credentials{Secret: "brim_short"})
	wantRefusal(t, err, telemetry.Unauthenticated, codeExpired)

	g.write(t, entry("other", "brim_other"))
	refusal := wantRefusal(t, north.Check(), telemetry.Unauthenticated, codeUnknown)
	assert.Contains(t, refusal.Message, "north was revoked")
	_, err = g.Identify(Credentials{Secret: northToken})
	wantRefusal(t, err, telemetry.Unauthenticated, codeUnknown)
	_, err = g.Identify(Credentials{Secret: "brim_other"})
	require.NoError(t, err)
	assert.Equal(t, 1.0, testutil.ToFloat64(g.identities))
}

func TestChangedRightsApplyToOpenConnections(t *testing.T) {
	t.Parallel()
	g := guardOf(t, entry("north", northToken, "scopes: [ingest]", "quota: {readings_per_second: 10}"))
	north, err := g.Identify(Credentials{Secret: northToken})
	require.NoError(t, err)
	require.NoError(t, north.Admit(15, none))
	g.write(t, entry("north", northToken, "scopes: [read]", "sensor_prefix: x", "quota: {readings_per_second: 10}"))
	require.NoError(t, north.Check())
	wantRefusal(t, north.Require(Ingest), telemetry.Forbidden, codeScope)
	assert.Equal(t, "x", north.Prefix())
	again, err := g.Identify(Credentials{Secret: northToken})
	require.NoError(t, err)
	assert.Same(t, north, again)

	// Another token under the same name shares the quota.
	g.clock.pass(time.Second)
	require.NoError(t, north.Admit(100, none))
	g.write(t, entry("north", "brim_next", "scopes: [ingest]", "quota: {readings_per_second: 10}"))
	next, err := g.Identify(Credentials{Secret: "brim_next"})
	require.NoError(t, err)
	assert.NotSame(t, north, next)
	wantRefusal(t, north.Check(), telemetry.Unauthenticated, codeUnknown)
	wantRefusal(t, next.Admit(1, none), telemetry.Quota, codeReadings)
}

func TestInvalidFileKeepsPreviousIdentities(t *testing.T) {
	t.Parallel()
	good := entry("north", northToken)
	for name, harm := range map[string]func(t *testing.T, g *guarded){
		"broken":   func(t *testing.T, g *guarded) { g.write(t, "  - nam: x\n") },
		"gone":     func(t *testing.T, g *guarded) { require.NoError(t, os.Remove(g.path)) },
		"writable": func(t *testing.T, g *guarded) { require.NoError(t, os.Chmod(g.path, 0o620)) },
		"a folder": func(t *testing.T, g *guarded) {
			require.NoError(t, os.Remove(g.path))
			require.NoError(t, os.Mkdir(g.path, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guardOf(t, good)
			harm(t, g)
			for range 3 {
				g.poll()
				_, err := g.Identify(Credentials{Secret: northToken})
				require.NoError(t, err, "what it held stays in force")
			}
			assert.Equal(t, 0.0, testutil.ToFloat64(g.fileOK))
			assert.Equal(t, 1, strings.Count(g.log.String(), "level=ERROR"), "it is said once: %s", g.log)
			require.ErrorContains(t, g.Reload(), "access")

			require.NoError(t, os.RemoveAll(g.path))
			g.write(t, good)
			_, err := g.Identify(Credentials{Secret: northToken})
			require.NoError(t, err)
			assert.Equal(t, 1.0, testutil.ToFloat64(g.fileOK))
			require.NoError(t, g.Reload())
		})
	}
}

func TestOpenRefusesInvalidFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // regardless of the umask
	path := filepath.Join(dir, "access.yaml")
	open := func() (string, error) {
		var log bytes.Buffer
		_, err := Open(Config{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		return log.String(), err
	}
	_, err := open()
	require.ErrorContains(t, err, "brim token create NAME")
	require.NoError(t, os.WriteFile(path, []byte("identities: []\n"), 0o600))
	log, err := open()
	require.NoError(t, err)
	assert.Empty(t, log)
	for mode, says := range map[os.FileMode]string{0o775: "mode=0775", 0o777: "mode=0777", 0o777 | os.ModeSticky: ""} {
		require.NoError(t, os.Chmod(dir, mode))
		log, err = open()
		require.NoError(t, err)
		if says == "" {
			assert.Empty(t, log)
			continue
		}
		assert.Contains(t, log, "level=WARN msg=\"other users may write to the directory of the access file")
		assert.Contains(t, log, says)
	}
	require.NoError(t, os.Chmod(path, 0o644))
	log, err = open()
	require.NoError(t, err)
	assert.Contains(t, log, "level=WARN msg=\"every user of this machine may read")
	for _, mode := range []os.FileMode{0o660, 0o602} {
		require.NoError(t, os.Chmod(path, mode))
		_, err = open()
		require.ErrorContains(t, err, "chmod 600 "+path)
	}
}

func TestIdentifyByCertificateName(t *testing.T) {
	t.Parallel()
	identity := func(name, certificate string) string {
		return fmt.Sprintf("  - {name: %s, certificate: %q, scopes: [ingest]}\n", name, certificate)
	}
	g := guardOf(t, identity("plain", "edge-7")+identity("common", "cn:a:b")+identity("dns", "dns:Edge.Example.org")+
		identity("uri", "uri:spiffe://x/edge")+identity("mail", "email:a@b")+entry("north", northToken))
	spiffe, err := url.Parse("spiffe://x/edge")
	require.NoError(t, err)
	subject := func(cn string) pkix.Name { return pkix.Name{CommonName: cn} }
	for _, c := range []struct {
		certificate x509.Certificate
		want        string
	}{
		{x509.Certificate{Subject: subject("edge-7")}, "plain"},
		{x509.Certificate{Subject: subject("a:b")}, "common"},
		{x509.Certificate{DNSNames: []string{"other", "edge.example.ORG"}}, "dns"},
		{x509.Certificate{EmailAddresses: []string{"a@b"}}, "mail"},
		{x509.Certificate{Subject: subject("edge-7"), DNSNames: []string{"edge.example.org"}, URIs: []*url.URL{spiffe}}, "uri"},
		{x509.Certificate{Subject: subject("Edge-7")}, ""},
		{x509.Certificate{Subject: subject("edge.example.org")}, ""},
		{x509.Certificate{DNSNames: []string{"edge-7", "*.example.org"}}, ""},
		{x509.Certificate{}, ""},
	} {
		i, err := g.Identify(Credentials{Certificate: &c.certificate})
		if c.want == "" {
			wantRefusal(t, err, telemetry.Unauthenticated, codeCertificate)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, c.want, i.Name)
	}
	edge := &x509.Certificate{Subject: subject("edge-7")}
	i, err := g.Identify(Credentials{Certificate: edge, Secret: northToken})
	require.NoError(t, err)
	assert.Equal(t, "north", i.Name, "the token decides")
	_, err = g.Identify(Credentials{Certificate: edge, Secret: "brim_wrong"})
	wantRefusal(t, err, telemetry.Unauthenticated, codeUnknown)
	_, err = g.Identify(Credentials{Certificate: edge, problem: "two headers"})
	wantRefusal(t, err, telemetry.Unauthenticated, codeMalformed)
}

func TestConcurrentRequestsDuringReload(t *testing.T) {
	t.Parallel()
	g := guardOf(t, entry("north", northToken, "scopes: [ingest]", "quota: {readings_per_second: 1000000, active_sensors: 10}"))
	var asking sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				i, err := g.Identify(Credentials{Secret: northToken})
				if err == nil {
					err = errors.Join(i.Check(), i.Require(Ingest), i.Admit(1, of("a", "b")))
				}
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	for n := range 30 {
		g.write(t, entry("north", northToken, "scopes: [ingest]", "quota: {readings_per_second: 1000000, active_sensors: 10}")+entry(fmt.Sprint("n", n), fmt.Sprint("t", n)))
		require.NoError(t, g.Reload())
	}
	close(done)
	asking.Wait()
}
