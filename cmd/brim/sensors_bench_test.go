package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

const (
	catalogued  = 1_000_000
	sitesOf     = 100    // a site's sensors are everywhere
	roomsOf     = 10_000 // a room has a hundred
	firstListed = 500_000
	withReading = 2_000 // the first of these that have a reading
	siteListed  = 30
)

func listedID(i int) string { return fmt.Sprintf("s-%07d", i) }

func hasReading(i int) bool {
	return i >= firstListed && i < firstListed+withReading || i%roomsOf == 7 || i%sitesOf == siteListed && i < sitesOf*withReading
}

// BenchmarkSensorList measures a page of sensors, from a catalog of 1,000,000.
//
//	go test -run '^$' -bench SensorList -benchtime 20x ./cmd/brim
func BenchmarkSensorList(b *testing.B) {
	db := mongodtest.Database(b)
	brim := startBrim(b, "--mongo-uri", mongodtest.URI(b), "--database", db.Name(), "--data-dir", b.TempDir()).awaitStorage()
	fillCatalog(b, brim, db)
	ask := func(b *testing.B, want int, query string) {
		b.Helper()
		for b.Loop() {
			code, answer, err := brimtest.Ask(http.MethodGet, "http://"+brim.HTTP+"/v1/sensors?"+query, "")
			require.NoError(b, err)
			require.Equal(b, http.StatusOK, code, answer)
			require.Equal(b, want, strings.Count(answer, `"sensorId"`), answer[:min(len(answer), 1000)])
		}
	}
	middle := url.Values{"after": {listedID(firstListed - 1)}}.Encode()
	for _, limit := range []int{1, 100, 1000} {
		b.Run("page="+strconv.Itoa(limit), func(b *testing.B) { ask(b, limit, middle+"&limit="+strconv.Itoa(limit)) })
	}
	of := func(matcher string, limit int) string {
		return url.Values{"tag": {matcher}, "limit": {strconv.Itoa(limit)}}.Encode()
	}
	b.Run("room", func(b *testing.B) { ask(b, catalogued/roomsOf, of("room=7", 1000)) })
	b.Run("site", func(b *testing.B) { ask(b, 100, of("site=30", 100)) })
	b.Run("site-and-pattern", func(b *testing.B) { ask(b, 100, of("site=30", 100)+"&"+url.Values{"tag": {"room=~..?.?.?"}}.Encode()) })
	// Patterns use no index: each sensor's tags are compared.
	b.Run("pattern", func(b *testing.B) { ask(b, 100, of("room=~(0*7|x.*)", 1000)) })
}

// fillCatalog writes sensors directly into the catalog, and readings of some of them.
func fillCatalog(b *testing.B, brim *brimProcess, db *mongo.Database) {
	b.Helper()
	ctx := context.Background()
	brim.eventually("a catalog", func() bool {
		code, _, err := brimtest.Ask(http.MethodGet, "http://"+brim.HTTP+"/v1/sensors?tag=a%3Db", "")
		return err == nil && code == http.StatusOK
	})
	now := time.Now()
	var readings []any
	for begin := 0; begin < catalogued; begin += 10_000 {
		documents := make([]any, 0, 10_000)
		for i := begin; i < begin+10_000; i++ {
			site, room := strconv.Itoa(i%sitesOf), strconv.Itoa(i%roomsOf)
			if hasReading(i) {
				readings = append(readings, map[string]any{"sensorId": listedID(i), "ts": now, "fields": map[string]any{"t": 1}, "tags": map[string]string{"site": site, "room": room}})
				continue
			}
			documents = append(documents, bson.D{
				{Key: "_id", Value: listedID(i)},
				{Key: "sets", Value: bson.A{bson.D{{Key: "tags", Value: bson.D{{Key: "room", Value: room}, {Key: "site", Value: site}}}, {Key: "from", Value: now}, {Key: "to", Value: now}}}},
				{Key: "pairs", Value: bson.A{"room=" + room, "site=" + site}}, {Key: "fields", Value: bson.A{"h", "t"}},
				{Key: "to", Value: now}, {Key: "written", Value: now},
			})
		}
		_, err := db.Collection("readings.sensors").InsertMany(ctx, documents)
		require.NoError(b, err)
	}
	for len(readings) > 0 {
		n := min(len(readings), 1000)
		body, err := json.Marshal(readings[:n])
		require.NoError(b, err)
		code, answer := brim.post("/v1/readings?ack=stored", string(body))
		require.Equal(b, http.StatusOK, code, answer)
		readings = readings[n:]
	}
}
