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
		const frame = 9
		// read returns how long it takes to read frames of this cost.
		read := func(cost int) time.Duration {
			began := time.Now()
			for ; cost > 0; cost -= frame + readCost {
				go func() { _, _ = client.Write(make([]byte, frame)) }()
				_, err := io.ReadFull(c, make([]byte, frame))
				require.NoError(t, err)
			}
			return time.Since(began)
		}
		assert.Zero(t, read(freeBytes-100))
		assert.Zero(t, slowed)
		assert.InDelta(t, 4, read(4*freeRate).Seconds(), 0.05)
		assert.Positive(t, slowed)
		<-time.After(2 * time.Second)
		assert.Zero(t, read(2*freeRate-200), "time makes bytes free")
		c.meter.give(headBytes)
		assert.Zero(t, read(headBytes-100), "and so does a request")
		<-time.After(24 * time.Hour)
		assert.Zero(t, read(freeBytes-100))
		assert.InDelta(t, 1, read(freeRate).Seconds(), 0.05, "no more than at the start")
		require.NoError(t, c.Close())
	})
}

// TestRequestsAreNotSlowed, over HTTP/1 and HTTP/2, with and without TLS.
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
				post(struct{ io.Reader }{bytes.NewReader(make([]byte, freeBytes))}) // chunked
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
