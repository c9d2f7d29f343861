package ingest

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzParseSimple holds what a front understands against net/http: whatever is
// simple means the same there, and there is nothing behind it.
func FuzzParseSimple(f *testing.F) {
	for _, headers := range []string{
		"", "User-Agent: a b\r\n", "Connection: keep-alive\r\n", "Connection: close\r\n", "BRIM-ACK: journaled\r\n", "brim-ack:  journaled \r\n", "Brim-Ack: stored\r\n",
		"Accept: */*\r\nAccept-Encoding: gzip, zstd\r\n", "Expect: 100-continue\r\n", "Transfer-Encoding: chunked\r\n", "X: y\r\n", "Host: b\r\n", ": \r\n", "Authorization: Bearer x\r\n", "authorization:  Token \r\n", "Content-Length: 33\r\n",
	} {
		f.Add([]byte(simple(goodReading, headers)))
	}
	f.Add([]byte(simple(goodReading) + simple(goodReading)))
	f.Add([]byte(strings.Replace(simple(goodReading), "Length: ", "Length: 0", 1)))
	f.Fuzz(func(t *testing.T, request []byte) {
		simple, ok := parseSimple(request)
		if !ok {
			return
		}
		in := bufio.NewReader(bytes.NewReader(request))
		r, err := http.ReadRequest(in)
		require.NoError(t, err)
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		assert.Equal(t, string(body), string(simple.body))
		assert.Zero(t, in.Buffered())
		assert.Equal(t, "POST /v1/readings HTTP/1.1", r.Method+" "+r.RequestURI+" "+r.Proto)
		assert.Empty(t, r.TransferEncoding)
		assert.False(t, r.Close)
		assert.Equal(t, []string{"application/json"}, r.Header["Content-Type"])
		assert.Equal(t, simple.journaled, r.Header.Get(headerAck) == "journaled")
		for name, values := range r.Header {
			assert.Len(t, values, 1, name)
			switch name {
			case "Content-Type", "Content-Length", "Connection", headerAck, "User-Agent", "Accept", "Accept-Encoding":
			case "Authorization":
				assert.Equal(t, values[0], string(simple.authorization))
			default:
				assert.Fail(t, "a header that a front knows nothing of", name)
			}
		}
	})
}
