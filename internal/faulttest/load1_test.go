package faulttest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/load/send"
)

// TestLOAD1 stalls a server once for 100 ms, under a steady load. All requests
// due during the stall have waited, including those not even sent, and the
// response time must show it. The service time, measured from sending, covers
// only the few in flight.
func TestLOAD1(t *testing.T) {
	timed(t, stalledServer)
}

const (
	stall       = 100 * time.Millisecond
	load1Rate   = 400 // requests per second, of one reading
	load1Length = 2 * time.Second
	load1Conns  = 2
)

func stalledServer(s *scene) (slow string) {
	began := time.Now()
	var stalled sync.RWMutex // locked while the server stalls
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if time.Since(began) > load1Length/2 {
			once.Do(func() {
				stalled.Lock()
				time.AfterFunc(stall, stalled.Unlock)
			})
		}
		stalled.RLock()
		defer stalled.RUnlock()
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"accepted":1,"rejected":0,"ack":"journaled","errors":[]}`)
	}))
	defer server.Close()
	pool, err := send.New(send.Config{Target: server.URL})
	require.NoError(s.t, err)
	generator, err := load.New(load.Config{
		Senders: pool.Sender, Connections: load1Conns,
		Stream: load.Stream{Name: "readings", Storage: "memory", GranularitySeconds: 60},
		Rate:   load.Rate{From: load1Rate, To: load1Rate}, Duration: load1Length,
	})
	require.NoError(s.t, err)
	result, err := generator.Run(context.Background())
	require.NoError(s.t, err)
	require.NoError(s.t, pool.Close())
	s.t.Logf("response %+v, service %+v, achieved %.1f of %.1f", result.Response, result.Service, result.AchievedRate, result.OfferedRate)
	(&faulttest.Row{Test: "LOAD-1", Faults: 1, Acked: int(result.Acked), Seconds: time.Since(s.began).Seconds()}).Log(s.t)
	return strings.Join(dishonest(result), ", ")
}

// dishonest lists what a result hides about the stall. 40 of 800 requests were
// due during it, and waited from 0 to 100 ms.
func dishonest(r *load.Result) []string {
	var broken []string
	waited := int64(0) // longer than half of the stall, like half of those due
	last := r.Curve[len(r.Curve)-1].Count
	for _, p := range r.Curve {
		if p.Seconds < (stall / 2).Seconds() {
			waited = last - p.Count
		}
	}
	const half = load1Rate * int64(stall) / int64(time.Second) / 2
	if waited < half*3/4 {
		broken = append(broken, fmt.Sprintf("%d requests say that they waited, of %d that did", waited, half))
	}
	if r.Response.P99 < (stall / 2).Seconds() {
		broken = append(broken, fmt.Sprintf("p99 of response is %.1f ms", 1000*r.Response.P99))
	}
	if r.Service.P99 > (stall / 2).Seconds() {
		broken = append(broken, fmt.Sprintf("p99 of service is %.1f ms", 1000*r.Service.P99))
	}
	if r.Acked+r.Failed+r.Dropped != load1Rate*int64(load1Length/time.Second) {
		broken = append(broken, fmt.Sprintf("%d acknowledged, %d failed, %d dropped", r.Acked, r.Failed, r.Dropped))
	}
	return broken
}
