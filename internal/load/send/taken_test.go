package send

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestWhatIsSentIsTaken(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		d := startDaemon(t, &journal{keep: true})
		s := newSender(t, target(d), way)
		rapid.Check(t, func(rt *rapid.T) {
			sent := drawReadings(rt)
			a, err := s.Send(t.Context(), &load.Request{Readings: sent})
			require.NoError(rt, err)
			require.Equal(rt, load.Answer{Accepted: len(sent)}, a)
			sortReadings(sent)
			require.Equal(rt, sent, d.journal.taken())
		})
	})
}

// drawReadings draws readings of few sensors, so that some are adjacent, with mostly but not
// always present fields of one kind.
func drawReadings(t *rapid.T) []telemetry.Reading {
	n := rapid.IntRange(1, 12).Draw(t, "readings")
	readings := make([]telemetry.Reading, n)
	for i := range readings {
		r := &readings[i]
		r.Sensor = rapid.SampledFrom([]string{"s-1", "s-1", "s-1", "ö \"quoted\" \\ <&>", "b"}).Draw(t, "sensor")
		r.Time = noon.Add(time.Duration(i) * time.Millisecond)
		if rapid.IntRange(0, 9).Draw(t, "tagged") > 0 {
			r.Tags = []telemetry.Tag{{Name: "site", Value: rapid.SampledFrom([]string{"north", "north", "", "süd\t"}).Draw(t, "tag")}}
		}
		for _, name := range []string{"t", "h", "größe"} {
			if rapid.IntRange(0, 4).Draw(t, "absent") > 0 {
				r.Fields = append(r.Fields, telemetry.Field{Name: name, Value: drawValue(t)})
			}
		}
		r.Fields = append(r.Fields, telemetry.Field{Name: "n", Value: telemetry.IntValue(int64(i))})
	}
	return readings
}

func drawValue(t *rapid.T) telemetry.Value {
	switch rapid.IntRange(0, 12).Draw(t, "kind") {
	case 0:
		return telemetry.IntValue(rapid.SampledFrom([]int64{0, -1, math.MaxInt64, math.MinInt64}).Draw(t, "integer"))
	case 1:
		return telemetry.BoolValue(rapid.Bool().Draw(t, "boolean"))
	case 2:
		return telemetry.TextValue(rapid.SampledFrom([]string{"", "ok", "\x00\n\"\\", "\u2028é😀"}).Draw(t, "text"))
	case 3:
		return telemetry.FloatValue(rapid.SampledFrom([]float64{0, -1, 1e300, math.SmallestNonzeroFloat64, 1e21, 123456789012345}).Draw(t, "float"))
	}
	return telemetry.FloatValue(float64(rapid.IntRange(-5000, 5000).Draw(t, "hundredths")) / 100)
}

func TestATimeThatIsAbsentIsTheDaemons(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		d := startDaemon(t, &journal{keep: true})
		r := weather(3)
		for i := range r.Readings {
			r.Readings[i].Time = time.Time{}
		}
		a, err := newSender(t, target(d), way).Send(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, 3, a.Accepted)
		for _, taken := range d.journal.taken() {
			assert.WithinDuration(t, time.Now(), taken.Time, time.Minute)
		}
	})
}

func TestStreamAndAckAreAskedFor(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		d := startDaemon(t, &journal{keep: true})
		for _, ack := range []telemetry.Ack{"", telemetry.Journaled, telemetry.Stored} {
			s := newSender(t, target(d), way, func(c *Config) { c.Stream, c.Ack = "other one", ack })
			_, err := s.Send(t.Context(), weather(1))
			require.NoError(t, err)
		}
		assert.Equal(t, []string{"other one", "other one", "other one"}, d.journal.streams)
		assert.Equal(t, []telemetry.Ack{telemetry.Journaled, telemetry.Journaled, telemetry.Stored}, d.journal.wants)
	})
}

func TestStoredThatWasOnlyJournaledIsTaken(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		d := startDaemon(t, &journal{reach: telemetry.Journaled})
		a, err := newSender(t, target(d), way, func(c *Config) { c.Ack = telemetry.Stored }).Send(t.Context(), weather(2))
		require.NoError(t, err)
		assert.Equal(t, load.Answer{Accepted: 2}, a)
	})
}

func TestRefusedReadingsAreRejected(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		d := startDaemon(t, &journal{})
		s := newSender(t, target(d), way)
		r := weather(5)
		r.Readings[1].Time = time.Now().Add(time.Hour)
		r.Readings[3].Fields = append(r.Readings[3].Fields, r.Readings[3].Fields[0]) // duplicate name
		a, err := s.Send(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, load.Answer{Accepted: 3, Rejected: 2}, a)

		r.Readings = r.Readings[3:4]
		a, err = s.Send(t.Context(), r)
		require.ErrorContains(t, err, "field_duplicate")
		assert.Equal(t, load.Answer{Rejected: 1}, a, "as in a request whose other readings are accepted")
	})
}
