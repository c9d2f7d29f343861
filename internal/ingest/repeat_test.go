package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

func TestARepeatedRequestIsAnsweredAsBefore(t *testing.T) {
	t.Parallel()
	good, bad := manyLines(2), "oops\n"+`{"sensorId":"s"}`+"\n"
	for _, c := range []struct {
		name, path, body string
		header           []string
		reach            telemetry.Ack
		late             []batch.Refused
		status           int
	}{
		{name: "all taken", path: "/v1/readings", body: good, status: 200},
		{name: "journaled only", path: "/v1/readings", body: good, reach: telemetry.Journaled, status: 202},
		{name: "partly taken", path: "/v1/streams/mem/readings", body: good + bad, status: 207},
		{name: "compressed", path: "/v1/readings", body: gzipped(t, good+bad), header: []string{"Content-Encoding", "gzip"}, status: 207},
		{name: "refused late", path: "/v1/readings", body: bad + good, status: 207, late: []batch.Refused{{Index: 3, Refusal: telemetry.Refusal{Code: telemetry.StoreRefused, Message: "why"}}}},
		{name: "lines", path: "/write", body: "m t=1\n", status: 204},
		{name: "lines, journaled only", path: "/write", body: "m t=1\n", reach: telemetry.Journaled, status: 202},
		{name: "lines, partly taken", path: "/api/v2/write?precision=s", body: "m t=1\n# comment\nm\nm x\n", status: 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, j := newTestServer(t)
			j.reach, j.refused = c.reach, c.late
			header := append([]string{"Idempotency-Key", "k"}, c.header...)
			first := post(t, d, c.path, typeLines, c.body, header...)
			assert.Equal(t, c.status, first.Code, first.Body)
			assert.Empty(t, first.Header().Get("Idempotent-Replayed"))
			taken := len(j.readings())
			for range 2 {
				again := post(t, d, c.path, typeLines, c.body, header...)
				assert.Equal(t, c.status, again.Code)
				assert.Equal(t, first.Body.String(), again.Body.String())
				assert.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
				again.Header().Del("Idempotent-Replayed")
				assert.Equal(t, first.Header(), again.Header())
			}
			assert.Len(t, j.readings(), taken)

			other := post(t, d, c.path, typeLines, c.body, append([]string{"Idempotency-Key", "K"}, c.header...)...)
			assert.Equal(t, c.status, other.Code)
			assert.Empty(t, other.Header().Get("Idempotent-Replayed"), "another key")
			assert.Len(t, j.readings(), 2*taken)
		})
	}
}

// The journal takes answers of at most 64 KiB, and the list of a stream's fields can be long.
func TestAnswersThatAreKeptAreBounded(t *testing.T) {
	t.Parallel()
	var fields []string
	for i := range 20 {
		fields = append(fields, fmt.Sprintf("%0128d", i))
	}
	d, j := newTestServer(t, func(c *Config) { c.Streams[0].Fields = fields })
	body := strings.Repeat(`{"sensorId":"s","fields":{"other":1}}`+"\n", 150) + `{"sensorId":"s","fields":{"` + fields[0] + `":1}}`
	first := post(t, d, "/v1/readings", typeLines, body, "Idempotency-Key", "k")
	assert.Equal(t, 207, first.Code)
	for _, r := range j.keys {
		assert.Less(t, len(r.Answer), 64<<10)
	}
	again := post(t, d, "/v1/readings", typeLines, body, "Idempotency-Key", "k")
	assert.Equal(t, 207, again.Code)
	assert.Contains(t, again.Body.String(), `{"accepted":1,"rejected":150,`)
	assert.Equal(t, 100, strings.Count(first.Body.String(), "field_not_allowed"))
	assert.Greater(t, strings.Count(again.Body.String(), "field_not_allowed"), 10)
}

func TestARepetitionKeepsTheFirstVerdicts(t *testing.T) {
	t.Parallel()
	now := arrivalTime
	d, j := newTestServer(t, func(c *Config) { c.Now = func() time.Time { return now } })
	body := manyLines(1) + `{"sensorId":"s","ts":"2026-11-21T10:11:00Z","fields":{"t":1}}`
	first := post(t, d, "/v1/readings", typeLines, body, "Idempotency-Key", "k")
	assert.Equal(t, 207, first.Code)
	assert.Contains(t, first.Body.String(), "ts_out_of_range")
	now = now.Add(5 * time.Minute) // now both could be taken
	again := post(t, d, "/v1/readings", typeLines, body, "Idempotency-Key", "k")
	assert.Equal(t, 207, again.Code)
	assert.Equal(t, first.Body.String(), again.Body.String())
	assert.Len(t, j.readings(), 1)
}

// A repeat of an accepted request is answered as before, even if its readings
// would be refused now.
func TestARepetitionIsAnsweredThoughEveryReadingIsRefusedNow(t *testing.T) {
	t.Parallel()
	const at = "2026-11-21T10:00:00Z"
	for name, breakRule := range map[string]func(now *time.Time, d *Server){
		"retention": func(now *time.Time, _ *Server) { *now = now.Add(25 * time.Hour) },
		"clock":     func(now *time.Time, _ *Server) { *now = now.Add(-time.Hour) },
		"field list": func(_ *time.Time, d *Server) {
			streams := testConfig().Streams
			streams[1].Fields = []string{"u"}
			d.SetStreams(streams)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := arrivalTime
			d, j := newTestServer(t, func(c *Config) { c.Now = func() time.Time { return now }; c.DefaultStream = "mem" })
			client := dialGRPC(t, d)
			var answers [2][]string
			send := func(round int, key string) {
				for path, body := range map[string]string{"/v1/readings": `{"sensorId":"s","ts":"` + at + `","fields":{"t":1}}`, "/write?precision=s": "m t=1 1795255200\n"} {
					w := post(t, d, path, typeJSON, body, "Idempotency-Key", key+path)
					answers[round] = append(answers[round], strconv.Itoa(w.Code)+w.Body.String())
				}
				response, err := client.Write(withKey(t.Context(), key), oneReading("r", "s"))
				answers[round] = append(answers[round], fmt.Sprint(response.GetAccepted(), status.Code(err)))
				slices.Sort(answers[round])
			}
			send(0, "k")
			breakRule(&now, d)
			send(1, "k")
			assert.Equal(t, []string{"1 OK", "200" + `{"accepted":1,"rejected":0,"ack":"stored","errors":[]}` + "\n", "204"}, answers[0])
			assert.Equal(t, answers[0], answers[1])
			assert.Len(t, j.readings(), 3)
			assert.EqualValues(t, 1, testutil.ToFloat64(d.metrics.repeated.WithLabelValues("grpc")))

			w := post(t, d, "/v1/readings", typeJSON, `{"sensorId":"s","ts":"`+at+`","fields":{"t":1}}`, "Idempotency-Key", "another")
			assert.Equal(t, 400, w.Code, "it was never taken")
			w = post(t, d, "/v1/readings", typeJSON, `{"sensorId":"s","ts":"`+at+`","fields":{"t":2}}`, "Idempotency-Key", "k/v1/readings")
			assert.Equal(t, 409, w.Code, "another body")
		})
	}
}

func TestAnotherBodyUnderAKeyIsAConflict(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, anyTime)
	// One body for all: what differs is what it means.
	const body = "m t=1 1\n"
	assert.Equal(t, 204, post(t, d, "/write?precision=s", "", body, "Idempotency-Key", "k").Code)
	assert.Equal(t, 204, post(t, d, "/write?precision=s&db=other", "", body, "Idempotency-Key", "k").Code, "what changes nothing is the same")
	assert.Equal(t, 409, post(t, d, "/write?precision=ms", "", body, "Idempotency-Key", "k").Code)
	w := post(t, d, "/write?precision=s", "", body+"\n", "Idempotency-Key", "k")
	assert.Equal(t, 409, w.Code)
	assert.Contains(t, w.Body.String(), "idempotency_conflict")

	object := `{"sensorId":"s","fields":{"t":1}}`
	assert.Equal(t, 200, post(t, d, "/v1/readings", typeJSON, object, "Idempotency-Key", "j").Code)
	assert.Equal(t, 409, post(t, d, "/v1/readings", typeLines, object, "Idempotency-Key", "j").Code)
	assert.Equal(t, 200, post(t, d, "/v1/streams/mem/readings", typeLines, object, "Idempotency-Key", "j").Code, "another stream has keys of its own")
	assert.Equal(t, 200, post(t, d, "/v1/streams/readings/readings", typeJSON, gzipped(t, object), "Content-Encoding", "gzip", "Idempotency-Key", "j").Code,
		"the body counts as it is when inflated, the stream by its name")
	assert.Equal(t, []string{"mem\x00j", "readings\x00j", "readings\x00k"}, slices.Sorted(maps.Keys(j.keys)))
}

func TestARequestWithoutAKeyAsksForNothing(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	for range 2 {
		w := post(t, d, "/v1/readings", typeLines, manyLines(1))
		assert.Equal(t, 200, w.Code)
		assert.NotContains(t, w.Header(), "Idempotent-Replayed")
	}
	assert.Len(t, j.readings(), 2)
	assert.Empty(t, j.keys)
	in := d.newIntake(d.streams["readings"], telemetry.Stored)
	assert.Equal(t, batch.Request{Want: telemetry.Stored}, in.request())
}

func TestABadKeyRefusesTheRequest(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	for _, path := range []string{"/v1/readings", "/v1/streams/mem/readings", "/write", "/api/v2/write"} {
		for _, header := range [][]string{
			{"Idempotency-Key", ""}, {"Idempotency-Key", "a", "Idempotency-Key", "a"}, {"Idempotency-Key", strings.Repeat("k", 129)},
		} {
			w := post(t, d, path, typeJSON, `{"sensorId":"s","fields":{"t":1}}`, header...)
			assert.Equal(t, 400, w.Code, path)
			assert.Contains(t, w.Body.String(), `"code":"idempotency_key"`, path)
		}
	}
	assert.Empty(t, j.readings())
}

func TestWhatIsRefusedWholeKeepsNoKey(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	for range 2 {
		for _, body := range []string{"", "{", `{"sensorId":"s"}`} {
			w := post(t, d, "/v1/readings", typeJSON, body, "Idempotency-Key", "k")
			assert.Equal(t, 400, w.Code)
			assert.Empty(t, w.Header().Get("Idempotent-Replayed"))
		}
	}
	assert.Empty(t, j.keys)
	assert.Equal(t, 200, post(t, d, "/v1/readings", typeLines, manyLines(1), "Idempotency-Key", "k").Code)
}

func TestAnAnswerThatCannotBeRepeatedIsADefect(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	for _, kept := range [][]byte{nil, {1}, {1, 7, 0}} { // the last is that of another request
		post(t, d, "/v1/readings", typeLines, manyLines(2), "Idempotency-Key", "k")
		r := j.keys["readings\x00k"]
		r.Answer = kept
		j.keys["readings\x00k"] = r
		w := post(t, d, "/v1/readings", typeLines, manyLines(2), "Idempotency-Key", "k")
		assert.Equal(t, 500, w.Code)
		assert.Empty(t, w.Header().Get("Idempotent-Replayed"))
	}
}

// TestAnAnswerThatAnEarlierReleaseKeptIsRepeated has one with its refusals in binary form. What is
// refused is found out again.
func TestAnAnswerThatAnEarlierReleaseKeptIsRepeated(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	body := manyLines(2) + "oops"
	for path, key := range map[string]string{"/v1/readings": "readings\x00k", "/write": "readings\x00l"} {
		contentType, sent := typeLines, body
		if path == "/write" {
			contentType, sent = "", "m t=1\nm t=2\nm\n"
		}
		name := key[len(key)-1:]
		first := post(t, d, path, contentType, sent, "Idempotency-Key", name)
		r := j.keys[key]
		require.Equal(t, byte(keptJSON), r.Answer[0])
		r.Answer = []byte("\x01\x02\x01\x01\x09malformed\x01\x01\x02\x00\x03why")
		j.keys[key] = r
		again := post(t, d, path, contentType, sent, "Idempotency-Key", name)
		assert.Equal(t, first.Code, again.Code)
		assert.Equal(t, first.Body.String(), again.Body.String())
		assert.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))

		r.Answer[1], r.Answer[2] = 1, 2 // other readings than those that are refused now
		j.keys[key] = r
		again = post(t, d, path, contentType, sent, "Idempotency-Key", name)
		assert.Equal(t, first.Code, again.Code)
		assert.Contains(t, again.Body.String(), "were refused when the request was first sent")
	}
}

func TestRepetitionsAreCountedOnce(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	for range 3 {
		post(t, d, "/v1/readings", typeLines, manyLines(2)+"oops", "Idempotency-Key", "k")
		post(t, d, "/write", "", "m t=1\nm\n", "Idempotency-Key", "l")
	}
	m := d.metrics
	assert.EqualValues(t, 3, testutil.ToFloat64(m.requests.WithLabelValues("http", "207")))
	assert.EqualValues(t, 3, testutil.ToFloat64(m.requests.WithLabelValues("line", "400")))
	assert.EqualValues(t, 2, testutil.ToFloat64(m.repeated.WithLabelValues("http")))
	assert.EqualValues(t, 2, testutil.ToFloat64(m.repeated.WithLabelValues("line")))
	assert.EqualValues(t, 0, testutil.ToFloat64(m.repeated.WithLabelValues("grpc")))
	assert.EqualValues(t, 2, testutil.ToFloat64(m.readings.WithLabelValues("http")))
	assert.EqualValues(t, 2, testutil.ToFloat64(m.rejected.WithLabelValues("malformed")))
	j.err = errors.New("defect")
	post(t, d, "/v1/readings", typeLines, manyLines(2)+"oops", "Idempotency-Key", "k")
	assert.EqualValues(t, 2, testutil.ToFloat64(m.repeated.WithLabelValues("http")))
}

func withKey(ctx context.Context, keys ...string) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.MD{"idempotency-key": keys})
}

func TestWriteIsRepeated(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	client := dialGRPC(t, d)
	request := &telemetrypb.WriteRequest{RequestId: "r", Readings: []*telemetrypb.Reading{
		pb(func(*telemetrypb.Reading) {}), pb(func(r *telemetrypb.Reading) { r.Fields = nil }),
	}}
	write := func(request *telemetrypb.WriteRequest, keys ...string) (*telemetrypb.WriteResponse, []string, error) {
		var header metadata.MD
		response, err := client.Write(withKey(t.Context(), keys...), request, grpc.Header(&header))
		return response, header.Get("idempotent-replayed"), err
	}
	first, replayed, err := write(request, "k")
	require.NoError(t, err)
	assert.Empty(t, replayed)
	assert.EqualValues(t, 1, first.GetRejected())
	again, replayed, err := write(request, "k")
	require.NoError(t, err)
	assert.Equal(t, []string{"true"}, replayed)
	assert.True(t, proto.Equal(first, again), again)
	assert.Len(t, j.readings(), 1)
	assert.EqualValues(t, 1, testutil.ToFloat64(d.metrics.repeated.WithLabelValues("grpc")))

	_, _, err = write(oneReading("r", "other"), "k")
	assert.Equal(t, codes.AlreadyExists, status.Code(err))
	for _, keys := range [][]string{{"a", "b"}, {""}, {strings.Repeat("k", 129)}} {
		_, _, err = write(request, keys...)
		assert.Equal(t, codes.InvalidArgument, status.Code(err), keys)
		assert.Contains(t, status.Convert(err).Message(), "idempotency_key: ")
	}

	// What the database refused is still an error the second time.
	j.refused = []batch.Refused{{Index: 0, Refusal: telemetry.Refusal{Code: telemetry.StoreRefused, Message: "why"}}}
	for range 2 {
		_, _, err = write(oneReading("r", "s"), "late")
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
		assert.Contains(t, status.Convert(err).Message(), "store_refused: why")
	}
}

func TestMessagesOfAStreamAreRepeatedByTheirIDs(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	client := dialGRPC(t, d)
	send := func(requests ...*telemetrypb.WriteRequest) (responses []*telemetrypb.WriteResponse) {
		stream, err := client.WriteStream(withKey(t.Context(), "k"))
		require.NoError(t, err)
		for _, r := range requests {
			require.NoError(t, stream.Send(r))
			response, err := stream.Recv()
			require.NoError(t, err)
			responses = append(responses, response)
		}
		require.NoError(t, stream.CloseSend())
		return responses
	}
	first := send(oneReading("1", "s"), oneReading("2", "s"))
	again := send(oneReading("2", "s"), oneReading("1", "s"), oneReading("3", "s"), oneReading("1", "other"), oneReading("", "s"))
	assert.True(t, proto.Equal(first[0], again[1]))
	assert.True(t, proto.Equal(first[1], again[0]))
	assert.Len(t, j.readings(), 3)
	assert.EqualValues(t, codes.AlreadyExists, again[3].GetError().GetStatus())
	assert.EqualValues(t, codes.InvalidArgument, again[4].GetError().GetStatus())
	assert.Equal(t, "idempotency_key", again[4].GetError().GetCode())
	assert.Contains(t, again[4].GetError().GetMessage(), "request_id")
	assert.Equal(t, []string{"readings\x00k\x001", "readings\x00k\x002", "readings\x00k\x003"}, slices.Sorted(maps.Keys(j.keys)))

	// The same key with a slash in it is not a key with an id.
	_, err := client.Write(withKey(t.Context(), "k/1"), oneReading("1", "s"))
	require.NoError(t, err)
	assert.Len(t, j.readings(), 4)
}
