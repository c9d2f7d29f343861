package report

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/load"
)

func TestJSONHasTheResult(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, JSON(&b, anOverload()))
	var r load.Result
	require.NoError(t, json.Unmarshal(b.Bytes(), &r))
	assert.Equal(t, *anOverload(), r)
	for _, key := range []string{"offered_rate", "achieved_rate", "sent", "acked", "failed", "dropped", "response_seconds", "service_seconds", "response_strict_seconds", "drain_seconds", "interrupted", "by_fill", "store_by_fill", "fill_from", "p999"} {
		assert.Contains(t, b.String(), `"`+key+`"`)
	}
}
