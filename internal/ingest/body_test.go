package ingest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func gzipped(t testing.TB, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func zstded(t testing.TB, content string, options ...zstd.EOption) string {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, append(options, zstd.WithEncoderConcurrency(1))...)
	require.NoError(t, err)
	_, err = io.WriteString(w, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

// manyLines is a body of n acceptable lines.
func manyLines(n int) string {
	return strings.Repeat(`{"sensorId":"s","fields":{"t":1}}`+"\n", n)
}

func TestEncodings(t *testing.T) {
	t.Parallel()
	lines := manyLines(3)
	for _, c := range []struct {
		name, encoding, body string
		status               int
		message              string
	}{
		{"identity", "identity", lines, 200, ""},
		{"gzip", "gzip", gzipped(t, lines), 200, ""},
		{"gzip in capitals", " GZIP ", gzipped(t, lines), 200, ""},
		{"gzip by its old name", "x-gzip", gzipped(t, lines), 200, ""},
		{"gzip in two members", "gzip", gzipped(t, lines[:40]) + gzipped(t, lines[40:]), 200, ""},
		{"zstd", "zstd", zstded(t, lines), 200, ""},
		{"zstd in two frames", "zstd", zstded(t, lines[:40]) + zstded(t, lines[40:]), 200, ""},
		{"an unknown encoding", "br", lines, 415, `Content-Encoding \"br\" cannot be read; allowed: gzip, zstd, identity`},
		{"two encodings", "gzip, zstd", lines, 415, `"code":"encoding_unknown"`},
		{"no gzip", "gzip", lines, 400, `"code":"encoding_broken","message":"the body is not valid gzip; nothing was accepted"`},
		{"no zstd", "zstd", lines, 400, `"code":"encoding_broken"`},
		{"something behind gzip", "gzip", gzipped(t, lines) + "garbage, which is no further member", 400, `"code":"encoding_broken"`},
		{"something behind zstd", "zstd", zstded(t, lines) + "garbage, which is no further frame", 400, `"code":"encoding_broken"`},
		{"nothing as gzip", "gzip", "", 400, `"code":"body_cut_off"`},
		{"a zstd window of 16 MiB", "zstd", zstded(t, manyLines(3)+strings.Repeat("\n", 17<<20), zstd.WithWindowSize(16<<20), zstd.WithSingleSegment(false)), 400, "a window larger than 8 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, j := newTestServer(t)
			w := post(t, d, "/v1/readings", typeLines, c.body, "Content-Encoding", c.encoding)
			assert.Equal(t, c.status, w.Code, w.Body)
			assert.Contains(t, w.Body.String(), c.message)
			if c.status == 200 {
				assert.Len(t, j.readings(), 3)
			} else {
				assert.Empty(t, j.readings())
			}
		})
	}
}

func TestABodyThatIsCutOffIsRefusedWhole(t *testing.T) {
	t.Parallel()
	for encoding, body := range map[string]string{"gzip": gzipped(t, manyLines(50)), "zstd": zstded(t, manyLines(50), zstd.WithEncoderCRC(true))} {
		d, j := newTestServer(t)
		for n := 1; n < len(body); n++ {
			w := post(t, d, "/v1/readings", typeLines, body[:n], "Content-Encoding", encoding)
			require.Equal(t, 400, w.Code, "%s cut at %d of %d bytes: %s", encoding, n, len(body), w.Body)
			require.Contains(t, w.Body.String(), `"code":"body_cut_off"`, "%s cut at %d bytes", encoding, n)
		}
		assert.Empty(t, j.readings())
	}
}

func TestAConnectionThatBreaksIsRefusedWhole(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	r := httptest.NewRequest(http.MethodPost, "/v1/readings", io.MultiReader(strings.NewReader(manyLines(50)), iotest.ErrReader(io.ErrUnexpectedEOF)))
	r.Header.Set("Content-Type", typeLines)
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, r)
	assert.Equal(t, 400, w.Code)
	assert.Contains(t, w.Body.String(), "the body did not arrive whole; nothing was accepted")
	assert.Empty(t, j.readings())
}

func TestLimitsAreNamed(t *testing.T) {
	t.Parallel()
	small := func(c *Config) { c.MaxBodyBytes, c.MaxInflatedBytes, c.MaxReadings = 4<<10, 64<<10, 1000 }
	chunked := func(body string) io.Reader { return io.MultiReader(strings.NewReader(body)) } // of an unknown length
	plain := func(body string) io.Reader { return strings.NewReader(body) }
	for _, c := range []struct {
		name, contentType, encoding string
		body                        io.Reader
		status                      int
		message                     string
	}{
		{"as long as allowed", typeLines, "", plain(manyLines(2) + strings.Repeat(" ", 4<<10-len(manyLines(2)))), 200, ""},
		{"one byte longer", typeLines, "", plain(manyLines(2) + strings.Repeat(" ", 4<<10-len(manyLines(2))+1)), 413, "larger than 4096 bytes (--max-body-bytes)"},
		{"one byte longer, of unknown length", typeLines, "", chunked(strings.Repeat("\n", 4<<10+1)), 413, "(--max-body-bytes)"},
		{"garbage that is too long", typeJSON, "", chunked(strings.Repeat("x", 5<<10)), 413, "(--max-body-bytes)"},
		{"inflated", typeLines, "gzip", plain(gzipped(t, manyLines(3)+strings.Repeat("\n", 64<<10))), 413, "inflates to more than 65536 bytes (--max-inflated-bytes)"},
		{"inflated by zstd", typeLines, "zstd", plain(zstded(t, manyLines(3)+strings.Repeat("\n", 64<<10))), 413, "(--max-inflated-bytes)"},
		{"one endless string", typeJSON, "gzip", plain(gzipped(t, `{"sensorId":"`+strings.Repeat("s", 65<<10))), 413, "(--max-inflated-bytes)"},
		{"endless depth", typeJSON, "gzip", plain(gzipped(t, strings.Repeat("[", 65<<10))), 413, "(--max-inflated-bytes)"},
		{"as many readings as allowed", typeLines, "gzip", plain(gzipped(t, manyLines(1000))), 200, ""},
		{"one reading more", typeLines, "gzip", plain(gzipped(t, manyLines(1001))), 413, "more than 1000 readings (--max-readings-per-request)"},
		{"one reading more in an array", typeJSON, "gzip", plain(gzipped(t, "["+strings.Repeat("{},", 1001)+"{}]")), 413, "(--max-readings-per-request)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, j := newTestServer(t, small)
			r := httptest.NewRequest(http.MethodPost, "/v1/readings", c.body)
			r.Header.Set("Content-Type", c.contentType)
			r.Header.Set("Content-Encoding", c.encoding)
			w := httptest.NewRecorder()
			d.Handler().ServeHTTP(w, r)
			assert.Equal(t, c.status, w.Code, w.Body)
			assert.Contains(t, w.Body.String(), c.message)
			if c.status != 200 {
				assert.Empty(t, j.readings(), "nothing of it is taken")
			}
		})
	}
	d, j := newTestServer(t, small)
	w := post(t, d, "/write", "", gzipped(t, strings.Repeat("cpu t=1\n", 1001)), "Content-Encoding", "gzip")
	assert.Equal(t, 413, w.Code)
	assert.Contains(t, w.Body.String(), "(--max-readings-per-request)")
	assert.Empty(t, j.readings())
}
