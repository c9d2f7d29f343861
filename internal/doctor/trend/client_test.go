package trend

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const secret = "open-sesame"

func TestUserAndPasswordAreSentAndNeverShown(t *testing.T) {
	t.Parallel()
	f := newFake(t, slowly())
	f.config.Prometheus = "http://ali:" + secret + "@"
	f.check = func(req *http.Request) {
		user, password, ok := req.BasicAuth()
		assert.True(t, ok)
		assert.Equal(t, "ali", user)
		assert.Equal(t, secret, password)
	}
	r := f.report()
	assert.NotContains(t, text(t, r), secret)
	assert.NotContains(t, r.Prometheus, "ali")
}

func TestTokenIsSentAndNeverShown(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
	f := newFake(t, slowly())
	f.config.TokenFile = path
	f.check = func(req *http.Request) { assert.Equal(t, "Bearer "+secret, req.Header.Get("Authorization")) }
	assert.NotContains(t, text(t, f.report()), secret)
}

func TestTokenFilesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{"empty": "\n", "two": secret + "\n" + secret, "large": strings.Repeat("x", 1<<17)} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := newClient("http://127.0.0.1:1", path)
		require.ErrorContains(t, err, path+" must hold one token", name)
		assert.NotContains(t, err.Error(), secret)
	}
	_, err := newClient("http://127.0.0.1:1", filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "read the token for Prometheus")
	_, err = newClient("http://ali:"+secret+"@127.0.0.1:1", filepath.Join(dir, "two"))
	require.ErrorContains(t, err, "one of them is enough")
}

func TestAddressesThatMakeNoSenseAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"", "127.0.0.1:9090", "ftp://ali:" + secret + "@host", "http://ali:" + secret + "@host:port", "http://", "http://h/?token=" + secret, "http://h/#" + secret,
		"http://ali:" + secret + "@%zz",
	} {
		_, err := newClient(address, "")
		require.ErrorContains(t, err, "allowed is http://HOST:PORT", address)
		assert.NotContains(t, err.Error(), secret)
	}
}

func TestErrorsOfPrometheusAreExplained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code       int
		body, want string
	}{
		{http.StatusUnauthorized, "no", "--prometheus-token-file"},
		{http.StatusNotFound, "no", "is that the address of a Prometheus?"},
		{http.StatusBadRequest, `{"status":"error","errorType":"bad_data","error":"parse error"}`, "--selector"},
		{http.StatusOK, "<html>", "ask Prometheus at http://127.0.0.1:"},
		{http.StatusOK, `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`, "no matrix"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		}))
		_, err := Ask(t.Context(), Config{Prometheus: strings.Replace(server.URL, "http://", "http://ali:"+secret+"@", 1), Span: week})
		server.Close()
		require.ErrorContains(t, err, c.want)
		assert.NotContains(t, err.Error(), secret)
	}
	_, err := Ask(t.Context(), Config{Prometheus: "http://ali:" + secret + "@127.0.0.1:1", Span: week})
	require.ErrorContains(t, err, "connect")
	assert.NotContains(t, err.Error(), secret)
}

// A secret goes nowhere but where it was meant to go.
func TestRedirectionsToOthersAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { assert.Fail(t, "it was asked") }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL+"/api/v1/query_range", http.StatusTemporaryRedirect))
	defer server.Close()
	_, err := Ask(t.Context(), Config{Prometheus: strings.Replace(server.URL, "http://", "http://ali:"+secret+"@", 1), Span: week})
	require.ErrorContains(t, err, "sends to another address")
	assert.NotContains(t, err.Error(), secret)
}
