package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRequestHasTheReadingsThatLoadWouldMake(t *testing.T) {
	t.Parallel()
	sensors, err := load.NewSensors(load.SensorsConfig{Count: 4, Seed: 7, Prefix: "p-"})
	require.NoError(t, err)
	begin := time.UnixMilli(1_700_000_000_000)
	text, err := Prefill{Sensors: sensors, Begin: begin, Interval: 5 * time.Second, From: 2, To: 5}.body(1, 3)
	require.NoError(t, err)
	var request telemetrypb.WriteRequest
	require.NoError(t, proto.Unmarshal(text, &request))
	require.Len(t, request.GetSeries(), 2)
	series := request.GetSeries()[1]
	assert.Equal(t, sensors.ID(2), series.GetSensorId())
	assert.Equal(t, []int64{1_700_000_010_000, 1_700_000_015_000, 1_700_000_020_000}, series.GetTsMs())
	require.Len(t, series.GetTags(), len(sensors.Tags(2)))
	assert.Equal(t, sensors.Tags(2)[0].Value, series.GetTags()[0].GetValue())
	at := begin.Add(20 * time.Second)
	fields := sensors.AppendFields(nil, 2, 4, at)
	require.Len(t, series.GetColumns(), len(fields))
	for i, f := range fields {
		column := series.GetColumns()[i]
		assert.Equal(t, f.Name, column.GetName())
		require.Len(t, column.GetDoubles(), 3, f.Name)
		assert.Equal(t, f.Value.Float(), column.GetDoubles()[2], f.Name)
	}
}

func TestPrefillWithoutReadingsIsRefused(t *testing.T) {
	t.Parallel()
	sensors, err := load.NewSensors(load.SensorsConfig{Count: 1, Seed: 1})
	require.NoError(t, err)
	for _, p := range []Prefill{
		{Sensors: sensors, Interval: time.Second},
		{Sensors: sensors, Interval: time.Second, From: 3, To: 3},
		{Sensors: sensors, Interval: time.Second, From: -1, To: 3},
		{Sensors: sensors, To: 3},
	} {
		require.ErrorIs(t, p.Run(t.Context(), &launch.Daemon{}), errPrefill)
	}
}

func TestStreamToNobodyIsAnError(t *testing.T) {
	t.Parallel()
	err := Stream(t.Context(), "127.0.0.1:1", func(int64) ([]byte, bool) { return nil, true })
	require.Error(t, err)
}
