package client

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/client/wire"
)

// FuzzAnswer: the daemon, or a proxy in front of it, may answer anything.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		taken2, `{"accepted":1,"rejected":1,"errors":[{"index":1,"code":"c","message":"m"}]}`, `{"code":"c","message":"m"}`, `[]`, `{"accepted":-1,"rejected":3}`,
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
		if a, err := wire.ParseAddress(text); err == nil {
			again, err := wire.ParseAddress(a.Base)
			require.NoError(t, err, a.Base)
			assert.Equal(t, a, again)
		}
	})
}
