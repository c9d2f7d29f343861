package timeseries

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestDocumentsEqualMarshalledOnes compares the encoder's bytes with the driver's
// marshaller for documents that are built value by value, encoded in the same memory.
func TestDocumentsEqualMarshalledOnes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := (&inserts{}).get()
		session := batch.NewSession()
		for range rapid.IntRange(1, 3).Draw(t, "batches") {
			var readings []telemetry.Reading
			for range rapid.IntRange(1, 20).Draw(t, "readings") {
				readings = append(readings, drawReading(t))
			}
			for _, pending := range storetest.Pending(storetest.Batch(t, session, 7, readings...), time.Minute) {
				for _, r := range pending.Rows {
					want, err := bson.Marshal(plainDocument(pending, r))
					require.NoError(t, err)
					doc := in.appendDocument(nil, pending, r)
					require.Equal(t, bson.Raw(want).String(), bson.Raw(doc).String())
					require.Equal(t, want, doc)
				}
			}
		}
	})
}

func drawReading(t *rapid.T) telemetry.Reading {
	r := telemetry.Reading{
		Sensor: rapid.SampledFrom([]string{"a", "b ☂"}).Draw(t, "sensor"),
		Time:   storetest.Base.Add(time.Duration(rapid.IntRange(0, 100_000).Draw(t, "ms")) * time.Millisecond),
	}
	values := map[string]telemetry.Value{
		"f": telemetry.FloatValue(0.1), "i": telemetry.IntValue(-5), "yes": telemetry.BoolValue(true), "no": telemetry.BoolValue(false),
		"text": telemetry.TextValue("x"), "0": telemetry.IntValue(1 << 60),
	}
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"f", "i", "yes", "no", "text", "0"}), 1, 6, rapid.ID[string]).Draw(t, "fields")
	for _, name := range names {
		r.Fields = append(r.Fields, telemetry.Field{Name: name, Value: values[name]})
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "tags") {
		r.Tags = append(r.Tags, telemetry.Tag{Name: fmt.Sprint("tag", i), Value: "v"})
	}
	return r
}

func plainDocument(pending *batch.Pending, r batch.Ref) bson.D {
	reading := r.Batch.Reading(r.Index)
	meta := bson.D{{Key: "id", Value: reading.Sensor}}
	if len(reading.Tags) > 0 {
		var tags bson.D
		for _, tag := range reading.Tags {
			tags = append(tags, bson.E{Key: tag.Name, Value: tag.Value})
		}
		meta = append(meta, bson.E{Key: "tags", Value: tags})
	}
	doc := bson.D{
		{Key: "_id", Value: bson.ObjectID(batch.ReadingID(pending.Session, r.Seq()))},
		{Key: "ts", Value: bson.NewDateTimeFromTime(reading.Time)}, {Key: "sensor", Value: meta},
	}
	for _, f := range reading.Fields {
		doc = append(doc, bson.E{Key: f.Name, Value: f.Value.Any()})
	}
	return doc
}

func TestManyReadingsGoInSeveralCommands(t *testing.T) {
	t.Parallel()
	const sensors = 60
	s := open(t, connect(t), Config{})
	var readings []telemetry.Reading
	for i := range sensors * 40 {
		r := storetest.Reading(fmt.Sprint("s", i/40), time.Duration(i%40)*time.Second, float64(i))
		r.Fields = append(r.Fields, telemetry.Field{Name: "x", Value: telemetry.TextValue(strings.Repeat("x", telemetry.MaxTextBytes))})
		readings = append(readings, r)
	}
	writes := storetest.Pending(storetest.Batch(t, "s1", 1, readings...), 5*time.Minute)

	storetest.GivesUp(t, s, writes, 40)
	unknown := testutil.ToFloat64(s.Metrics.Unknown)
	assert.Positive(t, unknown)
	assert.Less(t, unknown, float64(sensors)*3/4, "what was not sent has no unknown outcome")

	storetest.WriteAll(t, s, writes)
	for i := range sensors {
		require.Equal(t, readings[i*40:(i+1)*40], storetest.ReadAll(t, s, fmt.Sprint("s", i)))
	}
}
