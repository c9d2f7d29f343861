package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

const (
	restartLines    = 10_000
	restartRequests = 100
)

// BenchmarkRestart measures a start with 1,000,000 readings of ten fields in the journal,
// accepted before a kill while MongoDB was away: the time until the daemon accepts readings,
// and how fast it stores those it has.
//
//	go test -run '^$' -bench Restart ./cmd/brim
func BenchmarkRestart(b *testing.B) {
	if raceEnabled {
		b.Skip("the race detector is what would be measured")
	}
	mongodtest.URI(b) // skips, or installs, where there is none
	port := mongodtest.FreePort(b)
	uri := fmt.Sprintf("mongodb://127.0.0.1:%d/?replicaSet=brim", port)
	args := []string{"--mongo-uri", uri, "--data-dir", filepath.Join(b.TempDir(), "data"), "--granularity", "1h"}
	first := startBrim(b, args...).awaitReady()
	body := newRateBody(restartLines, 1)
	for n := range restartRequests {
		body.moveTo(int64(n * restartLines / rateHosts))
		code, answer, err := first.send("/write?ack=journaled", body.text)
		require.NoError(b, err)
		require.Equal(b, http.StatusNoContent, code, answer)
	}
	first.signal(syscall.SIGKILL)
	first.wait()

	began := time.Now()
	second := startBrim(b, args...).awaitReady()
	ready := time.Since(began)
	mongodtest.Start(b, mongod.Config{Port: port, CacheSizeGB: 1})
	replayed := second.awaitLog("journal replayed")
	code, answer := second.admin(http.MethodPost, "/flush")
	require.Equal(b, http.StatusOK, code, answer)
	b.ReportMetric(0, "ns/op") // meaningless here
	b.ReportMetric(ready.Seconds(), "s-until-ready")
	stored := time.Duration(replayed["took"].(float64))
	b.ReportMetric(restartLines*restartRequests/stored.Seconds(), "replayed/s")
	inDatabase(b, uri, func(db *mongo.Database) {
		require.Equal(b, int64(restartLines*restartRequests), countReadings(b, db.Collection("readings")), "readings in MongoDB")
	})
}
