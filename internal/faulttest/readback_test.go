package faulttest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestAReaderSeesWhatIsAcknowledged continuously reads sensors back while they are written
// to and writes to MongoDB are lost, arrive late or lose their answers. At all times the
// results must contain every acknowledged reading once. Readings reach MongoDB soon, or wait
// in memory to be merged.
func TestAReaderSeesWhatIsAcknowledged(t *testing.T) {
	t.Parallel()
	for _, storage := range []string{"bucket", "timeseries"} {
		for name, policy := range map[string][]string{"eager": eager, "gathering": {"--flush-budget", "0%", "--flush-max", "3s"}} {
			t.Run(storage+" "+name, func(t *testing.T) {
				t.Parallel()
				readBack(newScene(t), storage, policy)
			})
		}
	}
}

func readBack(s *scene, storage string, policy []string) {
	t := s.t
	s.shared()
	proxy, uri := s.proxy()
	d := s.daemon(uri, append(policy[:len(policy):len(policy)], "--storage", storage, "--bucket-max-readings", "20", "--flush-interval", "50ms", "--granularity", "1m")...)
	decide := faulttest.Randomly(0.3, faulttest.CutAnswer, faulttest.CutAnswer, faulttest.Hold, faulttest.Drop)
	if storage == "timeseries" { // a late insert may be a duplicate there
		decide = faulttest.Randomly(0.3, faulttest.CutAnswer, faulttest.Drop)
	}
	proxy.Set(faulttest.Faults{Decide: decide})
	ctx, cancel := context.WithTimeout(context.Background(), form(5*time.Second, time.Minute))
	defer cancel()
	var watched []*watchedSensor
	var all sync.WaitGroup
	for i := range 3 {
		w := &watchedSensor{t: t, base: d.HTTP, name: fmt.Sprintf("sensor/%d", i), start: time.Now().Add(-time.Minute).UnixMilli()}
		watched = append(watched, w)
		all.Go(func() { w.write(ctx) })
		all.Go(func() { w.read(ctx) })
	}
	all.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 1))
		for tick := time.NewTicker(250 * time.Millisecond); ctx.Err() == nil; {
			select {
			case <-tick.C:
				proxy.Release(rnd)
			case <-ctx.Done():
				tick.Stop()
			}
		}
	})
	all.Wait()
	require.Positive(t, proxy.Counts().Faults())
	proxy.Set(faulttest.Faults{})
	proxy.CutAll() // otherwise waiting for a lost answer would take long
	require.NoError(t, d.flush(time.Minute))
	for _, w := range watched {
		assert.Positive(t, w.looks, "answers while it was written to")
		w.look(context.Background())
		assert.Positive(t, w.acked.Load())
	}
	t.Logf("%s: %d readings of a sensor, %d queries, %d faults", storage, watched[0].acked.Load(), watched[0].looks, proxy.Counts().Faults())
}

// A watchedSensor sends readings whose field n counts from 1, and reads them back.
type watchedSensor struct {
	t          testing.TB
	base, name string
	start      int64 // of its readings' times, milliseconds since the epoch
	sent       atomic.Int64
	acked      atomic.Int64 // all up to this one
	looks      int
}

// write sends a few readings at a time, after the previous ones are acknowledged.
func (w *watchedSensor) write(ctx context.Context) {
	for ctx.Err() == nil {
		var body bytes.Buffer
		n := w.sent.Load()
		for range 1 + rand.IntN(8) {
			n++
			fmt.Fprintf(&body, `{"sensorId":%q,"ts":%d,"fields":{"n":%d}}`+"\n", w.name, w.start+10*n, n)
		}
		w.sent.Store(n)
		code, answer, err := w.ask(context.WithoutCancel(ctx), http.MethodPost, "/v1/readings", body.Bytes())
		if !assert.NoError(w.t, err) || !assert.Equal(w.t, http.StatusOK, code, string(answer)) {
			return
		}
		w.acked.Store(n)
		wait(time.Duration(rand.IntN(20)) * time.Millisecond)
	}
}

func (w *watchedSensor) read(ctx context.Context) {
	for ctx.Err() == nil && !w.t.Failed() {
		w.look(context.WithoutCancel(ctx))
		w.looks++
	}
}

// look compares answers with the readings acknowledged before the query. An
// answer may say that MongoDB does not respond, since its connections are cut,
// but must never be wrong.
func (w *watchedSensor) look(ctx context.Context) {
	before := w.acked.Load()
	path := "/v1/sensors/" + url.PathEscape(w.name)
	code, body, err := w.ask(ctx, http.MethodGet, path+"/readings?limit=100000", nil)
	after := w.sent.Load()
	require.NoError(w.t, err)
	if code == http.StatusServiceUnavailable || code == http.StatusInternalServerError {
		return
	}
	require.Equal(w.t, http.StatusOK, code, string(body))
	var page struct {
		Readings []struct{ Fields struct{ N int64 } }
	}
	require.NoError(w.t, json.Unmarshal(body, &page))
	for i, r := range page.Readings {
		require.EqualValues(w.t, i+1, r.Fields.N, "of %d, %d to %d acknowledged", len(page.Readings), before, after)
	}
	require.GreaterOrEqual(w.t, int64(len(page.Readings)), before, "what was acknowledged is seen")
	w.lookAtSummary(ctx, path)
}

func (w *watchedSensor) lookAtSummary(ctx context.Context, path string) {
	before := w.acked.Load()
	code, body, err := w.ask(ctx, http.MethodGet, path+"/summary", nil)
	after := w.sent.Load()
	require.NoError(w.t, err)
	if code != http.StatusOK || before == 0 {
		return
	}
	var answer struct {
		Summary []struct {
			Count  int64
			Fields struct{ N struct{ N, Min, Max int64 } }
		}
	}
	require.NoError(w.t, json.Unmarshal(body, &answer))
	require.Len(w.t, answer.Summary, 1)
	one := answer.Summary[0]
	require.True(w.t, before <= one.Count && one.Count <= after, "%d readings, %d to %d acknowledged", one.Count, before, after)
	require.Equal(w.t, one.Count, one.Fields.N.N)
	require.EqualValues(w.t, 1, one.Fields.N.Min)
	require.Equal(w.t, one.Count, one.Fields.N.Max, "none is missing and none is there twice")
}

func (w *watchedSensor) ask(ctx context.Context, method, path string, body []byte) (code int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}
