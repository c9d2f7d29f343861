package ingest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// TestAcks asks for every level in every way, of daemons that reach more or less.
func TestAcks(t *testing.T) {
	t.Parallel()
	const journaled, stored = telemetry.Journaled, telemetry.Stored
	levels := map[telemetry.Ack]telemetrypb.Ack{"": telemetrypb.Ack_ACK_UNSPECIFIED, journaled: telemetrypb.Ack_ACK_JOURNALED, stored: telemetrypb.Ack_ACK_STORED}
	for _, c := range []struct {
		name           string
		standard, asks telemetry.Ack // of the daemon; of the client, empty: nothing
		reached        telemetry.Ack
		http, line     int
	}{
		{"journaled by default", journaled, "", journaled, 200, 204},
		{"stored by default", stored, "", stored, 200, 204},
		{"stored by default, and away", stored, "", journaled, 202, 202},
		{"journaled on request", stored, journaled, journaled, 200, 204},
		{"stored on request", journaled, stored, stored, 200, 204},
		{"stored on request, and away", journaled, stored, journaled, 202, 202},
		{"more than was asked for", journaled, journaled, stored, 200, 204},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, j := newTestServer(t, func(config *Config) {
				config.Acks, config.Ack = []telemetry.Ack{journaled, stored}, c.standard
			})
			j.reach = c.reached
			query, header := "", []string(nil)
			if c.asks != "" {
				query, header = "?ack="+string(c.asks), []string{"Brim-Ack", string(c.asks)}
			}
			body := `{"accepted":1,"rejected":0,"ack":"` + string(c.reached) + `","errors":[]}`
			w := post(t, d, "/v1/readings"+query, typeLines, manyLines(1))
			assert.Equal(t, c.http, w.Code)
			assert.JSONEq(t, body, w.Body.String())
			w = post(t, d, "/v1/readings", typeLines, manyLines(1), header...)
			assert.Equal(t, c.http, w.Code)
			assert.JSONEq(t, body, w.Body.String())
			assert.Equal(t, c.line, post(t, d, "/write"+query, "", "m t=1").Code)
			assert.Equal(t, c.line, post(t, d, "/api/v2/write", "", "m t=1", header...).Code)

			w = post(t, d, "/v1/readings"+query, typeLines, manyLines(1)+"oops")
			assert.Equal(t, 207, w.Code, "a partial refusal says more than a late storage")
			assert.Contains(t, w.Body.String(), `"accepted":1,"rejected":1,"ack":"`+string(c.reached)+`"`)

			response, err := dialGRPC(t, d).Write(t.Context(), &telemetrypb.WriteRequest{
				Ack: levels[c.asks], Readings: []*telemetrypb.Reading{pb(func(*telemetrypb.Reading) {})},
			})
			require.NoError(t, err)
			assert.Equal(t, levels[c.reached], response.GetAck())

			want := c.asks
			if want == "" {
				want = c.standard
			}
			assert.Equal(t, []telemetry.Ack{want, want, want, want, want, want}, j.wants)
		})
	}
}
