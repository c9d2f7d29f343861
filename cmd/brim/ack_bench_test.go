package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

const (
	ackRate        = 2000 // requests a second
	ackTime        = 20 * time.Second
	ackConnections = 64
	ackSensors     = 1000
)

// BenchmarkJournaledAck measures how long a client waits for the journal: 2,000 requests per
// second, one reading each, open-loop, timed from when each was due. It also reports the disk's
// fsync time, measured before the load and, by the daemon, during it. It runs for a fixed time,
// whatever -benchtime says.
//
//	go test -run '^$' -bench JournaledAck ./cmd/brim
func BenchmarkJournaledAck(b *testing.B) {
	if raceEnabled {
		b.Skip("the race detector is what would be measured")
	}
	daemon := startBrim(b, append(embedded(b), "--ack", "journaled")...).awaitStorage()
	disk := fsyncs(b, 1000)
	const total = int(ackRate * ackTime / time.Second)
	began := time.Now()
	took, failed := postAtRate(daemon.HTTP, total)
	rate := float64(total) / time.Since(began).Seconds()
	require.Zero(b, failed, "requests failed")
	code, answer := daemon.admin(http.MethodPost, "/flush")
	require.Equal(b, http.StatusOK, code, answer)
	b.ReportMetric(0, "ns/op") // meaningless here
	b.ReportMetric(rate, "requests/s")
	report := func(what string, of []time.Duration) {
		slices.Sort(of)
		b.ReportMetric(milliseconds(of[len(of)/2]), what+"-p50-ms")
		b.ReportMetric(milliseconds(of[len(of)*99/100]), what+"-p99-ms")
		b.ReportMetric(milliseconds(of[len(of)-1]), what+"-max-ms")
	}
	report("ack", took)
	report("fsync", disk)
}

// compareAcks measures how long a client waits for the journal, with ackRate requests per
// second for ten seconds, alternately alone and alongside what begin starts. It reports medians
// of all rounds. This process gets priority if possible, since clients would be other machines.
func (b *brimProcess) compareAcks(bench *testing.B, begin func() (end func())) {
	bench.Helper()
	var alone, beside [3][]float64 // means, medians and 99th percentiles
	measure := func(into *[3][]float64) {
		end := brimtest.RunFirst(bench)
		took, failed := postAtRate(b.HTTP, 10*ackRate)
		end()
		require.Zero(bench, failed)
		slices.Sort(took)
		sum := time.Duration(0)
		for _, one := range took {
			sum += one
		}
		for i, one := range []time.Duration{sum / time.Duration(len(took)), took[len(took)/2], took[len(took)*99/100]} {
			into[i] = append(into[i], milliseconds(one))
		}
	}
	for bench.Loop() {
		measure(&alone)
		end := begin()
		measure(&beside)
		end()
	}
	for i, what := range []string{"mean", "p50", "p99"} {
		slices.Sort(alone[i])
		slices.Sort(beside[i])
		without, with := alone[i][len(alone[i])/2], beside[i][len(beside[i])/2]
		bench.ReportMetric(without, what+"-alone-ms")
		bench.ReportMetric(with, what+"-ms")
		bench.ReportMetric(with/without, what+"-ratio")
	}
	bench.ReportMetric(0, "ns/op")
}

// postAtRate posts ackRate readings per second, and returns how long each took from when it was
// due, and how many failed.
func postAtRate(address string, total int) (took []time.Duration, failures int64) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: ackConnections, MaxConnsPerHost: ackConnections}, Timeout: patience}
	defer client.CloseIdleConnections()
	took = make([]time.Duration, total)
	var next, failed atomic.Int64
	var connections sync.WaitGroup
	began := time.Now().Add(100 * time.Millisecond)
	for range ackConnections {
		connections.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= total {
					return
				}
				due := began.Add(time.Duration(n) * time.Second / ackRate)
				time.Sleep(time.Until(due)) //nolint:forbidigo // what is measured is how long answers take from here
				if err := postOne(client, address, n); err != nil {
					failed.Add(1)
				}
				took[n] = time.Since(due)
			}
		})
	}
	connections.Wait()
	return took, failed.Load()
}

func postOne(client *http.Client, address string, n int) error {
	body := fmt.Appendf(nil, `{"sensorId":"sensor-%d","fields":{"t":%d.5,"n":%d}}`, n%ackSensors, n%40, n)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+address+"/v1/readings", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"ack":"journaled"`)) {
		return fmt.Errorf("answer %d %s", resp.StatusCode, answer)
	}
	return nil
}

// fsyncs measures n fsyncs of 4 KiB appended to a file.
func fsyncs(b *testing.B, n int) []time.Duration {
	b.Helper()
	file, err := os.Create(filepath.Join(b.TempDir(), "probe"))
	require.NoError(b, err)
	defer file.Close()
	took := make([]time.Duration, n)
	for i := range took {
		_, err := file.Write(make([]byte, 4096))
		require.NoError(b, err)
		began := time.Now()
		require.NoError(b, file.Sync())
		took[i] = time.Since(began)
	}
	return took
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
