package batch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// seriesFor returns the series of a sensor with tags.
func seriesFor(t require.TestingT, sensor string, tags ...telemetry.Tag) *Series {
	b := NewBuilder(received)
	b.Begin("readings", 0, always)
	b.Sensor([]byte(sensor))
	for _, tag := range tags {
		b.Tag([]byte(tag.Name), []byte(tag.Value))
	}
	b.Int([]byte("t"), 1)
	if r := b.End(); r != nil {
		require.Fail(t, r.Error())
	}
	return b.Batch().SeriesAt(0)
}

func TestASeriesKeyIsPackedWithoutItsTags(t *testing.T) {
	t.Parallel()
	host := []telemetry.Tag{{Name: "host", Value: "a b"}, {Name: "rack", Value: "7"}}
	for sensor, derives := range map[string]bool{
		`cpu,host=a\ b,rack=7`:         true,
		`c\ p,host=a\ b,rack=7`:        true,
		`cpu`:                          false,
		`cpu,host=a b,rack=7`:          false, // another id than that of line protocol
		`cpu,host=a\ b`:                false,
		`c\,pu,host=a\ b,rack=7`:       false, // right, but not worth looking for
		`cpu,host=a\ b,rack=7,more=no`: false,
	} {
		s := seriesFor(t, sensor, host...)
		assert.Equal(t, derives, len(s.packed) < len(s.encoded), sensor)
		again, err := unpackSeries(s.packed)
		require.NoError(t, err)
		assert.Equal(t, *s, *again)
	}
}

func TestAnySeriesIsUnpackedAsItWas(t *testing.T) {
	t.Parallel()
	word := rapid.StringMatching(`[a-c,= \\\\é]{1,5}`)
	rapid.Check(t, func(t *rapid.T) {
		var tags []telemetry.Tag
		for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c=,]{1,3}`), 0, 4, rapid.ID[string]).Draw(t, "names") {
			tags = append(tags, telemetry.Tag{Name: name, Value: word.Draw(t, "value")})
		}
		s := seriesFor(t, word.Draw(t, "sensor"), tags...)
		if rapid.Bool().Draw(t, "key") {
			measurement := string(telemetry.AppendSeriesWord(nil, strings.ReplaceAll(s.Sensor, ",", ""), false))
			if measurement == "" {
				return
			}
			s = seriesFor(t, string(appendSeriesKey(nil, measurement, s.Tags)), tags...)
			if len(tags) > 0 {
				assert.Less(t, len(s.packed), len(s.encoded))
			}
		}
		again, err := unpackSeries(s.packed)
		require.NoError(t, err)
		assert.Equal(t, *s, *again)
	})
}

func FuzzUnpackSeries(f *testing.F) {
	f.Add(seriesFor(f, "cpu,host=a", telemetry.Tag{Name: "host", Value: "a"}).packed)
	f.Add(seriesFor(f, "s-1").packed)
	f.Fuzz(func(t *testing.T, packed string) {
		if s, err := unpackSeries(packed); err == nil && s.packed != packed && s.encoded != packed {
			t.Fatalf("%q is unpacked as %q", packed, s.packed)
		}
	})
}
