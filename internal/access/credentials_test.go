package access

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func basic(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestTokenInEveryAuthorizationScheme(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ header, secret, problem string }{
		{"Bearer T", "T", ""},
		{"bEARER   T ", "T", ""},
		{"Token T", "T", ""},
		{"token any:T", "T", ""},
		{"Basic " + basic("any:T"), "T", ""},
		{"basic " + basic(":T:U"), "T:U", ""},
		{"Basic " + basic(strings.Repeat("u", 500)+":T"), "T", ""},
		{"", "", "scheme"},
		{"T", "", "scheme"},
		{"Digest T", "", "allowed: Bearer TOKEN, Token TOKEN, and Basic"},
		{"Bearer", "", "no token"},
		{"Bearer ", "", "no token"},
		{"Token any:", "", "no token"},
		{"Basic " + basic("any:"), "", "no token"},
		{"Basic " + basic("any"), "", "not NAME:TOKEN"},
		{"Basic %", "", "not NAME:TOKEN"},
		{"Basic " + strings.Repeat("x", 1025), "", "not NAME:TOKEN"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/readings?p=other", http.NoBody)
		r.Header["Authorization"] = []string{c.header}
		got := OfRequest(r)
		assert.Equal(t, c.secret, got.Secret, c.header)
		assert.Contains(t, got.problem, c.problem, c.header)
		assert.Equal(t, c.problem == "", got.problem == "", "%s: %s", c.header, got.problem)
	}
}

func TestParameterPIsReadOnInfluxDB1PathsOnly(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/write?db=x&u=any&p=T%3D": "T=", "/query?p=T": "T", "/write": "", "/write?u=T": "",
		"/api/v2/write?u=any&p=T": "", "/v1/readings?p=T": "",
	} {
		assert.Equal(t, Credentials{Secret: want}, OfRequest(httptest.NewRequest(http.MethodPost, path, http.NoBody)), path)
	}
	r := httptest.NewRequest(http.MethodPost, "/write?u=any&p=other", http.NoBody)
	r.Header.Set("Authorization", "Token T")
	assert.Equal(t, "T", OfRequest(r).Secret, "the header decides")
}

func TestSecondAuthorizationHeaderIsRefused(t *testing.T) {
	t.Parallel()
	g := guardOf(t, entry("north", northToken))
	r := httptest.NewRequest(http.MethodPost, "/v1/readings", http.NoBody)
	r.Header["Authorization"] = []string{"Bearer " + northToken, "Bearer " + northToken}
	_, err := g.Identify(OfRequest(r))
	wantRefusal(t, err, telemetry.Unauthenticated, codeMalformed)
	for header, code := range map[string]string{"": codeMalformed, "Bearer x": codeUnknown, "Bearer " + northToken: "", "Basic " + basic("x:"+northToken): ""} {
		r.Header["Authorization"] = []string{header}
		_, err = g.Identify(OfRequest(r))
		if code == "" {
			assert.NoError(t, err)
			continue
		}
		wantRefusal(t, err, telemetry.Unauthenticated, code)
	}
}

func TestUnverifiedCertificateIsIgnored(t *testing.T) {
	t.Parallel()
	leaf, root := &x509.Certificate{Raw: []byte{1}}, &x509.Certificate{Raw: []byte{2}}
	for _, c := range []struct {
		state tls.ConnectionState
		want  *x509.Certificate
	}{
		{tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}, nil},
		{tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf, root}}}, leaf},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		r.TLS = &c.state
		assert.Same(t, c.want, OfRequest(r).Certificate)
	}
}

func TestRequireChecksTheScope(t *testing.T) {
	t.Parallel()
	g := guardOf(t, entry("north", northToken, "scopes: [read]"))
	problem := func(w http.ResponseWriter, err error) { w.WriteHeader(400 + int(telemetry.KindOf(err))) }
	served := Require(g.Guard, Read, problem, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "north", From(r.Context()).Name)
	}))
	for header, code := range map[string]int{"": 400 + int(telemetry.Unauthenticated), "Bearer " + northToken: 200} {
		r, w := httptest.NewRequest(http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		served.ServeHTTP(w, r)
		assert.Equal(t, code, w.Code)
		assert.Equal(t, code != 200, len(w.Header().Values("WWW-Authenticate")) == 2)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+northToken)
	Require(g.Guard, Admin, problem, served).ServeHTTP(w, r)
	assert.Equal(t, 400+int(telemetry.Forbidden), w.Code)
	assert.Empty(t, w.Header().Values("WWW-Authenticate"))
}

func FuzzAuthorization(f *testing.F) {
	for _, s := range []string{"Bearer T", "token a:b", "Basic YTpi", "", "Basic ====", "\x00 \xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		secret, problem := secretOf(value)
		if (secret == "") != (problem != "") {
			t.Fatalf("%q: secret %q beside the problem %q", value, secret, problem)
		}
		if len(secret) > 4 && strings.Contains(problem, secret) {
			t.Fatalf("%q is in %q", secret, problem)
		}
	})
}
