package main

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

const (
	typeJSON  = "application/json"
	typeLines = "application/x-ndjson"
)

// byDefault are the rules of a stream with default settings.
func byDefault() bucketRules { return bucketRules{granularity: 5 * time.Minute, maxReadings: 1000} }

// gzipped compresses a request's body.
func gzipped(t testing.TB, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	require.NoError(t, err)
	_, err = w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// sampleLines returns the lines of a sample of real readings.
func sampleLines(t testing.TB, name string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "internal", "ingest", "testdata", name))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	require.Len(t, lines, 100)
	return lines
}

// electrocardiogram makes a sensor's lines at 360 Hz: a heartbeat on a slow wave, in steps of
// 0.005 mV. It starts 40 s before an hour, so that no granularity fits all readings into one
// window.
func electrocardiogram(n int) [][]byte {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-40 * time.Second)
	lines := make([][]byte, n)
	for i := range lines {
		beat := float64(i%288)/288 - 0.4 // 75 beats a minute
		mv := 1.8*math.Exp(-beat*beat*2000) - 0.25 + 0.1*math.Sin(float64(i)/700)
		b := append([]byte(`{"sensorId":"ecg","ts":"`), start.Add(time.Duration(i)*time.Second/360).Format("2006-01-02T15:04:05.000Z")...)
		b = append(b, `","fields":{"mv":`...)
		b = strconv.AppendFloat(b, math.Round(mv*200)/200, 'f', -1, 64)
		lines[i] = append(b, '}', '}')
	}
	return lines
}

func TestOneFastSensorIsStoredOnce(t *testing.T) {
	t.Parallel()
	const maxReadings, linesPerRequest, seconds = 3600, 5000, 100
	lines := electrocardiogram(360 * seconds)
	sent := make([]plainReading, len(lines))
	for i, line := range lines {
		sent[i] = parseReading(t, line)
	}
	var bodies [][]byte
	for part := range slices.Chunk(lines, linesPerRequest) {
		bodies = append(bodies, gzipped(t, bytes.Join(part, []byte{'\n'})))
	}
	run := func(flags ...string) *mongo.Database {
		db := mongodtest.Database(t)
		b := startBrim(t, append(onShared(t, db), flags...)...).awaitStorage()
		postAll(t, b, bodies)
		return db
	}
	for _, granularity := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour} {
		t.Run(config.FormatDuration(granularity), func(t *testing.T) {
			t.Parallel()
			db := run("--granularity", config.FormatDuration(granularity), "--bucket-max-readings", strconv.Itoa(maxReadings))
			sameReadings(t, sent, checkBuckets(t, db.Collection("readings"), bucketRules{granularity, maxReadings}))
		})
	}
	t.Run("timeseries", func(t *testing.T) {
		t.Parallel()
		db := run("--storage", "timeseries")
		sameReadings(t, sent, storedSeries(t, db.Collection("readings")))
	})
}

// postAll sends the gzipped bodies from two clients, each taking the next body when done. All
// must be stored.
func postAll(t testing.TB, b *brimProcess, bodies [][]byte) {
	t.Helper()
	var next atomic.Int64
	var clients errgroup.Group
	for range 2 {
		clients.Go(func() error {
			for i := int(next.Add(1)) - 1; i < len(bodies); i = int(next.Add(1)) - 1 {
				code, answer, err := b.send("/v1/readings", bodies[i], "Content-Encoding", "gzip", "Content-Type", typeLines)
				if err != nil {
					return err
				}
				if code != http.StatusOK || !strings.Contains(answer, `"ack":"stored"`) {
					return fmt.Errorf("request %d: %d %s", i, code, answer)
				}
			}
			return nil
		})
	}
	require.NoError(t, clients.Wait())
}

func TestSparseReadingsKeepTheirFieldsAndKinds(t *testing.T) {
	t.Parallel()
	lines := sampleLines(t, "nyc-weather-2013.ndjson")
	sent := make([]plainReading, len(lines))
	shapes := make(map[int]bool)
	for i, line := range lines {
		sent[i] = parseReading(t, []byte(line))
		shapes[len(sent[i].fields)] = true
	}
	require.Greater(t, len(shapes), 1, "the sample has no sparse readings")

	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		db := mongodtest.Database(t)
		b := startBrim(t, onShared(t, db)...).awaitStorage()
		postAll(t, b, [][]byte{gzipped(t, []byte(strings.Join(lines, "\n")))})
		sameReadings(t, sent, checkBuckets(t, db.Collection("readings"), byDefault()))
	})
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		db := mongodtest.Database(t)
		b := startBrim(t, onShared(t, db)...).awaitStorage()
		request := &telemetrypb.WriteRequest{}
		for i := range sent {
			request.Readings = append(request.Readings, inProtobuf(&sent[i]))
		}
		conn, err := grpc.NewClient(b.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, conn.Close()) })
		response, err := telemetrypb.NewIngestServiceClient(conn).Write(t.Context(), request)
		require.NoError(t, err)
		assert.EqualValues(t, len(sent), response.GetAccepted(), response.GetErrors())
		assert.Equal(t, telemetrypb.Ack_ACK_STORED, response.GetAck())
		sameReadings(t, sent, checkBuckets(t, db.Collection("readings"), byDefault()))
	})
}

// inProtobuf returns a numeric reading in the plain form.
func inProtobuf(r *plainReading) *telemetrypb.Reading {
	out := &telemetrypb.Reading{SensorId: r.sensor, TsMs: &r.ts}
	for name, v := range r.fields {
		field := &telemetrypb.Field{Name: name}
		switch v := v.(type) {
		case int64:
			field.Value = &telemetrypb.Field_IntValue{IntValue: v}
		case float64:
			field.Value = &telemetrypb.Field_DoubleValue{DoubleValue: v}
		}
		out.Fields = append(out.Fields, field)
	}
	for name, value := range r.tags {
		out.Tags = append(out.Tags, &telemetrypb.Tag{Name: name, Value: value})
	}
	return out
}

func TestLineProtocolKeepsIntegers(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	b := startBrim(t, onShared(t, db)...).awaitStorage()
	lines := sampleLines(t, "tsbs-cpu-100x1h.lp")
	body := []byte(strings.Join(lines, "\n"))
	var sent []plainReading
	for _, path := range []string{"/write?db=benchmark", "/api/v2/write?org=o&bucket=b&precision=ns"} {
		code, answer, err := b.send(path, body)
		require.NoError(t, err)
		require.Equal(t, http.StatusNoContent, code, answer)
		for _, line := range lines {
			sent = append(sent, parseLine(t, line))
		}
		// Two readings of the same sensor and time stay two.
		sameReadings(t, sent, checkBuckets(t, db.Collection("readings"), byDefault()))
	}
}

// parseLine parses a sample line, which has no escapes and only integers.
func parseLine(t testing.TB, line string) plainReading {
	t.Helper()
	parts := strings.Split(line, " ")
	require.Len(t, parts, 3)
	key := strings.Split(parts[0], ",")
	slices.Sort(key[1:])
	r := plainReading{sensor: strings.Join(key, ","), fields: make(map[string]any), tags: make(map[string]string)}
	for _, tag := range key[1:] {
		name, value, _ := strings.Cut(tag, "=")
		r.tags[name] = value
	}
	for _, field := range strings.Split(parts[1], ",") {
		name, value, _ := strings.Cut(field, "=")
		n, err := strconv.ParseInt(strings.TrimSuffix(value, "i"), 10, 64)
		require.NoError(t, err)
		r.fields[name] = n
	}
	ns, err := strconv.ParseInt(parts[2], 10, 64)
	require.NoError(t, err)
	r.ts = ns / 1_000_000
	return r
}
