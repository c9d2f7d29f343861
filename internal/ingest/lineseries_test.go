package ingest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestALongSeriesIsNotRemembered holds that the keys of lines have a limit, and
// that no key stands for the series of another line.
func TestALongSeriesIsNotRemembered(t *testing.T) {
	t.Parallel()
	tags := ""
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		tags += "," + name + "=" + strings.Repeat("x", 1000)
	}
	short, long, other := "m,host=a", "m,host=b"+tags, "m,host=c"+tags
	for _, plain := range []bool{false, true} {
		d, _ := newTestDoor(t, func(c *Config) { c.SensorTag = "host" })
		in := d.newIntake(d.streams["readings"], telemetry.Stored)
		decoder := newLineDecoder(in, precision{name: "ms", ratio: 1})
		decoder.plain = plain
		require.NoError(t, decoder.all(decoderLines(short+" f=1\n"+long+" f=2\n"+short+" f=3\n"+other+" f=4\n"+long+" f=5\n")))
		assert.NotNil(t, decoder.lookUp([]byte(short)))
		decoder.alias = append(append(decoder.alias[:0], aliasLine), "readings\x00"+long...)
		assert.Nil(t, d.known.Alias(decoder.alias))
		made := in.builder.Batch()
		var sensors []string
		for i := range made.Len() {
			sensors = append(sensors, made.Reading(uint32(i)).Sensor)
		}
		assert.Equal(t, []string{"a", "b", "a", "c", "b"}, sensors)
	}
}
