package access_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
)

// A tlsSide is an echoing TLS listener with its files and its log.
type tlsSide struct {
	dir, address string
	authority    *accesstest.Authority
	log          *logText
	registry     *prometheus.Registry
	tls          *access.TLS
}

// logText is a log that can be read during writes.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func tomorrow() time.Time { return time.Now().Add(24 * time.Hour).Truncate(time.Second) }

// listenTLS starts a listener; change may alter its configuration.
func listenTLS(t *testing.T, change func(*access.TLSConfig)) *tlsSide {
	t.Helper()
	s := &tlsSide{
		dir: t.TempDir(), authority: accesstest.NewAuthority(t, "test"), log: &logText{}, registry: prometheus.NewRegistry(),
	}
	cert, key := s.authority.Server("first", tomorrow()).Write(t, s.dir)
	c := access.TLSConfig{
		CertFile: cert, KeyFile: key, Registerer: s.registry, Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	}
	if change != nil {
		change(&c)
	}
	secure, err := access.NewTLS(c)
	require.NoError(t, err)
	plain, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener := tls.NewListener(plain, secure.Config("echo"))
	s.address, s.tls = plain.Addr().String(), secure
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { echo(conn) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() }) // clients have disconnected by then
	return s
}

func echo(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, 16)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		if _, err := conn.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// dial connects and exchanges a message, which completes the server's side of
// the handshake.
func (s *tlsSide) dial(t *testing.T, c *tls.Config) (*tls.Conn, error) {
	t.Helper()
	if c.RootCAs == nil {
		c.RootCAs = s.authority.Pool()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	secure := conn.(*tls.Conn)
	return secure, exchange(secure)
}

func exchange(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("word")); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 16))
	return err
}

// shown returns the name in the certificate of a new connection.
func (s *tlsSide) shown(t *testing.T) string {
	t.Helper()
	conn, err := s.dial(t, &tls.Config{MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// failures is the number of changed files that could not be used.
func (s *tlsSide) failures(t *testing.T) float64 {
	t.Helper()
	return value(t, s.registry, "brim_tls_reload_failures_total")
}

func value(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

func TestNewCertificateKeepsOpenConnections(t *testing.T) {
	t.Parallel()
	s := listenTLS(t, nil)
	old, err := s.dial(t, &tls.Config{MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	later := tomorrow().Add(24 * time.Hour)
	s.authority.Server("second", later).Write(t, s.dir)
	assert.Equal(t, "first", s.shown(t), "files are not read for each handshake")
	s.tls.Settle()
	assert.Equal(t, "second", s.shown(t))
	require.NoError(t, exchange(old), "open connections continue")
	assert.InDelta(t, later.Unix(), value(t, s.registry, "brim_tls_certificate_expiry_seconds"), 1)
	assert.Zero(t, s.failures(t))
}

func TestTLSReloadReadsFilesAtOnce(t *testing.T) {
	t.Parallel()
	s := listenTLS(t, nil)
	s.authority.Server("second", tomorrow()).Write(t, s.dir)
	require.Equal(t, "first", s.shown(t))
	s.tls.Reload()
	assert.Equal(t, "second", s.shown(t))
	accesstest.File(t, s.dir, "cert.pem", []byte("nothing"))
	s.tls.Reload()
	assert.Equal(t, "second", s.shown(t))
	assert.EqualValues(t, 1, s.failures(t))
	assert.NotPanics(t, (*access.TLS)(nil).Reload, "without TLS there is nothing to read")
}

// TestCertificateWithoutItsKeyIsNotUsed: the certificate is written before its key.
func TestCertificateWithoutItsKeyIsNotUsed(t *testing.T) {
	t.Parallel()
	s := listenTLS(t, nil)
	next := s.authority.Server("second", tomorrow())
	accesstest.File(t, s.dir, "cert.pem", next.Cert)
	for range 3 {
		s.tls.Settle()
		assert.Equal(t, "first", s.shown(t))
	}
	assert.EqualValues(t, 1, s.failures(t), "the same failure counts once")
	assert.Equal(t, 1, strings.Count(s.log.String(), "level=ERROR"), s.log.String())
	accesstest.File(t, s.dir, "key.pem", next.Key)
	s.tls.Settle()
	assert.Equal(t, "second", s.shown(t))
	assert.EqualValues(t, 1, s.failures(t))

	require.NoError(t, os.Remove(filepath.Join(s.dir, "key.pem")))
	s.tls.Settle()
	assert.Equal(t, "second", s.shown(t), "a file that is gone changes nothing")
	assert.EqualValues(t, 2, s.failures(t))
	accesstest.File(t, s.dir, "key.pem", next.Key)
	s.tls.Settle()
	assert.Equal(t, "second", s.shown(t))

	s.authority.Early("third").Write(t, s.dir)
	s.tls.Settle()
	assert.Equal(t, "second", s.shown(t), "nor does a certificate that clients would refuse")
	assert.NotContains(t, s.log.String(), "PRIVATE KEY")
}

// TestWatchAppliesChangesWithinTwoSeconds even if no client connects.
func TestWatchAppliesChangesWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, authority, registry := t.TempDir(), accesstest.NewAuthority(t, "test"), prometheus.NewRegistry()
		cert, key := authority.Server("first", tomorrow()).Write(t, dir)
		secure, err := access.NewTLS(access.TLSConfig{CertFile: cert, KeyFile: key, Registerer: registry})
		require.NoError(t, err)
		file := accesstest.File(t, dir, "access.yaml", []byte("identities: []\n"))
		guard, err := access.Open(access.Config{Path: file})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go access.Watch(ctx, guard, secure)

		later := tomorrow().Add(48 * time.Hour)
		authority.Server("second", later).Write(t, dir)
		accesstest.File(t, dir, "access.yaml", fmt.Appendf(nil, "identities:\n  - {name: a, hash: %q, scopes: [read]}\n", access.HashOf("a")))
		<-time.After(2 * time.Second)
		assert.InDelta(t, later.Unix(), value(t, registry, "brim_tls_certificate_expiry_seconds"), 1)
		_, err = guard.Identify(access.Credentials{Secret: "a"})
		require.NoError(t, err)
		problems, err := testutil.GatherAndLint(registry)
		require.NoError(t, err)
		assert.Empty(t, problems)
	})
}

func TestOldProtocolVersionsAreRefused(t *testing.T) {
	t.Parallel()
	s := listenTLS(t, nil)
	_, err := s.dial(t, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}) //nolint:gosec // deliberately old
	require.ErrorContains(t, err, "protocol version")
	_, err = s.dial(t, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: accesstest.NewAuthority(t, "other").Pool()})
	require.ErrorContains(t, err, "unknown authority")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		conn, err := s.dial(t, &tls.Config{MinVersion: version, MaxVersion: version})
		require.NoError(t, err)
		assert.Equal(t, version, conn.ConnectionState().Version)
	}
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	clients, others := accesstest.NewAuthority(t, "clients"), accesstest.NewAuthority(t, "others")
	for name, row := range map[string]struct {
		require            bool
		bare, ours, theirs bool // accepted or not
	}{
		"if given": {false, true, true, false},
		"required": {true, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := listenTLS(t, func(c *access.TLSConfig) {
				c.ClientCAFile, c.RequireClientCert = accesstest.File(t, dir, "clients.pem", clients.PEM), row.require
			})
			connects := func(certificates ...tls.Certificate) bool {
				c := &tls.Config{MinVersion: tls.VersionTLS12, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					if len(certificates) == 0 {
						return &tls.Certificate{}, nil
					}
					return &certificates[0], nil // even if the server does not list its authority
				}}
				_, err := s.dial(t, c)
				return err == nil
			}
			assert.Equal(t, row.bare, connects())
			assert.Equal(t, row.ours, connects(clients.Client("north").TLS(t)))
			assert.Equal(t, row.theirs, connects(others.Client("north").TLS(t)))

			// From now on the other authority is trusted instead.
			accesstest.File(t, dir, "clients.pem", others.PEM)
			s.tls.Settle()
			assert.False(t, connects(clients.Client("north").TLS(t)))
			assert.True(t, connects(others.Client("north").TLS(t)))
		})
	}
}

// TestResumedSessionIsVerifiedAgain: its authority is no longer trusted.
func TestResumedSessionIsVerifiedAgain(t *testing.T) {
	t.Parallel()
	clients := accesstest.NewAuthority(t, "clients")
	dir := t.TempDir()
	s := listenTLS(t, func(c *access.TLSConfig) {
		c.ClientCAFile, c.RequireClientCert = accesstest.File(t, dir, "clients.pem", clients.PEM), true
	})
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "127.0.0.1", RootCAs: s.authority.Pool(),
		Certificates: []tls.Certificate{clients.Client("north").TLS(t)},
	}
	_, err := s.dial(t, c)
	require.NoError(t, err)
	again, err := s.dial(t, c)
	require.NoError(t, err)
	assert.True(t, again.ConnectionState().DidResume, "no new handshake")
	accesstest.File(t, dir, "clients.pem", accesstest.NewAuthority(t, "others").PEM)
	s.tls.Settle()
	_, err = s.dial(t, c)
	require.Error(t, err)
}

func TestInvalidTLSFilesAreNamed(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t, "test")
	good, other := authority.Server("good", tomorrow()), authority.Server("other", tomorrow())
	for name, row := range map[string]struct {
		pair    accesstest.Pair
		clients string
		says    []string
	}{
		"a key of another certificate": {accesstest.Pair{Cert: good.Cert, Key: other.Key}, "", []string{"cert.pem", "key.pem", "private key does not match"}},
		"no certificate":               {accesstest.Pair{Cert: []byte("hello"), Key: good.Key}, "", []string{"cert.pem", "PEM"}},
		"no key":                       {accesstest.Pair{Cert: good.Cert, Key: good.Cert}, "", []string{"key.pem"}},
		"expired":                      {authority.Server("old", time.Now().Add(-time.Minute)), "", []string{"cert.pem", "expired at"}},
		"too early":                    {authority.Early("early"), "", []string{"cert.pem", "is not valid before", "clock"}},
		"half an authority":            {good, string(authority.PEM) + string(authority.PEM[:len(authority.PEM)/2]), []string{"clients.pem", "a PEM block is broken or incomplete"}},
		"half a first line":            {good, string(authority.PEM) + "-----BEG", []string{"clients.pem", "a PEM block is broken or incomplete"}},
		"half a chain":                 {accesstest.Pair{Cert: append(bytes.Clone(good.Cert), authority.PEM[:100]...), Key: good.Key}, "", []string{"cert.pem", "a PEM block is broken or incomplete"}},
		"no authority of clients":      {good, "hello", []string{"clients.pem", "no certificate in PEM"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := access.TLSConfig{}
			c.CertFile, c.KeyFile = row.pair.Write(t, dir)
			if row.clients != "" {
				c.ClientCAFile = accesstest.File(t, dir, "clients.pem", []byte(row.clients))
			}
			_, err := access.NewTLS(c)
			for _, text := range row.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
	_, err := access.NewTLS(access.TLSConfig{CertFile: filepath.Join(t.TempDir(), "none.pem"), KeyFile: "key.pem"})
	require.ErrorContains(t, err, "none.pem")
}

func TestWarnsOfKeyReadableByOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := accesstest.NewAuthority(t, "test").Server("good", tomorrow()).Write(t, dir)
	logged := func(mode os.FileMode) string {
		require.NoError(t, os.Chmod(key, mode))
		var log bytes.Buffer
		_, err := access.NewTLS(access.TLSConfig{CertFile: cert, KeyFile: key, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		return log.String()
	}
	assert.Contains(t, logged(0o644), "chmod 600")
	assert.Contains(t, logged(0o644), "key.pem")
	assert.Empty(t, logged(0o440), "a group may, as that of a pod's volumes")
}
