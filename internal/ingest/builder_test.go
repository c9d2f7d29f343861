package ingest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// TestARequestWithoutABatchGivesItsBuilderBack tells a builder that was used by
// the shape that it remembers. A pool may lose one now and then, but not all.
func TestARequestWithoutABatchGivesItsBuilderBack(t *testing.T) {
	t.Parallel()
	const two = `{"sensorId":"a","fields":{"t":1}},{"sensorId":"b","fields":{"t":1}}`
	message, err := proto.Marshal(&telemetrypb.WriteRequest{Readings: []*telemetrypb.Reading{
		pb(func(r *telemetrypb.Reading) { r.SensorId = "a" }), pb(func(r *telemetrypb.Reading) { r.SensorId = "b" }),
	}})
	require.NoError(t, err)
	broken := append(protowire.AppendTag(message, 4, protowire.BytesType), 2, 0xff, 0xff)
	d, j := newTestServer(t, func(c *Config) { c.MaxReadings = 3 })
	for name, request := range map[string]func(){
		"a broken body":     func() { assert.Equal(t, 400, post(t, d, "/v1/readings", typeJSON, "["+two).Code) },
		"too many readings": func() { assert.Equal(t, 413, post(t, d, "/v1/readings", typeJSON, "["+two+","+two+"]").Code) },
		"a broken message": func() {
			_, r, _ := newMessage(d, broken).answer(t.Context())
			assert.Equal(t, invalid, r)
		},
	} {
		back := false
		for range 30 {
			request()
			back = back || d.known.Builder(arrivalTime).LastShape() != nil
		}
		assert.True(t, back, name)
	}
	assert.Empty(t, j.readings())
}

// TestABuilderIsGivenBackOnce holds that a request whose readings were handed on
// leaves alone the builder, which another has by then.
func TestABuilderIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				in := d.newIntake(d.streams["readings"], telemetry.Stored)
				for _, sensor := range []string{"a", "b"} {
					assert.NoError(t, in.begin())
					in.builder.Sensor([]byte(sensor))
					in.builder.Int([]byte("f"), 1)
					assert.True(t, in.end())
				}
				_, err := in.append(t.Context())
				assert.NoError(t, err)
				assert.Equal(t, 2, in.answer.Accepted)
				assert.Nil(t, in.builder)
				in.close()
				in.close()
			}
		})
	}
	wg.Wait()
	assert.Len(t, j.readings(), 4*200*2)
}
