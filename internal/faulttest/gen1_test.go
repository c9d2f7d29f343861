package faulttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestGEN1 restarts daemons, four in full form, one by one with another storage, compressor,
// granularity and format, while sensors are written to and read back. At all times, each answer
// of any daemon must contain every stored reading once, and at least one daemon must accept
// requests. Readings that wait in one daemon become visible to others once they know it, which
// takes seconds: see internal/simulate.
func TestGEN1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	flags := []string{"--bucket-max-readings", "20", "--granularity", "5m", "--flush-max", "2s"}
	var daemons []*daemon
	var bases []string
	for range form(2, 4) {
		d := s.daemon("", flags...)
		daemons, bases = append(daemons, d), append(bases, d.HTTP)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watched []*rolledSensor
	var all sync.WaitGroup
	for i := range 3 {
		w := &rolledSensor{t: t, bases: bases, name: fmt.Sprintf("sensor/%d", i), start: time.Now().Add(-10 * time.Minute).UnixMilli()}
		watched = append(watched, w)
		all.Go(func() { w.run(ctx, w.write) })
		all.Go(func() { w.run(ctx, w.look) })
	}
	changes := [][]string{
		{"--storage", "timeseries"},
		{"--storage", "bucket", "--compressor", "zstd", "--granularity", "1h"},
		{"--storage", "bucket", "--compressor", "zstd", "--granularity", "24h", "--bucket-format", "columns"},
	}
	for _, change := range changes {
		for _, d := range daemons {
			wait(form(time.Second, 5*time.Second))
			d.stop()
			d.start(change...).ready()
			// Otherwise a stop could leave readings in its journal, which the other daemon
			// cannot return.
			require.True(t, d.await(d.drained), d.lastWords())
		}
	}
	wait(time.Second)
	cancel()
	all.Wait()
	for _, w := range watched {
		w.look()
		assert.Positive(t, w.looks)
		t.Logf("%s: %d readings, %d answers compared", w.name, w.acked, w.looks)
	}
	names, err := s.db.ListCollectionNames(context.Background(), map[string]any{"name": map[string]any{"$in": []string{"readings", "readings.g2", "readings.g3", "readings.g4"}}})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"readings", "readings.g2", "readings.g3"}, names)
}

// A rolledSensor sends readings whose field n counts from 1 to one of several daemons, and reads
// them back from any of them.
type rolledSensor struct {
	t     testing.TB
	bases []string
	name  string
	start int64 // of its readings' times, milliseconds since the epoch
	// marks records its readings like a producer's, for the checker; nil: they are not checked.
	marks    *faulttest.Log
	producer int64

	mu          sync.Mutex
	sent, acked int64
	looks       int
}

func (w *rolledSensor) run(ctx context.Context, do func()) {
	for ctx.Err() == nil && !w.t.Failed() {
		do()
		wait(5 * time.Millisecond)
	}
}

// progress returns how many readings were acknowledged, and how many sent.
func (w *rolledSensor) progress() (acked, sent int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked, w.sent
}

// ask sends a request to the daemons in turn, starting with the given one, until one answers. A
// write with an unknown outcome is repeated at the same daemon with its key.
func (w *rolledSensor) ask(first int, method, path, body string) (answer string) {
	var why []string
	at, maybeTaken := first, false
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); wait(50 * time.Millisecond) {
		request, err := http.NewRequestWithContext(context.Background(), method, w.bases[at%len(w.bases)]+path, strings.NewReader(body))
		require.NoError(w.t, err)
		request.Close = true
		if method == http.MethodPost {
			request.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%d", w.name, first))
		}
		code, answer, err := brimtest.CarryOut(request)
		if err == nil && code == http.StatusOK {
			return answer
		}
		why = append(why, fmt.Sprint(code, answer, err))
		nothingTaken := method == http.MethodGet || code == http.StatusServiceUnavailable || errors.Is(err, syscall.ECONNREFUSED)
		if maybeTaken = maybeTaken || !nothingTaken; !maybeTaken {
			at++
		}
	}
	assert.Fail(w.t, "no daemon answers", "%s %s: %v", method, path, why)
	return ""
}

func (w *rolledSensor) write() {
	_, n := w.progress()
	n++
	w.mu.Lock()
	w.sent = n
	w.mu.Unlock()
	tags := "{}"
	if mark := (faulttest.Mark{Producer: w.producer, Number: n}); len(mark.Tags(w.name)) > 0 {
		tags = fmt.Sprintf(`{"site":%q}`, mark.Tags(w.name)[0].Value)
	}
	body := fmt.Sprintf(`{"sensorId":%q,"ts":%d,"fields":{"n":%d,"producer":%d,"number":%d},"tags":%s}`+"\n", w.name, w.start+10*n, n, w.producer, n, tags)
	entry := faulttest.Entry{Event: "attempt", Producer: w.producer, From: n, Count: 1}
	w.note(entry)
	if w.ask(int(n), http.MethodPost, "/v1/readings?ack=stored", body) != "" {
		entry.Event, entry.Code = "answer", http.StatusOK
		w.note(entry)
		w.mu.Lock()
		w.acked = n
		w.mu.Unlock()
	}
}

func (w *rolledSensor) note(e faulttest.Entry) {
	if w.marks != nil {
		w.marks.Note(e)
	}
}

// look compares answers with the readings acknowledged before the query.
func (w *rolledSensor) look() {
	path, stream := "/v1/sensors/"+url.PathEscape(w.name), int(time.Now().UnixNano()/1000)
	before, _ := w.progress()
	var page struct {
		Readings []struct{ Fields struct{ N int64 } }
	}
	if !w.parse(w.ask(stream, http.MethodGet, path+"/readings?limit=100000", ""), &page) {
		return
	}
	_, after := w.progress()
	for i, r := range page.Readings {
		require.EqualValues(w.t, i+1, r.Fields.N, "of %d, %d to %d acknowledged", len(page.Readings), before, after)
	}
	require.GreaterOrEqual(w.t, int64(len(page.Readings)), before, "what was acknowledged is seen")
	if before == 0 {
		return
	}
	before, _ = w.progress()
	var sum struct {
		Summary []struct{ Count int64 }
	}
	if !w.parse(w.ask(stream, http.MethodGet, path+"/summary", ""), &sum) {
		return
	}
	_, after = w.progress()
	require.Len(w.t, sum.Summary, 1)
	require.GreaterOrEqual(w.t, sum.Summary[0].Count, before)
	require.LessOrEqual(w.t, sum.Summary[0].Count, after)
	before, _ = w.progress()
	var latest struct{ Fields struct{ N int64 } }
	if !w.parse(w.ask(stream, http.MethodGet, path+"/latest", ""), &latest) {
		return
	}
	require.GreaterOrEqual(w.t, latest.Fields.N, before)
	require.Contains(w.t, w.ask(stream, http.MethodGet, "/v1/sensors", ""), w.name)
	w.looks++
}

func (w *rolledSensor) parse(answer string, into any) bool {
	return answer != "" && assert.NoError(w.t, json.Unmarshal([]byte(answer), into), answer)
}

// TestGEN2 kills the daemon while its journal has readings not known to be stored, and restarts
// it with another storage or compressor: those readings belong to their original collection.
func TestGEN2(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	d := s.daemon(uri, smallParts...)
	changes := [][]string{{"--storage", "timeseries"}, {"--storage", "bucket", "--compressor", "zstd"}, {"--storage", "bucket", "--compressor", "snappy", "--granularity", "1h"}}
	for _, change := range form(changes, append(changes, changes...)) {
		s.produce(d, 2, faulttest.ProducerConfig{Batch: 10, Rate: form(400.0, 1000)})
		wait(form(500*time.Millisecond, 3*time.Second))
		// Everything is applied, but no answer arrives.
		proxy.Set(faulttest.Faults{Decide: faulttest.EveryNth(1, faulttest.CutAnswer)})
		wait(time.Second)
		s.kill(d)
		proxy.Set(faulttest.Faults{})
		d.start(append(s.policy(), change...)...).ready()
	}
	s.finish("GEN-2", len(changes)+proxy.Counts().Faults())
}
