package main

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

func TestTrendIsCalledInVain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--trend", "3w"}, "give --prometheus http://HOST:PORT (BRIM_PROMETHEUS)"},
		{[]string{"--trend", "3"}, `"3" is not a span of 2h to`},
		{[]string{"--trend", "1h", "--prometheus", "http://127.0.0.1:1"}, "is not a span of 2h to"},
		{[]string{"--prometheus", "http://127.0.0.1:1"}, "--prometheus is for --trend"},
		{[]string{"--selector", "a"}, "--selector is for --trend"},
		{[]string{"--trend", "3w", "--prometheus", "http://127.0.0.1:1", "--thresholds", "no-such-file"}, "no-such-file"},
		{[]string{"--trend", "2h", "--prometheus", "127.0.0.1:9090"}, "allowed is http://HOST:PORT"},
		{[]string{"--trend", "2h", "--prometheus", "http://127.0.0.1:1", "--prometheus-token-file", "/nope"}, "/nope"},
	} {
		got := runBrim(t, nil, append([]string{"doctor"}, c.args...)...)
		assert.Equal(t, exitUsage, got.code, "%v", c.args)
		require.ErrorContains(t, got.err, c.want, "%v", c.args)
	}
}

func TestTrendOfAPrometheusThatIsAwayFails(t *testing.T) {
	t.Parallel()
	got := runBrim(t, []string{"BRIM_PROMETHEUS=http://ali:open-sesame@127.0.0.1:1"}, "doctor", "--trend", "3w")
	assert.Equal(t, exitFailed, got.code)
	require.ErrorContains(t, got.err, "ask Prometheus at http://127.0.0.1:1")
	assert.NotContains(t, got.err.Error()+got.stdout+got.stderr, "sesame")
}

// The class at the end is the exit code; the thresholds may be one's own.
func TestTrendExitsByClass(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		value := ""
		switch query := req.FormValue("query"); {
		case strings.Contains(query, "brim_mongodb_up"):
			value = "1"
		case strings.Contains(query, "brim_disk_utilization_ratio"):
			value = "60"
		}
		result := ""
		if value != "" {
			result = `{"metric":{"job":"brim","instance":"a:1"},"values":[[` + req.FormValue("end") + `,"` + value + `"]]}`
		}
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"matrix","result":[` + result + `]}}`))
	}))
	defer server.Close()
	got := runBrim(t, nil, "doctor", "--trend", "3w", "--prometheus", server.URL)
	assert.Equal(t, exitDegrading, got.code)
	assert.Contains(t, got.stdout, "1 instance of job=\"brim\": a:1")
	assert.Regexp(t, `Disk busy +60 % +60 % +too few points`, got.stdout)
	assert.Empty(t, got.stderr, "it is no terminal")

	path := filepath.Join(t.TempDir(), "ours.yaml")
	require.NoError(t, os.WriteFile(path, []byte("disk_busy: {degrading: 30, bottleneck: 55}\n"), 0o600))
	got = runBrim(t, nil, "doctor", "--trend", "3w", "--prometheus", server.URL, "--thresholds", path, "--output", "json")
	assert.Equal(t, exitBottleneck, got.code)
	assert.Contains(t, got.stdout, `"class": "bottleneck"`)
	assert.Contains(t, got.stdout, path)
}
