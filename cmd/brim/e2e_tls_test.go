package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
)

func TestCommandsSendATokenOverTLS(t *testing.T) {
	t.Parallel()
	dir, authority := t.TempDir(), accesstest.NewAuthority(t, "test")
	ca := accesstest.File(t, dir, "ca.pem", authority.PEM)
	cert, key := authority.Server("brim", time.Now().Add(time.Hour)).Write(t, dir)
	token, err := access.NewToken()
	require.NoError(t, err)
	identities := accesstest.File(t, dir, "access.yaml", fmt.Appendf(nil, "identities:\n  - {name: operator, hash: %q, scopes: [admin]}\n", access.HashOf(token)))
	tokenFile := accesstest.File(t, dir, "token", []byte(token+"\n"))
	b := startBrim(t, "--storage", "memory", "--data-dir", t.TempDir(), "--flush-interval", "10ms", "--tls-cert", cert, "--tls-key", key, "--access-file", identities)
	b.awaitLog("ready")
	web, rpc, admin := "https://"+b.HTTP, "grpcs://"+b.GRPC, "https://"+b.Admin
	short := []string{"load", "--sensors", "5", "--interval", "1s", "--duration", "1s", "--fail-if", "failed>0", "--ca", ca}

	got := runBrim(t, []string{"BRIM_TOKEN=" + token}, append(short, "--target", web, "--admin", admin)...)
	require.NoError(t, got.err, got.stderr)
	got = runBrim(t, nil, append(short, "--target", rpc, "--http", web, "--token-file", tokenFile)...)
	require.NoError(t, got.err, got.stderr)
	got = runBrim(t, nil, append(short, "--target", web)...)
	require.ErrorContains(t, got.err, "token_missing")
	require.ErrorContains(t, got.err, "give a token by BRIM_TOKEN or --token-file")
	got = runBrim(t, nil, append(short, "--target", rpc, "--http", web)...)
	require.ErrorContains(t, got.err, "give a token by BRIM_TOKEN or --token-file")
	got = runBrim(t, []string{"BRIM_TOKEN=brim_other"}, append(short, "--target", web)...)
	require.ErrorContains(t, got.err, "the token sent comes from BRIM_TOKEN")
	got = runBrim(t, nil, "query", "--url", web, "--ca", ca, "nothing")
	require.ErrorContains(t, got.err, "give a token by BRIM_TOKEN or --token-file")
	got = runBrim(t, []string{"BRIM_CA=" + ca, "BRIM_TOKEN_FILE=" + tokenFile}, "query", "--url", web, "nothing")
	require.NoError(t, got.err, got.stderr)
	got = runBrim(t, []string{"BRIM_TOKEN=" + token}, "query", "--url", web, "nothing")
	require.ErrorContains(t, got.err, "--ca FILE names the authority")
	got = runBrim(t, []string{"BRIM_TOKEN=" + token}, "query", "--url", "http://"+b.HTTP, "nothing")
	require.ErrorContains(t, got.err, "speaks TLS")

	// Memory leaves nothing to see, but the daemon has reported it.
	got = runBrim(t, []string{"BRIM_TOKEN=" + token, "BRIM_CA=" + ca}, "doctor", "--admin", admin)
	require.ErrorContains(t, got.err, "stores nothing in MongoDB")
	got = runBrim(t, []string{"BRIM_CA=" + ca}, "doctor", "--admin", admin)
	require.ErrorContains(t, got.err, "give a token by BRIM_TOKEN or --token-file")
	got = runBrim(t, nil, "doctor", "--admin", strings.TrimPrefix(admin, "https://"))
	require.ErrorContains(t, got.err, "speaks TLS; use "+admin)
	assert.NotContains(t, got.err.Error(), token)
}
