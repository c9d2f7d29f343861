package ingest

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The front does not look at which site a page is of, so it must not answer what
// a browser sends: that always says where its page is from.
func TestWhatABrowserSendsIsNotSimple(t *testing.T) {
	t.Parallel()
	const head, tail = simpleStart + "Host: 127.0.0.1:8430\r\nUser-Agent: x\r\nAccept: */*\r\nContent-Type: application/json\r\n", "Content-Length: 2\r\n\r\n{}"
	_, ok := parseSimple([]byte(head + tail))
	assert.True(t, ok, "without them it is")
	for _, header := range []string{"Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Referer: http://evil.example/", "Cookie: a=b"} {
		_, ok := parseSimple([]byte(head + header + "\r\n" + tail))
		assert.False(t, ok, header)
	}
}
