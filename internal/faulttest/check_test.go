package faulttest_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/sabotage/patch"
)

// reading is a correct reading of producer 1, for a part with the tags of site north.
func reading(number int64) bson.D {
	doc := bson.D{{Key: "ts", Value: bson.DateTime(number)}, {Key: "producer", Value: int64(1)}, {Key: "number", Value: number}}
	if (faulttest.Mark{Producer: 1, Number: number}).Tags("s") == nil {
		doc = append(doc, bson.E{Key: "sensor", Value: bson.D{}})
	}
	return doc
}

// part is a correct document of a sensor's first minute with these readings of
// producer 1.
func part(number int32, full bool, readings ...int64) bson.M {
	var measurements bson.A
	low, high, sum := readings[0], readings[0], int64(0)
	for _, n := range readings {
		measurements = append(measurements, reading(n))
		low, high, sum = min(low, n), max(high, n), sum+n
	}
	count := int64(len(readings))
	doc := bson.M{
		"_id":      bson.D{{Key: "s", Value: "s"}, {Key: "b", Value: bson.DateTime(0)}, {Key: "g", Value: int32(60)}, {Key: "p", Value: number}},
		"sensorId": "s", "bucketStart": bson.DateTime(0), "count": int32(count), "bytes": int32(40 * count),
		"first": bson.DateTime(low), "last": bson.DateTime(high),
		"stats": bson.M{
			"producer": bson.M{"n": count, "min": int64(1), "max": int64(1), "sum": float64(count)},
			"number":   bson.M{"n": count, "min": low, "max": high, "sum": float64(sum)},
		},
		"tags": bson.M{"site": "north"}, "measurements": measurements, "w": bson.M{"session": int64(9)},
	}
	if full {
		doc["full"] = true
	}
	return doc
}

// copied is part as copied by `brim move`.
func copied(number int32, readings ...int64) bson.M {
	doc := with(part(number, true, readings...), "from", "readings.g2")
	delete(doc, "w")
	return doc
}

// with returns a document with one field changed.
func with(doc bson.M, key string, value any) bson.M {
	doc[key] = value
	return doc
}

// TestCheckSeesWhatIsWrong: each collection has one fault. Readings 0 to 4 were
// attempted, 0 to 3 acknowledged.
func TestCheckSeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		documents []bson.M
		want      string
	}{
		{"nothing", []bson.M{part(0, true, 0, 1), part(1, false, 2, 3)}, ""},
		{"nothing, if more is stored than was acknowledged", []bson.M{part(0, false, 0, 1, 2, 3, 4)}, ""},
		{"a reading is missing", []bson.M{part(0, false, 0, 1, 2)}, "lost: 1/3"},
		{"a reading is there twice", []bson.M{part(0, true, 0, 1, 2), part(1, false, 2, 3)}, "twice: 1/2"},
		{"a reading that was never sent", []bson.M{part(0, false, 0, 1, 2, 3, 5)}, "invented: 1/5"},
		{"too many in a part", []bson.M{part(0, false, 0, 1, 2, 3, 4, 5, 6)}, "holds 7 readings, more than 5"},
		{"a wrong count", []bson.M{with(part(0, false, 0, 1, 2, 3), "count", 3)}, "has count 3 but holds 4 readings"},
		{"no bytes", []bson.M{with(part(0, false, 0, 1, 2, 3), "bytes", 0)}, "counts 0 bytes"},
		{"a wrong first", []bson.M{with(part(0, false, 0, 1, 2, 3), "first", bson.DateTime(1))}, "says first"},
		{"a reading outside the window", []bson.M{part(0, false, 0, 1, 2, 3, 60_000)}, "outside its window"},
		{"no guard", []bson.M{with(part(0, false, 0, 1, 2, 3), "w", bson.M{})}, "has no guard"},
		{"wrong stats", []bson.M{with(part(0, false, 0, 1, 2, 3), "stats", part(0, false, 0, 1, 2)["stats"])}, "stats of number: n 3"},
		{"no stats", []bson.M{with(part(0, false, 0, 1, 2, 3), "stats", bson.M{})}, "has stats of 0 fields"},
		{"other tags than were sent", []bson.M{with(part(0, false, 0, 1, 2, 3), "tags", bson.M{"site": "south"})}, `holds reading 1/1 with the tags {"site": "south"}`},
		{"tags that were not sent", []bson.M{with(part(0, false, 0, 1, 2, 3), "measurements", bson.A{reading(1), reading(2), reading(3), reading(0)[:3]})}, "holds reading 1/0 with the tags"},
		{"no tags", []bson.M{with(part(0, false, 0, 1, 2, 3), "tags", bson.M{})}, "holds reading 1/3 with the tags {}"},
		{"another sensor", []bson.M{with(part(0, false, 0, 1, 2, 3), "sensorId", "t")}, "has sensor t and start"},
		{"an open part before the last", []bson.M{part(0, false, 0, 1), part(1, false, 2, 3)}, "is open, and not the last"},
		{"a part is missing", []bson.M{part(1, false, 0, 1, 2, 3)}, "part 1 of 1 should have number 0"},
		{"nothing, in copies", []bson.M{part(0, false, 0, 1), copied(-7, 2, 3), copied(-3, 4)}, ""},
		{"a copy and its original", []bson.M{part(0, false, 0, 1, 2), copied(-7, 2, 3)}, "twice: 1/2"},
		{"a copy that is open", []bson.M{part(0, false, 0, 1), with(copied(-7, 2, 3), "full", false)}, "is a copy that could be updated"},
		{"a copy where updates go", []bson.M{copied(0, 0, 1, 2, 3)}, "is a copy that could be updated"},
		{"a copy with a guard", []bson.M{part(0, false, 0, 1), with(copied(-7, 2, 3), "w", bson.M{"session": int64(9)})}, "is a copy that could be updated"},
		{"no bucket at all", []bson.M{part(0, false, 0, 1, 2, 3), {"_id": 1, "measurements": "x"}}, "is no bucket"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := mongodtest.Database(t)
			for _, doc := range tt.documents {
				_, err := db.Collection("readings").InsertOne(t.Context(), doc)
				require.NoError(t, err)
			}
			log := faulttest.NewLog()
			log.Note(faulttest.Entry{Event: "attempt", Producer: 1, From: 0, Count: 5})
			log.Note(faulttest.Entry{Event: "answer", Producer: 1, From: 0, Count: 4, Code: 200})
			result, err := faulttest.Check(t.Context(), faulttest.CheckConfig{Log: log, Database: db, Stream: "readings", MaxReadings: 5})
			require.NoError(t, err)
			assert.Equal(t, tt.want == "", result.Wrong() == 0, result.Report())
			assert.Contains(t, result.Report(), tt.want)
		})
	}
}

// Only readings before the number given to Expire may be missing.
func TestExpiredReadingsMayBeMissing(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	old, kept := part(7, false, 1), part(0, false, 3) // the old one is wrong, but is not checked
	kept["bucketStart"] = bson.DateTime(60_000)
	for _, doc := range []bson.M{old, kept} {
		_, err := db.Collection("readings").InsertOne(t.Context(), doc)
		require.NoError(t, err)
	}
	log := faulttest.NewLog()
	log.Note(faulttest.Entry{Event: "attempt", Producer: 1, From: 0, Count: 5})
	log.Note(faulttest.Entry{Event: "answer", Producer: 1, From: 0, Count: 5, Code: 200})
	log.Expire(1, 2)
	log.Expire(2, 9)
	result, err := faulttest.Check(t.Context(), faulttest.CheckConfig{Log: log, Database: db, Stream: "readings", Since: time.UnixMilli(60_000)})
	require.NoError(t, err)
	assert.Equal(t, []faulttest.Mark{{Producer: 1, Number: 2}, {Producer: 1, Number: 4}}, result.Lost)
}

func TestLogKnowsWhatIsAcknowledged(t *testing.T) {
	t.Parallel()
	log := faulttest.NewLog()
	log.Note(faulttest.Entry{Event: "attempt", Producer: 7, From: 100, Count: 10, Bad: []int64{103}})
	log.Note(faulttest.Entry{Event: "answer", Producer: 7, From: 100, Count: 10, Code: 207, Refused: []int64{103, 104}})
	log.Note(faulttest.Entry{Event: "attempt", Producer: 8, From: 0, Count: 2})
	log.Note(faulttest.Entry{Event: "answer", Producer: 8, From: 0, Count: 2, Code: 503})
	assert.Equal(t, 9+2, log.Attempted(), "a bad reading is none that is attempted")
	assert.Equal(t, 8, log.Acked(), "what a 207 names is not acknowledged, nor is what a 503 answers")
}

func TestTableShowsRowsFailuresAndWhatIsMissing(t *testing.T) {
	t.Parallel()
	output := func(test, text string) string {
		return fmt.Sprintf(`{"Action":"output","Package":"brim/p","Test":%q,"Output":%q}`, test, text) + "\n"
	}
	row := `FAULT-ROW {"test":"MONGO-1","faults":2,"acked":10,"lost":0,"twice":0}`
	input := output("TestA", "    x_test.go:1: "+row+"\n") + output("TestB/one", row+"\n") +
		output("TestC", `FAULT-ROW {"test":"CRASH-1","faults":1,"acked":5,"lost":1,"twice":0}`+"\n") +
		output("TestC", "    x_test.go:2: it went wrong\n") + strings.Repeat(output("TestC", "log of a broker\n"), 200) + `{"Action":"fail","Package":"brim/p","Test":"TestC"}` + "\n"
	var progress bytes.Buffer
	table, err := faulttest.ReadTable(strings.NewReader(input), &progress)
	require.NoError(t, err)
	table.Sabotages = []*patch.Sabotage{
		{Name: "fence", Tests: []patch.Check{{Package: "./p", Run: "^TestB$/^two$"}}},
		{Name: "guard", Tests: []patch.Check{{Package: "./other", Run: "^TestA$"}, {Package: "./p", Run: "^TestB$/^one$"}}},
		{Name: "keys", Tests: []patch.Check{{Package: "./p", Run: "^Test$"}}},
		{Name: "look", Tests: []patch.Check{{Package: "./p", Run: "^TestA$"}, {Package: "./p", Run: "^TestC$"}}},
	}
	assert.Equal(t, `| test | faults injected | readings acknowledged | lost | twice | fails without |
|---|--:|--:|--:|--:|---|
| CRASH-1 | 1 | 5 | 1 | 0 | look |
| MONGO-1 | 4 | 20 | 0 | 0 | guard, look |

Other tests fail without fence, keys.
`, table.Markdown())
	assert.False(t, table.Good())
	assert.Equal(t, []string{"brim/p TestC"}, table.Failed)
	assert.Contains(t, progress.String(), "it went wrong", "not cut off by the log")
	assert.Equal(t, 100, strings.Count(progress.String(), "log of a broker"))
	assert.Equal(t, []string{"FS-1"}, table.Missing([]string{"CRASH-1", "FS-1"}))
}
