package client

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/internal/access/accesstest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

func TestTokenFilesAreReadEachTime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	source := TokenFile(path)
	_, err := source(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, token := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(path, []byte(token+"\n"), 0o600))
		got, err := source(t.Context())
		require.NoError(t, err)
		assert.Equal(t, token, got)
	}
	require.NoError(t, os.WriteFile(path, []byte("sec ret"), 0o600))
	_, err = source(t.Context())
	require.ErrorContains(t, err, "this is not a token")
	assert.NotContains(t, err.Error(), "sec")
}

func TestTheTokenIsShown(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	shown := make(chan string, 1)
	server := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		shown <- r.Header.Get("Authorization")
		say(200, taken2)(w)
	})
	c := newClient(t, server.URL, func(c *Config) { c.Token = TokenFile(path) })
	_, err := c.send(t.Context(), Request{Readings: weather("s", 2)}, Never, nil)
	var failed *Error
	require.ErrorAs(t, err, &failed)
	assert.False(t, failed.Unknown)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("secret"), 0o600))
	_, err = c.Write(t.Context(), weather("s", 2)...)
	require.NoError(t, err)
	assert.Equal(t, "Bearer secret", <-shown)
}

// guarded is a server that accepts one token.
type guarded struct {
	telemetrypb.UnimplementedIngestServiceServer

	token chan string // of capacity 1
}

func (g *guarded) Write(ctx context.Context, r *telemetrypb.WriteRequest) (*telemetrypb.WriteResponse, error) {
	token := <-g.token
	g.token <- token
	md, _ := metadata.FromIncomingContext(ctx)
	if got := md.Get("authorization"); len(got) != 1 || got[0] != "Bearer "+token {
		return nil, status.Error(codes.Unauthenticated, "token_unknown")
	}
	return &telemetrypb.WriteResponse{Accepted: 1}, nil
}

// TestACallGetsANewToken replaces the token of both daemon and client, and then only
// the daemon's.
func TestACallGetsANewToken(t *testing.T) {
	t.Parallel()
	service, server := &guarded{token: make(chan string, 1)}, grpc.NewServer(grpc.WaitForHandlers(true))
	telemetrypb.RegisterIngestServiceServer(server, service)
	listener := listen(t, "127.0.0.1:0")
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); assert.NoError(t, <-served) })
	path := filepath.Join(t.TempDir(), "token")
	c := newClient(t, "grpc://"+listener.Addr().String(), func(c *Config) { c.Token = TokenFile(path) })
	for _, token := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(path, []byte(token), 0o600))
		service.token <- token
		result, err := c.Write(t.Context(), one("s", 1))
		require.NoError(t, err)
		assert.Equal(t, 1, result.Attempts)
		<-service.token
	}
	service.token <- "three"
	_, err := c.Write(t.Context(), one("s", 1))
	var failed *Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, telemetry.Unauthenticated, telemetry.KindOf(err))
	assert.Equal(t, 1, failed.Attempts)
}

func TestTLSWithACertificateOfTheClients(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t, "authority")
	dir := t.TempDir()
	ca := accesstest.File(t, dir, "ca", authority.PEM)
	cert, key := authority.Client("client").Write(t, dir)
	own := authority.Server("127.0.0.1", time.Now().Add(time.Hour)).TLS(t)
	serverTLS := &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: authority.Pool(), ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}

	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { say(200, taken2)(w) }))
	web.TLS = serverTLS.Clone()
	web.EnableHTTP2 = true
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // about the client without a certificate
	web.StartTLS()
	t.Cleanup(web.Close)
	calls := grpc.NewServer(grpc.Creds(credentials.NewTLS(serverTLS)), grpc.WaitForHandlers(true))
	service := &guarded{token: make(chan string, 1)}
	service.token <- "t"
	telemetrypb.RegisterIngestServiceServer(calls, service)
	listener := listen(t, "127.0.0.1:0")
	served := make(chan error, 1)
	go func() { served <- calls.Serve(listener) }()
	t.Cleanup(func() { calls.Stop(); assert.NoError(t, <-served) })

	trusted, err := LoadTLS(ca, cert, key)
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(web.Listener.Addr().String())
	require.NoError(t, err)
	for _, target := range []struct {
		address  string
		readings int
	}{{"https://127.0.0.1:" + port, 2}, {"grpcs://" + listener.Addr().String(), 1}} {
		c := newClient(t, target.address, func(c *Config) { c.TLS, c.Token = trusted, Token("t") })
		_, err = c.Write(t.Context(), weather("s", target.readings)...)
		require.NoError(t, err, target)
		unknown := newClient(t, target.address, func(c *Config) { c.RetryFor = Never })
		_, err = unknown.Write(t.Context(), weather("s", target.readings)...)
		var failed *Error
		require.ErrorAs(t, err, &failed, target)
		assert.False(t, failed.Unknown, "nothing was sent to an unknown server")
	}

	for want, files := range map[string][3]string{
		"has no certificate in PEM": {key, "", ""}, "belong together": {"", cert, ""}, "read certificate:": {"", key, cert}, "no such file": {"nowhere", "", ""},
	} {
		_, err := LoadTLS(files[0], files[1], files[2])
		require.ErrorContains(t, err, want)
	}
}
