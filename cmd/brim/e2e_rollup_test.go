package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// TestRollupsOutliveReadings, through a daemon: summary and PromQL answers stay the same after
// the readings expire, until the sensor is deleted.
func TestRollupsOutliveReadings(t *testing.T) {
	t.Parallel()
	for _, more := range [][]string{{}, {"--bucket-format", "columns", "--duplicates", "last-wins"}, {"--duplicates", "drop-identical"}} {
		t.Run(strings.Join(more, " "), func(t *testing.T) {
			t.Parallel()
			db := mongodtest.Database(t)
			b := startBrim(t, append(append(onShared(t, db), "--seal-after", "10m", "--rollup", "1h", "--query-max-samples", "300"), more...)...).awaitStorage().awaitCatalog()
			base := time.Now().UTC().Truncate(time.Hour).Add(-6 * time.Hour)
			var lines strings.Builder
			for i := range 4 * 60 {
				_, _ = fmt.Fprintf(&lines, `{"sensorId":"a","ts":%q,"fields":{"t":%d,"h":%g},"tags":{"site":"north"}}`+"\n", base.Add(time.Duration(i)*time.Minute+time.Second).Format(time.RFC3339), i%37, float64(i)/4)
			}
			code, answer, err := b.send("/v1/readings?ack=stored", []byte(lines.String()), "Content-Type", "application/x-ndjson")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code, answer)
			span := url.Values{"from": {base.Format(time.RFC3339)}, "to": {base.Add(4 * time.Hour).Format(time.RFC3339)}}
			ask := func(path string) string {
				code, answer, err := b.ask(path)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, code, answer)
				return answer
			}
			summary := func(every string) string {
				span.Set("every", every)
				return ask("/v1/sensors/a/summary?" + span.Encode())
			}
			promql := func(query string) (out []float64) {
				var got struct {
					Data struct {
						Result []struct {
							Values [][2]any `json:"values"`
						} `json:"result"`
					} `json:"data"`
				}
				require.NoError(t, json.Unmarshal([]byte(ask("/prometheus/api/v1/query_range?"+url.Values{
					"query": {query}, "start": {fmt.Sprint(base.Add(time.Hour).Unix())}, "end": {fmt.Sprint(base.Add(4 * time.Hour).Unix())}, "step": {"3600"},
				}.Encode())), &got))
				require.Len(t, got.Data.Result, 1, query)
				for _, v := range got.Data.Result[0].Values {
					n, err := strconv.ParseFloat(v[1].(string), 64)
					require.NoError(t, err)
					out = append(out, n)
				}
				require.Len(t, out, 4, query)
				return out
			}
			hours, all := summary("1h"), summary("4h")
			queries := []string{"max_over_time(t[1h])", "min_over_time(h[2h])", "count_over_time(t[1h])", "sum_over_time(t[1h])", "avg_over_time(h[1h])", "last_over_time(t[1h])"}
			before := make(map[string][]float64)
			for _, q := range queries {
				before[q] = promql(q)
			}
			for range 2 {
				got := runBrim(t, nil, "seal", "readings", "--wait", "--admin", b.Admin, "--output", "json")
				require.NoError(t, got.err, got.stderr)
			}
			tooMany := "/prometheus/api/v1/query?" + url.Values{"query": {`count_over_time({__name__=~"t|h"}[4h])`}, "time": {fmt.Sprint(base.Add(4 * time.Hour).Unix())}}.Encode()
			refused := func() {
				code, answer, err := b.ask(tooMany)
				require.NoError(t, err)
				assert.Equal(t, http.StatusUnprocessableEntity, code, answer)
				assert.Contains(t, answer, "more than 300 samples")
			}
			refused()
			raw, err := db.Collection("readings").DeleteMany(t.Context(), bson.D{{Key: "sealed.rolled", Value: true}})
			require.NoError(t, err)
			assert.EqualValues(t, 48, raw.DeletedCount)
			assert.JSONEq(t, hours, summary("1h"))
			assert.JSONEq(t, all, summary("4h"))
			for _, q := range queries {
				assert.InDeltaSlice(t, before[q], promql(q), 1e-9, q)
			}
			refused()
			_, metrics := b.admin(http.MethodGet, "/metrics")
			assert.Contains(t, metrics, `brim_rollup_steps_total{outcome="written",stream="readings"} 4`)

			deleted := runBrim(t, nil, "delete", "--url", "http://"+b.HTTP, "--yes", "a")
			require.NoError(t, deleted.err, deleted.stderr)
			assert.JSONEq(t, `{"summary":[]}`, summary("1h"))
			n, err := db.Collection(store.RollupName("readings")).CountDocuments(t.Context(), bson.D{{Key: "steps", Value: bson.D{{Key: "$exists", Value: true}}}})
			require.NoError(t, err)
			assert.Zero(t, n)
		})
	}
}
