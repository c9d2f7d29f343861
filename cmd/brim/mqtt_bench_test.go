package main

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest/mosquitto"
	"github.com/brim-telemetry/brim/internal/scrape"
)

// BenchmarkMQTT measures what 10,000 messages a second of QoS 1 on 10,000 topics cost
// mosquitto and Brim, and how far Brim lags behind at the end. It runs for a minute,
// whatever -benchtime says.
//
//	go test -run '^$' -bench MQTT -benchtime 1x ./cmd/brim
func BenchmarkMQTT(b *testing.B) {
	if raceEnabled {
		b.Skip("the race detector is what would be measured")
	}
	const topics, rate, seconds, publishers, inFlight = 10_000, 10_000, 60, 5, 40
	broker := mosquitto.Start(b)
	daemon := startBrim(b, "--storage", "memory", "--data-dir", b.TempDir(), "--mqtt-url", broker.URL(), "--mqtt-topic", "site/{site}/{sensorId}/{field}").awaitReady()
	daemon.awaitLog("subscribed to the MQTT broker")
	before := [2]float64{cpuTime(b, broker.Pid()), cpuTime(b, daemon.Cmd.Process.Pid)}
	var next, failed atomic.Int64
	var sending sync.WaitGroup
	began := time.Now()
	for i := range publishers {
		p, err := broker.Publisher(b.Context(), fmt.Sprintf("load-%d", i))
		require.NoError(b, err)
		defer p.Close()
		for range inFlight {
			sending.Go(func() {
				for {
					n := int(next.Add(1)) - 1
					if n >= rate*seconds {
						return
					}
					time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / rate))) //nolint:forbidigo // the schedule of an open loop
					if p.Publish(b.Context(), fmt.Sprintf("site/north/s-%d/t", n%topics), fmt.Sprintf("%d.5", n/topics), 1) != nil {
						failed.Add(1)
					}
				}
			})
		}
	}
	sending.Wait()
	published := time.Since(began)
	taken := func() float64 {
		sample, err := scrape.Get(b.Context(), http.DefaultClient, "http://"+daemon.Admin+"/metrics")
		require.NoError(b, err)
		return sample.Value("brim_ingest_readings_total", scrape.Labels{"protocol": "mqtt"})
	}
	behind := float64(rate*seconds) - taken()
	daemon.eventually("all readings", func() bool { return taken() >= rate*seconds })
	lag := time.Since(began) - published
	require.Zero(b, failed.Load(), "messages failed")
	b.ReportMetric(0, "ns/op") // meaningless here
	b.ReportMetric(rate*seconds/published.Seconds(), "messages/s")
	b.ReportMetric(behind, "behind")
	b.ReportMetric(lag.Seconds()*1000, "lag-ms")
	b.ReportMetric((cpuTime(b, broker.Pid())-before[0])/published.Seconds()*100, "mosquitto-cpu-%")
	b.ReportMetric((cpuTime(b, daemon.Cmd.Process.Pid)-before[1])/published.Seconds()*100, "brim-cpu-%")
}
