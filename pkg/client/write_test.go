package client

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestReadingsArriveAsTheyWere(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		for _, gzip := range []bool{false, true} {
			d := startDaemon(t)
			c := newClient(t, address(d), func(c *Config) { c.Stream, c.Ack, c.Gzip = "other one", telemetry.Stored, gzip })
			sent := weather("s 1/ä", 3)
			sent = append(sent, telemetry.Reading{Sensor: "x", Time: noon, Fields: []telemetry.Field{
				{Name: "on", Value: telemetry.BoolValue(true)}, {Name: "text", Value: telemetry.TextValue("a\n\"b\"")}, {Name: "big", Value: telemetry.IntValue(math.MaxInt64)}}})
			result, err := c.Write(t.Context(), sent...)
			require.NoError(t, err)
			assert.Equal(t, Result{Accepted: 4, Ack: telemetry.Stored, Attempts: 1, Address: address(d)}, result)
			assert.ElementsMatch(t, sent, d.journal.taken())
			assert.Equal(t, []string{"other one", "other one", "other one", "other one"}, d.journal.streams)
			assert.Equal(t, []telemetry.Ack{telemetry.Stored}, d.journal.wants)
		}
	})
}

func TestAReadingWithoutATimeGetsTheDaemons(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		r := one("s", 1)
		r.Time = time.Time{}
		_, err := newClient(t, address(d)).Write(t.Context(), r)
		require.NoError(t, err)
		assert.WithinDuration(t, time.Now(), d.journal.taken()[0].Time, time.Minute)
	})
}

func TestWhatCannotBeSentIsNamed(t *testing.T) {
	t.Parallel()
	field := func(name string, v telemetry.Value) telemetry.Reading {
		return telemetry.Reading{Sensor: "s", Fields: []telemetry.Field{{Name: name, Value: v}}}
	}
	for _, row := range []struct {
		reading telemetry.Reading
		want    telemetry.Code // empty: the daemon decides
	}{
		{field("t", telemetry.FloatValue(1)), ""},
		{field("a.b", telemetry.FloatValue(1)), ""},
		{telemetry.Reading{}, ""},
		{field("t", telemetry.FloatValue(math.NaN())), telemetry.ValueNotFinite},
		{field("t", telemetry.FloatValue(math.Inf(-1))), telemetry.ValueNotFinite},
		{field("t", telemetry.TextValue("\xff")), telemetry.ValueText},
		{field("\xff", telemetry.IntValue(1)), telemetry.FieldName},
		{field("t", telemetry.Value{}), telemetry.ValueType},
		{telemetry.Reading{Sensor: "\xff"}, telemetry.SensorInvalid},
		{telemetry.Reading{Sensor: "s", Tags: []telemetry.Tag{{Name: "\xff"}}}, telemetry.TagName},
		{telemetry.Reading{Sensor: "s", Tags: []telemetry.Tag{{Name: "a", Value: "\xff"}}}, telemetry.TagValue},
	} {
		refusal := unsendable(&row.reading)
		if row.want == "" {
			assert.Nil(t, refusal, row.reading)
			continue
		}
		require.NotNil(t, refusal, row.reading)
		assert.Equal(t, row.want, refusal.Code)
	}
}

// TestRefusedReadingsAreNamed: the daemon refuses two, and two others cannot even
// be encoded.
func TestRefusedReadingsAreNamed(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		c := newClient(t, address(d))
		all := weather("s-1", 7)
		all[1].Fields = []telemetry.Field{{Name: "t", Value: telemetry.FloatValue(math.NaN())}}
		all[2].Fields = []telemetry.Field{{Name: "$t", Value: telemetry.FloatValue(1)}}
		all[4].Time = noon.AddDate(100, 0, 0)
		all[6].Sensor = "\xff"
		result, err := c.Write(t.Context(), all...)
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, result, refused.Result)
		assert.Equal(t, 3, result.Accepted)
		assert.Equal(t, 4, result.Rejected)
		assert.Equal(t, telemetry.Journaled, result.Ack)
		codes := map[int]telemetry.Code{}
		for _, r := range result.Refused {
			codes[r.Index] = r.Code
			assert.Equal(t, all[r.Index].Sensor, r.Sensor)
			assert.NotEmpty(t, r.Message)
		}
		assert.Equal(t, map[int]telemetry.Code{1: telemetry.ValueNotFinite, 2: telemetry.FieldName, 4: telemetry.TimeOutOfRange, 6: telemetry.SensorInvalid}, codes)
		assert.ElementsMatch(t, []telemetry.Reading{all[0], all[3], all[5]}, d.journal.taken())
		assert.Contains(t, err.Error(), `4 of 7 readings were refused; reading 2, of sensor "s-1": field_name: `)
	})
}

func TestWhenAllAreRefusedNothingIsRepeated(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		c := newClient(t, address(d))
		for _, key := range []string{"", "mine"} { // over gRPC by a stream, and by a separate call
			result, err := c.Send(t.Context(), Request{Readings: []telemetry.Reading{{Sensor: "s"}, one("", 1)}, Key: key})
			var refused *RefusedError
			require.ErrorAs(t, err, &refused, key)
			assert.Equal(t, 2, result.Rejected)
			assert.Equal(t, telemetry.FieldsMissing, result.Refused[0].Code)
			assert.Equal(t, 1, result.Attempts)
		}
		result, err := c.Write(t.Context(), one("s", math.Inf(1)))
		require.Error(t, err)
		assert.Equal(t, 0, result.Attempts, "nothing could be sent")
		assert.Empty(t, d.journal.taken())
	})
}

func TestARequestThatWasRefusedAsAWholeIsNotRepeated(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		c := newClient(t, address(d))
		for _, key := range []string{"", "mine"} {
			_, err := c.Send(t.Context(), Request{Readings: weather("s", 1), Stream: "nowhere", Key: key})
			var failed *Error
			require.ErrorAs(t, err, &failed)
			assert.False(t, failed.Unknown)
			assert.Equal(t, 1, failed.Attempts)
			assert.Equal(t, telemetry.NotFound, telemetry.KindOf(err))
			var known *telemetry.Error
			require.ErrorAs(t, err, &known)
			assert.Equal(t, "stream_unknown", known.Code)
			assert.Contains(t, err.Error(), "there is no stream")
		}
	})
}

func TestRequestsAreRetriedUntilADaemonAcceptsThem(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		for _, key := range []string{"", "mine"} {
			d := startDaemon(t)
			// The first two accept nothing; the outcome of the third is unknown.
			d.journal.fail = []error{
				telemetry.Errorf(telemetry.TooSlow, "body_too_slow", "too slow"), telemetry.Errorf(telemetry.TooSlow, "body_too_slow", "too slow"),
				telemetry.Errorf(telemetry.UnknownOutcome, "outcome_unknown", "not known"),
			}
			result, err := newClient(t, address(d)).Send(t.Context(), Request{Readings: weather("s", 2), Key: key})
			require.NoError(t, err, key)
			assert.Equal(t, 4, result.Attempts)
			assert.Len(t, d.journal.taken(), 2)
		}
	})
}

func TestTheReasonOfTheLastAttemptIsTold(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		d.journal.fail = []error{telemetry.Errorf(telemetry.UnknownOutcome, "outcome_unknown", "not known"), &telemetry.Error{Kind: telemetry.Unavailable, Code: "journal_full", Message: "the journal is full", RetryAfter: time.Hour}}
		_, err := newClient(t, address(d)).Write(t.Context(), weather("s", 2)...)
		var failed *Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, 2, failed.Attempts, "an hour is longer than RetryFor")
		assert.True(t, failed.Unknown, "the first attempt may have been taken")
		assert.NotEmpty(t, failed.Key)
		var known *telemetry.Error
		require.ErrorAs(t, err, &known)
		assert.Equal(t, "journal_full", known.Code)
		assert.Equal(t, time.Hour, known.RetryAfter)
		assert.Contains(t, err.Error(), ", 2 times: journal_full: the journal is full; they may have been stored")
	})
}

func TestAKeyOfTheCallersIsUsed(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		request := Request{Readings: weather("s", 2), Key: "file 7"}
		for i := range 3 { // each could be another process
			result, err := newClient(t, address(d)).Send(t.Context(), request)
			require.NoError(t, err)
			assert.Equal(t, 2, result.Accepted)
			assert.Equal(t, i > 0, result.Replayed)
		}
		assert.Len(t, d.journal.taken(), 2)
		request.Readings = weather("s", 3)
		_, err := newClient(t, address(d)).Send(t.Context(), request)
		assert.Equal(t, telemetry.Conflict, telemetry.KindOf(err))
	})
}

func TestLowerAckIsReported(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		d.journal.reach = telemetry.Journaled
		result, err := newClient(t, address(d)).Send(t.Context(), Request{Readings: weather("s", 1), Ack: telemetry.Stored})
		require.NoError(t, err)
		assert.Equal(t, telemetry.Journaled, result.Ack)
	})
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	c := newClient(t, "http://127.0.0.1:1")
	for want, request := range map[string]Request{
		"there are none":           {},
		"ack \"soon\" is unknown":  {Readings: weather("s", 1), Ack: "soon"},
		"bytes of printable UTF-8": {Readings: weather("s", 1), Key: "a\n"},
		"1 to 128 bytes":           {Readings: weather("s", 1), Key: string(make([]byte, 129))},
	} {
		_, err := c.Send(t.Context(), request)
		require.ErrorContains(t, err, want)
		var failed *Error
		assert.NotErrorAs(t, err, &failed, "nothing was tried")
	}
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"there are 0 addresses":       func(c *Config) { c.Addresses = nil },
		"an unknown scheme":           func(c *Config) { c.Addresses[0] = "ftp://127.0.0.1:8430" },
		"is not a URL":                func(c *Config) { c.Addresses[0] = "http://%zz:secret@h" },
		"needs a host and a port":     func(c *Config) { c.Addresses[0] = "grpc://h" },
		"more than a host and a port": func(c *Config) { c.Addresses[0] = "http://h/v1" },
		"different protocols":         func(c *Config) { c.Addresses = append(c.Addresses, "grpc://127.0.0.1:1") },
		"unencrypted":                 func(c *Config) { c.Addresses[0], c.Token = "http://brim.example", Token("secret") },
		"timeout -1s is negative":     func(c *Config) { c.Timeout = -time.Second },
		"KeyLife 15m0s":               func(c *Config) { c.KeyLife = 15 * time.Minute },
		"KeyLife -1ns":                func(c *Config) { c.KeyLife = -1 },
		"back-off of 1s to 1ms":       func(c *Config) { c.BackoffMin, c.BackoffMax = time.Second, time.Millisecond },
		"ack \"x\" is unknown":        func(c *Config) { c.Ack = "x" },
	} {
		config := Config{Addresses: []string{"http://127.0.0.1:1"}}
		change(&config)
		_, err := New(config)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "secret")
	}
	for _, address := range []string{"http://localhost", "http://[::1]:80", "https://brim.example", "grpcs://brim.example:8431"} {
		c, err := New(Config{Addresses: []string{address}, Token: Token("secret")})
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}

func TestAClosedClient(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		d := startDaemon(t)
		c := newClient(t, address(d))
		d.journal.set(func() { d.journal.block = make(chan struct{}) })
		failed := make(chan error, 1)
		go func() { _, err := c.Write(t.Context(), weather("s", 1)...); failed <- err }()
		require.NoError(t, c.Close(), "which ends what is under way")
		require.ErrorIs(t, <-failed, ErrClosed)
		require.NoError(t, c.Close())
		_, err := c.Write(t.Context(), weather("s", 1)...)
		require.ErrorIs(t, err, ErrClosed)
	})
}
