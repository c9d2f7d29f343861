package ingest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

func TestWriteTakesBothForms(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	response, err := dialGRPC(t, d).Write(t.Context(), &telemetrypb.WriteRequest{
		RequestId: "r-1", Stream: "mem", Ack: telemetrypb.Ack_ACK_JOURNALED,
		Readings: []*telemetrypb.Reading{pb(func(r *telemetrypb.Reading) { r.TsMs = nil })},
		Series:   []*telemetrypb.Series{{SensorId: "c", TsMs: []int64{goodTime, goodTime - 1}, Columns: []*telemetrypb.Column{{Name: "i", Ints: []int64{-1, 1}}}}},
	}, grpc.UseCompressor(gzip.Name))
	require.NoError(t, err)
	assert.True(t, proto.Equal(&telemetrypb.WriteResponse{RequestId: "r-1", Accepted: 3, Ack: telemetrypb.Ack_ACK_JOURNALED}, response), response)
	assert.Equal(t, []string{"mem", "mem", "mem"}, j.streams())
	assert.Equal(t, []telemetry.Ack{telemetry.Journaled}, j.wants)
	readings := j.readings()
	assert.EqualValues(t, goodTime, readings[0].Time.UnixMilli(), "the time of receipt")
	assert.Equal(t, []telemetry.Field{{Name: "i", Value: telemetry.IntValue(-1)}}, readings[1].Fields)
	assert.EqualValues(t, goodTime-1, readings[2].Time.UnixMilli())
}

func TestWriteRefusesWhole(t *testing.T) { //nolint:tparallel // its cases are counted afterwards
	t.Parallel()
	d, j := newTestServer(t, func(c *Config) {
		c.MaxBodyBytes, c.MaxReadings, c.Acks = 4<<10, 10, []telemetry.Ack{telemetry.Stored}
	})
	client := dialGRPC(t, d)
	good := pb(func(*telemetrypb.Reading) {})
	many := func(n int, id string) []*telemetrypb.Reading {
		all := make([]*telemetrypb.Reading, n)
		for i := range all {
			all[i] = pb(func(r *telemetrypb.Reading) { r.SensorId = id })
		}
		return all
	}
	for _, c := range []struct {
		name    string
		request *telemetrypb.WriteRequest
		code    codes.Code
		message string
	}{
		{"an unknown stream", &telemetrypb.WriteRequest{Stream: "cpu", Readings: []*telemetrypb.Reading{good}}, codes.NotFound, `stream_unknown: there is no stream "cpu"`},
		{"an unavailable ack", &telemetrypb.WriteRequest{Ack: telemetrypb.Ack_ACK_JOURNALED, Readings: []*telemetrypb.Reading{good}}, codes.InvalidArgument, "ack_unavailable: ack journaled is not available from this daemon; allowed: stored"},
		{"an ack of the future", &telemetrypb.WriteRequest{Ack: 9, Readings: []*telemetrypb.Reading{good}}, codes.InvalidArgument, "ack_unknown: ack 9 is unknown"},
		{"nothing", &telemetrypb.WriteRequest{}, codes.InvalidArgument, "no_readings"},
		{"too many readings", &telemetrypb.WriteRequest{Readings: many(11, "s")}, codes.ResourceExhausted, "readings_too_many: the request contains more than 10 readings (--max-readings-per-request)"},
		{"too many rows", &telemetrypb.WriteRequest{Series: []*telemetrypb.Series{{SensorId: "s", TsMs: make([]int64, 11)}}}, codes.ResourceExhausted, "readings_too_many"},
		{"too large", &telemetrypb.WriteRequest{Readings: many(5, strings.Repeat("s", 1000))}, codes.ResourceExhausted, "at most 4096 are allowed (--max-body-bytes)"},
		{"much too large", &telemetrypb.WriteRequest{Readings: many(100, strings.Repeat("s", 1000))}, codes.ResourceExhausted, "at most 4096 are allowed (--max-body-bytes)"},
		{"a long id", &telemetrypb.WriteRequest{RequestId: strings.Repeat("r", 1025), Readings: []*telemetrypb.Reading{good}}, codes.InvalidArgument, "request_id must be UTF-8 of at most 1024 bytes"},
		{"all readings bad", &telemetrypb.WriteRequest{Readings: many(2, "")}, codes.InvalidArgument, "all 2 readings were refused; reading 0: sensor_missing: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := client.Write(t.Context(), c.request)
			assert.Equal(t, c.code, status.Code(err), err)
			assert.Contains(t, status.Convert(err).Message(), c.message)
		})
	}
	assert.Empty(t, j.readings())
	assert.EqualValues(t, 4, testutil.ToFloat64(d.metrics.requests.WithLabelValues("grpc", "ResourceExhausted")))

	_, err := client.Write(t.Context(), &telemetrypb.WriteRequest{RequestId: "r", Readings: many(2, "")})
	details := status.Convert(err).Details()
	require.Len(t, details, 1)
	response, ok := details[0].(*telemetrypb.WriteResponse)
	require.True(t, ok)
	assert.EqualValues(t, 2, response.GetRejected())
	assert.Equal(t, "sensor_missing", response.GetErrors()[1].GetCode())

	_, err = client.Write(t.Context(), &telemetrypb.WriteRequest{Stream: "cpu"})
	reason, ok := status.Convert(err).Details()[0].(*telemetrypb.RequestError)
	require.True(t, ok)
	assert.Equal(t, "stream_unknown", reason.GetCode())
}

func TestMessageThatIsNoProtobufIsInvalid(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	conn := connectGRPC(t, d, grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{})))
	var answer []byte
	for _, message := range []string{"\xff", "\x22\x05ab", "\x22\x02\x0a\x05", "\x2a\x02\x1a\x05", "\x0a\x01\xff"} {
		err := conn.Invoke(t.Context(), telemetrypb.IngestService_Write_FullMethodName, []byte(message), &answer)
		assert.Equal(t, codes.InvalidArgument, status.Code(err), "%q: %v", message, err)
		assert.Contains(t, status.Convert(err).Message(), "malformed: ")
	}
	assert.Empty(t, j.readings())
}

// bytesCodec sends bytes as they are, as a faulty client may.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (bytesCodec) Name() string                       { return "proto" }

func TestHealthService(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t)
	client := grpc_health_v1.NewHealthClient(connectGRPC(t, d))
	const serving, notServing = grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING
	for _, step := range []struct {
		name string
		do   func()
		want grpc_health_v1.HealthCheckResponse_ServingStatus
	}{
		{"a new server", func() {}, serving},
		{"not ready", func() { d.SetReady(false) }, notServing},
		{"ready again", func() { d.SetReady(true) }, serving},
		{"stopped", d.Stop, notServing},
		{"ready after a stop", func() { d.SetReady(true) }, notServing},
	} {
		step.do()
		for _, service := range []string{"", "brim.v1.IngestService"} {
			response, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
			require.NoError(t, err)
			assert.Equal(t, step.want, response.GetStatus(), "%s: %q", step.name, service)
		}
	}
}

func TestReflectionKnowsTheService(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t)
	conn := connectGRPC(t, d)
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "brim.v1.IngestService.WriteStream"}}))
	response, err := stream.Recv()
	require.NoError(t, err)
	assert.Contains(t, string(response.GetFileDescriptorResponse().GetFileDescriptorProto()[0]), "WriteRequest")
	require.NoError(t, stream.CloseSend())

	// Clients in Python still ask by the old name.
	old, err := reflectionv1alpha.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, old.Send(&reflectionv1alpha.ServerReflectionRequest{MessageRequest: &reflectionv1alpha.ServerReflectionRequest_ListServices{}})) //nolint:staticcheck // as above
	listed, err := old.Recv()
	require.NoError(t, err)
	var names []string
	for _, s := range listed.GetListServicesResponse().GetService() { //nolint:staticcheck // as above
		names = append(names, s.GetName()) //nolint:staticcheck // as above
	}
	assert.Contains(t, names, "brim.v1.IngestService")
	require.NoError(t, old.CloseSend())
}
