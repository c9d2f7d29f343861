package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// A secured daemon has a certificate, and an access file with an operator's
// token and a sensor's certificate.
type secured struct {
	*daemon

	dir       string
	authority *accesstest.Authority
	ca        string // file of the authority
	token     string // the operator's
	sensor    accesstest.Pair
}

func startSecured(t *testing.T, flags map[string]string) *secured {
	t.Helper()
	s := &secured{dir: t.TempDir(), authority: accesstest.NewAuthority(t, "test")}
	s.ca = accesstest.File(t, s.dir, "ca.pem", s.authority.PEM)
	cert, key := s.authority.Server("brim", time.Now().Add(time.Hour)).Write(t, s.dir)
	s.sensor = s.authority.Client("edge-7")
	var err error
	s.token, err = access.NewToken()
	require.NoError(t, err)
	file := accesstest.File(t, s.dir, "access.yaml", fmt.Appendf(nil, "identities:\n"+
		"  - {name: operator, hash: %q, scopes: [admin]}\n"+
		"  - {name: edge, certificate: 'cn:edge-7', scopes: [ingest], sensor_prefix: edge-}\n", access.HashOf(s.token)))
	all := memoryFlags(t)
	for name, value := range map[string]string{"tls-cert": cert, "tls-key": key, "tls-client-ca": s.ca, "access-file": file} {
		all[name] = value
	}
	for name, value := range flags {
		all[name] = value
	}
	s.daemon = newTestDaemon(t, all)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	require.Eventually(t, func() bool { return s.available() == nil }, patience, 5*time.Millisecond)
	return s
}

// client presents a certificate, or none.
func (s *secured) client(t *testing.T, shows ...accesstest.Pair) *http.Client {
	t.Helper()
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.authority.Pool()}
	for _, pair := range shows {
		c.Certificates = append(c.Certificates, pair.TLS(t))
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}, Timeout: patience}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// send posts a reading of a sensor over HTTPS.
func (s *secured) send(t *testing.T, client *http.Client, sensor, token string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.listeners.http.Addr().String()+"/v1/readings",
		strings.NewReader(fmt.Sprintf(`{"sensorId":%q,"fields":{"t":1}}`, sensor)))
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

func TestClientCertificateOverHTTPS(t *testing.T) {
	t.Parallel()
	s := startSecured(t, nil)
	bare, sensor, unknown := s.client(t), s.client(t, s.sensor), s.client(t, s.authority.Client("edge-8"))

	resp, body := s.send(t, sensor, "edge-1", "")
	assert.Equal(t, http.StatusOK, resp.StatusCode, body)
	assert.Equal(t, "HTTP/2.0", resp.Proto)
	_, body = s.send(t, sensor, "west-1", "")
	assert.Contains(t, body, `"sensor_forbidden"`, "its sensors are its own")
	resp, _ = s.send(t, bare, "west-1", s.token)
	assert.Equal(t, http.StatusOK, resp.StatusCode, "tokens go on working")
	resp, body = s.send(t, bare, "edge-1", "")
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, body)
	resp, body = s.send(t, unknown, "edge-1", "")
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, "the authority's word is not enough: %s", body)

	admin := func(client *http.Client, path string) int {
		resp, err := client.Get("https://" + s.listeners.admin.Addr().String() + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	assert.Equal(t, http.StatusOK, admin(bare, "/healthz"))
	assert.Equal(t, http.StatusUnauthorized, admin(bare, "/metrics"))
	assert.Equal(t, http.StatusForbidden, admin(sensor, "/metrics"))
}

func TestClientCertificateOverGRPC(t *testing.T) {
	t.Parallel()
	s := startSecured(t, nil)
	write := func(token string, shows ...accesstest.Pair) (*telemetrypb.WriteResponse, error) {
		c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.authority.Pool()}
		for _, pair := range shows {
			c.Certificates = append(c.Certificates, pair.TLS(t))
		}
		conn, err := grpc.NewClient(s.listeners.grpc.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(c)))
		require.NoError(t, err)
		defer conn.Close()
		ctx := t.Context()
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		return telemetrypb.NewIngestServiceClient(conn).Write(ctx, &telemetrypb.WriteRequest{Readings: []*telemetrypb.Reading{{
			SensorId: "edge-1", Fields: []*telemetrypb.Field{{Name: "t", Value: &telemetrypb.Field_DoubleValue{DoubleValue: 1}}},
		}}})
	}
	answer, err := write("", s.sensor)
	require.NoError(t, err)
	assert.EqualValues(t, 1, answer.GetAccepted())
	_, err = write(s.token)
	require.NoError(t, err)
	_, err = write("")
	assert.Equal(t, codes.Unauthenticated, grpcstatus.Code(err), err)
	_, err = write("", s.authority.Client("edge-8"))
	assert.Equal(t, codes.Unauthenticated, grpcstatus.Code(err), err)
}

func TestRunningDaemonReloadsCertificates(t *testing.T) {
	t.Parallel()
	s := startSecured(t, nil)
	client := s.client(t)
	_, _ = s.send(t, client, "s", s.token)
	s.authority.Server("renewed", time.Now().Add(time.Hour)).Write(t, s.dir)
	require.Eventually(t, func() bool {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: s.authority.Pool(), MinVersion: tls.VersionTLS12}}).DialContext(t.Context(), "tcp", s.listeners.grpc.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName == "renewed"
	}, patience, 50*time.Millisecond)
	resp, _ := s.send(t, client, "s", s.token)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "brim", commonName(resp.TLS.PeerCertificates), "its connection lives")
}

func commonName(chain []*x509.Certificate) string { return chain[0].Subject.CommonName }

func TestOpenListenersNeedAuthentication(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := accesstest.File(t, dir, "access.yaml", []byte("identities: []\n"))
	for name, row := range map[string]struct {
		flags  map[string]string
		says   string // in the error; empty: it opens
		warned string
	}{
		"loopback":                     {map[string]string{}, "", ""},
		"localhost":                    {map[string]string{"http-addr": "localhost:0"}, "", ""},
		"IPv6 loopback":                {map[string]string{"admin-addr": "[::1]:0"}, "", ""},
		"every interface":              {map[string]string{"http-addr": ":0"}, "--http-addr :0 would open HTTP beyond this machine", ""},
		"unspecified":                  {map[string]string{"grpc-addr": "0.0.0.0:0"}, "--grpc-addr 0.0.0.0:0 would open gRPC", ""},
		"admin":                        {map[string]string{"admin-addr": "[::]:0"}, "--admin-addr [::]:0 would open the admin pages", ""},
		"allow-unauthenticated":        {map[string]string{"http-addr": ":0", "allow-unauthenticated": "on"}, "", "without authentication (--allow-unauthenticated)"},
		"tokens in clear":              {map[string]string{"http-addr": ":0", "access-file": file}, "", "tokens travel in clear"},
		"quotas are no authentication": {map[string]string{"http-addr": ":0", "quota-readings": "10"}, "--access-file FILE", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := memoryFlags(t)
			for flag, value := range row.flags {
				flags[flag] = value
			}
			var log bytes.Buffer
			d, err := newDaemon(loadSettings(t, Sources{Flags: flags}), slog.New(slog.NewTextHandler(&log, nil)), Options{Stderr: io.Discard, Version: VersionOf("")})
			require.NoError(t, err)
			_, err = d.listen(t.Context())
			if row.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.says)
				require.ErrorContains(t, err, "--allow-unauthenticated on")
				var misused config.UsageError
				require.ErrorAs(t, err, &misused)
			}
			require.NoError(t, d.stop(context.Background()))
			if row.warned == "" {
				assert.NotContains(t, log.String(), "level=WARN")
			} else {
				assert.Contains(t, log.String(), row.warned)
			}
		})
	}
}

// TestWarnsOfUnmappedClientCertificates: without an access file, certificates
// belong to no identity.
func TestWarnsOfUnmappedClientCertificates(t *testing.T) {
	t.Parallel()
	const warning = "client certificates are requested, but no --access-file says what they may do"
	dir, authority := t.TempDir(), accesstest.NewAuthority(t, "test")
	cert, key := authority.Server("brim", time.Now().Add(time.Hour)).Write(t, dir)
	ca := accesstest.File(t, dir, "ca.pem", authority.PEM)
	named := accesstest.File(t, dir, "access.yaml", []byte("identities:\n  - {name: edge, certificate: 'cn:edge-7', scopes: [ingest]}\n"))
	for file, want := range map[string]int{"": 1, named: 0} {
		flags := memoryFlags(t)
		for name, value := range map[string]string{"tls-cert": cert, "tls-key": key, "tls-client-ca": ca, "access-file": file} {
			flags[name] = value
		}
		var logs synced
		d, err := newDaemon(loadSettings(t, Sources{Flags: flags}), newLogger(&logs, logLevel("info"), "text"), Options{Stderr: io.Discard, Version: VersionOf("")})
		require.NoError(t, err)
		_, err = d.listen(t.Context())
		require.NoError(t, err)
		require.NoError(t, d.stop(context.Background()))
		assert.Equal(t, want, strings.Count(logs.String(), warning), logs.String())
		assert.Equal(t, want, strings.Count(logs.String(), "level=WARN"), logs.String())
	}
}

// TestBuffersOfHTTP2: a connection takes no more memory than documented in docs/configuration.md.
func TestBuffersOfHTTP2(t *testing.T) {
	t.Parallel()
	s := startSecured(t, nil)
	dialer := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.authority.Pool(), NextProtos: []string{"h2"}}}
	for _, l := range []net.Listener{s.listeners.http, s.listeners.grpc, s.listeners.admin} {
		conn, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = conn.Write([]byte(http2.ClientPreface))
		require.NoError(t, err)
		framer := http2.NewFramer(conn, conn)
		require.NoError(t, framer.WriteSettings())
		unread, largest := uint32(65_535), uint32(0) // of a new connection, and of a frame
		for acknowledged := false; !acknowledged; {
			frame, err := framer.ReadFrame()
			require.NoError(t, err)
			switch f := frame.(type) {
			case *http2.WindowUpdateFrame:
				unread += f.Increment
			case *http2.SettingsFrame:
				acknowledged = f.IsAck()
				if size, ok := f.Value(http2.SettingMaxFrameSize); ok {
					largest = size
				}
			}
		}
		assert.LessOrEqual(t, unread, uint32(256<<10))
		assert.Equal(t, uint32(16<<10), largest)
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	flags := memoryFlags(t)
	flags["max-connections"], flags["max-connections-per-address"] = "8", "8"
	d := newTestDaemon(t, flags)
	startRunning(t, d)
	const tried, most = 20, 8
	for _, address := range []string{d.listeners.http.Addr().String(), d.listeners.grpc.Addr().String()} {
		ended := make(chan struct{}, tried)
		var reading sync.WaitGroup
		t.Cleanup(reading.Wait) // after disconnecting
		for range tried {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err != nil { // closed already
				ended <- struct{}{}
				continue
			}
			t.Cleanup(func() { conn.Close() })
			reading.Go(func() {
				_, _ = io.Copy(io.Discard, conn) // until it ends, one way or another
				ended <- struct{}{}
			})
		}
		for range tried - most {
			<-ended
		}
	}
	_, metrics := d.get(t, "/metrics")
	for _, listener := range []string{"http", "grpc"} {
		assert.Contains(t, metrics, fmt.Sprintf("brim_connections{listener=%q} 8\n", listener))
		assert.Contains(t, metrics, fmt.Sprintf("brim_connections_refused_total{listener=%q,reason=\"total\"} 12\n", listener))
	}
}

func TestConnectionLimitLeavesFilesForTheJournal(t *testing.T) {
	t.Parallel()
	c := &Settings{MaxConnections: 4096, MaxConnectionsPerAddress: 4000}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for _, plenty := range []uint64{0, 8960, 1 << 20, 1<<64 - 1} {
		most, per, err := c.connectionLimits(plenty, logger)
		require.NoError(t, err)
		assert.Equal(t, []int{4096, 4000}, []int{most, per}, plenty)
	}
	assert.Empty(t, log.String())
	most, per, err := c.connectionLimits(4096, logger)
	require.NoError(t, err)
	assert.Equal(t, []int{1664, 1664}, []int{most, per}, "two listeners and 768 others are 4096")
	assert.Contains(t, log.String(), "LimitNOFILE")
	most, _, err = c.connectionLimits(784, logger)
	require.NoError(t, err)
	assert.Equal(t, 8, most)
	_, _, err = c.connectionLimits(783, logger)
	assert.EqualError(t, err, "this process may open 783 files; it needs at least 784, and 8960 for --max-connections 4096: raise the limit (ulimit -n, LimitNOFILE)")
}

func TestListenerSettingsAreCheckedTogether(t *testing.T) {
	t.Parallel()
	for says, flags := range map[string]map[string]string{
		"http-addr and admin-addr are both 127.0.0.1:8432": {"http-addr": "127.0.0.1:8432"},
		"tls-cert and tls-key belong together":             {"tls-cert": "cert.pem"},
		"tls-client-ca needs TLS":                          {"tls-client-ca": "ca.pem"},
		"tls-require-client-cert needs":                    {"tls-cert": "c", "tls-key": "k", "tls-require-client-cert": "on"},
		"is more than max-connections 10":                  {"max-connections": "10", "max-connections-per-address": "11"},
	} {
		_, err := Sources{Flags: flags}.Load()
		require.ErrorContains(t, err, says)
	}
	missing := filepath.Join(t.TempDir(), "none.pem")
	flags := memoryFlags(t)
	flags["tls-cert"], flags["tls-key"] = missing, missing
	_, err := newDaemon(loadSettings(t, Sources{Flags: flags}), slog.New(slog.DiscardHandler), Options{Stderr: io.Discard, Version: VersionOf("")})
	require.ErrorContains(t, err, missing)
	var misused config.UsageError
	require.ErrorAs(t, err, &misused)
	_, err = os.Stat(missing)
	require.ErrorIs(t, err, os.ErrNotExist)
}
