package access

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatBelongsToNoRequestIsReadSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		slowed := 0
		c := &counted{Conn: server, leave: func() {}}
		c.meter.begin(func() { slowed++ })
		read := func(n int) time.Duration {
			began := time.Now()
			for have := 0; have < n; {
				go func() { _, _ = client.Write(make([]byte, 9)) }()
				k, err := io.ReadFull(c, make([]byte, 9))
				require.NoError(t, err)
				have += k
			}
			return time.Since(began)
		}
		assert.Zero(t, read(freeBytes-9))
		assert.Zero(t, slowed)
		assert.InDelta(t, 4, read(4*freeRate).Seconds(), 0.01)
		assert.Positive(t, slowed)
		time.Sleep(2 * time.Second)
		assert.Zero(t, read(2*freeRate-9), "time makes bytes free")
		c.meter.give(headBytes)
		assert.Zero(t, read(headBytes-9), "and so does a request")
		time.Sleep(24 * time.Hour)
		assert.Zero(t, read(freeBytes-9))
		assert.InDelta(t, 1, read(freeRate).Seconds(), 0.01, "no more than at the start")
		require.NoError(t, c.Close())
	})
}

// TestRequestsAreNotSlowed over HTTP/1 and HTTP/2, with and without TLS.
func TestRequestsAreNotSlowed(t *testing.T) {
	t.Parallel()
	padding := strings.Repeat("~", headBytes/2)
	for name, set := range map[string]func(*http.Protocols){
		"HTTP/1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
		"TLS":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
			}))
			s.Listener = NewLimits(registry, nil, "x").Listener(s.Listener, "x", 10, 10)
			s.Config.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: freeBytes / 2}
			Metered(s.Config)
			if set == nil {
				s.EnableHTTP2 = true
				s.StartTLS()
			} else {
				s.Config.Protocols = new(http.Protocols)
				set(s.Config.Protocols)
				s.Start()
				of := s.Client().Transport.(*http.Transport) //nolint:forcetypeassert // httptest made it
				of.Protocols = s.Config.Protocols
			}
			defer s.Close()
			post := func(body io.Reader) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
				require.NoError(t, err)
				r.Header.Set("X-Padding", padding)
				resp, err := s.Client().Do(r)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}
			for range 2 * freeBytes / len(padding) {
				post(strings.NewReader("x"))
			}
			for range 4 {
				post(bytes.NewReader(make([]byte, freeBytes)))
				post(struct{ io.Reader }{bytes.NewReader(make([]byte, freeBytes))}) // in chunks
			}
			families, err := registry.Gather()
			require.NoError(t, err)
			seen := false
			for _, f := range families {
				if f.GetName() == "brim_connections_slowed_total" {
					seen = true
					assert.Zero(t, f.GetMetric()[0].GetCounter().GetValue())
				}
			}
			assert.True(t, seen)
		})
	}
}
