package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// BenchmarkMoveIngest measures how long 2,000 requests per second with one reading each wait
// for the journal, alternately without and with a `brim move` on the same machine, at its
// default share of time. It moves three million readings of 1,000 sensors from 5-minute bucket
// documents into a time series, or into documents with another compressor.
//
//	go test -run '^$' -bench MoveIngest -benchtime 3x ./cmd/brim
func BenchmarkMoveIngest(b *testing.B) {
	for into, flags := range map[string][]string{"series": {"--storage", "timeseries"}, "zstd": {"--compressor", "zstd"}} {
		b.Run(into, func(b *testing.B) {
			site := append(onShared(b, mongodtest.Database(b)), "--ack", "journaled")
			first := startBrim(b, site...).awaitStorage()
			first.postMany(b, 1000, 3000)
			code, answer := first.admin(http.MethodPost, "/flush?timeout=10m")
			require.Equal(b, http.StatusOK, code, answer)
			require.Zero(b, first.Stop())
			daemon := startBrim(b, append(site, flags...)...).awaitStorage()
			daemon.compareAcks(b, func() (end func()) { return startMove(b, site[:4], "  sensor ") })
		})
	}
}

// postMany posts readings of sensors, one every second.
func (b *brimProcess) postMany(t testing.TB, sensors, each int) {
	t.Helper()
	var body []byte
	for i := range each {
		for s := range sensors {
			body = fmt.Appendf(body, `{"sensorId":"sensor-%d","ts":%d,"fields":{"t":%d.5,"n":%d}}`+"\n", s, daySide().UnixMilli()+int64(1000*i), s%40, i)
		}
		if (i+1)%5 == 0 || i == each-1 {
			code, answer, err := b.send("/v1/readings", body, "Content-Type", "application/x-ndjson")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code, answer)
			body = body[:0]
		}
	}
}
