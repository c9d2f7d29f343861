package shape

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Untagged is a source whose sensors have no tags, so that a document per
// reading says all that a bucket says.
type Untagged struct{ lane.Source }

// Tags returns none.
func (Untagged) Tags(int) []telemetry.Tag { return nil }

// Doubles makes readings with numbers in which nothing repeats: no compressor
// finds anything in their mantissas. It is a lane.Source.
type Doubles struct {
	Names []string // of the fields
	Seed  uint64
}

// ID is that of a sensor.
func (Doubles) ID(sensor int) string { return sensorID(sensor) }

// Tags returns none.
func (Doubles) Tags(int) []telemetry.Tag { return nil }

// AppendFields appends numbers from 0 to 1.
func (d Doubles) AppendFields(dst []telemetry.Field, sensor int, k uint64, _ time.Time) []telemetry.Field {
	random := rand.NewPCG(d.Seed^uint64(sensor)<<40, k) //nolint:gosec // no secret, and counts from 0
	for _, name := range d.Names {
		dst = append(dst, telemetry.Field{Name: name, Value: telemetry.FloatValue(float64(random.Uint64()>>11) / (1 << 53))})
	}
	return dst
}

// Ratings makes the readings of the published comparison: a rating from 0.5 to
// 5.0 in steps of a half. It is a lane.Source.
type Ratings struct{ Seed uint64 }

// RatingField is the name of the only field of Ratings.
const RatingField = "rating"

// ID is that of a sensor.
func (Ratings) ID(sensor int) string { return sensorID(sensor) }

// Tags returns none.
func (Ratings) Tags(int) []telemetry.Tag { return nil }

// AppendFields appends the rating.
func (s Ratings) AppendFields(dst []telemetry.Field, sensor int, k uint64, _ time.Time) []telemetry.Field {
	random := rand.NewPCG(s.Seed^uint64(sensor)<<40, k) //nolint:gosec // no secret, and counts from 0
	return append(dst, telemetry.Field{Name: RatingField, Value: telemetry.FloatValue(float64(random.Uint64()%10+1) / 2)})
}

func sensorID(sensor int) string { return "s-" + strconv.Itoa(sensor+1) }
