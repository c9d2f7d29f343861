package client

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/client/wire"
)

// FuzzAnswer has a daemon, or what stands before it, say anything.
func FuzzAnswer(f *testing.F) {
	f.Add(string(weather("s", 1)[0].AppendJSON(nil)))
	for _, text := range []string{
		taken2, `{"accepted":1,"rejected":1,"errors":[{"index":1,"code":"c","message":"m"}]}`, `{"code":"c","message":"m"}`, `[]`, `{"accepted":-1,"rejected":3}`,
		`{"error":{"code":"c","message":"m"}}`, `{"sensorId":"s","ts":"2026-01-02T12:00:00.000Z","fields":{"a":true,"b":"x","c":1e3}}`,
		`{"sensorId":"s","fields":[1]}`, `{"sensorId":"s","fields":{"a":{}}}`,
		`{"start":"2026-01-02T12:00:00.000Z","count":3,"fields":{"t":{"n":2,"min":1,"max":2.5,"mean":4.5}}}`,
		"", "2", "-1", "99999999999999999999", noon.Format(http.TimeFormat), "http://h", "grpc://[::1]:2", "http://u:p@h", "grpcs://h:99999",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := parseAnswer([]byte(text), 2); err == nil {
			assert.Equal(t, 2, r.Accepted+r.Rejected)
			assert.True(t, r.Accepted >= 0 && r.Rejected >= 0)
			for _, e := range r.Refused {
				assert.True(t, e.Index == 0 || e.Index == 1)
			}
		}
		after := parseRetryAfter(text, noon)
		assert.True(t, 0 <= after && after <= maxRetryAfter, after)
		if s, err := decodeStep(json.NewDecoder(strings.NewReader(text))); err == nil {
			assert.NotNil(t, s.Fields)
		}
		if a, err := wire.ParseAddress(text); err == nil {
			again, err := wire.ParseAddress(a.Base)
			require.NoError(t, err, a.Base)
			assert.Equal(t, a, again)
		}
		readingComesBack(t, text)
	})
}

// readingComesBack checks that a reading that can be read is the same when it is
// written and read again.
func readingComesBack(t *testing.T, text string) {
	t.Helper()
	r, err := parseReading([]byte(text))
	if err != nil {
		return
	}
	again, err := parseReading(r.AppendJSON(nil))
	require.NoError(t, err)
	assert.True(t, r.Time.Truncate(time.Millisecond).Equal(again.Time))
	assert.True(t, slices.Equal(r.Fields, again.Fields), "%v %v", r.Fields, again.Fields)
	assert.True(t, slices.Equal(r.Tags, again.Tags))
}
