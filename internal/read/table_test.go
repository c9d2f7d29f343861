package read

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestReadingsAsTables(t *testing.T) {
	t.Parallel()
	long := make([]byte, telemetry.MaxTextBytes)
	for i := range long {
		long[i] = 'x'
	}
	var all []telemetry.Reading
	for i := range 20_000 {
		r := reading("a", time.Duration(i/3)*time.Second, int64(i))
		r.Fields = append(r.Fields, telemetry.Field{Name: "text", Value: telemetry.TextValue(string(long))})
		all = append(all, r)
	}
	reader := newReader(t, fakeSource{readings: all})
	for _, format := range []files.Format{files.CSV, files.Parquet} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			var found []telemetry.Reading
			pages := 0
			for after := ""; pages == 0 || after != ""; pages++ {
				got := get(reader, "/v1/sensors/a/readings?limit=100000&after="+after, format.MediaType())
				require.Equal(t, http.StatusOK, got.status, got.body)
				require.Equal(t, format.MediaType(), got.header.Get("Content-Type"))
				after = got.header.Get("Brim-After")
				for row, err := range files.Read(format, bytes.NewReader([]byte(got.body)), int64(len(got.body)), files.Options{}) {
					require.NoError(t, err)
					require.NoError(t, row.Err)
					found = append(found, row.Reading)
				}
			}
			assert.Greater(t, pages, 1, "more than is kept in memory for a page")
			require.Len(t, found, len(all))
			for i := range all {
				require.Equal(t, all[i].Fields[0], found[i].Fields[1], "columns are in the order of their names")
				require.Equal(t, all[i].Time, found[i].Time)
			}
		})
	}
	empty := get(reader, "/v1/sensors/b/readings", files.CSV.MediaType())
	assert.Equal(t, "ts,sensorId\n", empty.body)
	for target, accept := range map[string]string{"/v1/sensors": files.CSV.MediaType(), "/v1/sensors/a/summary": files.Parquet.MediaType(), "/v1/sensors/a/readings?unstored=only": files.CSV.MediaType()} {
		assert.Contains(t, get(reader, target, accept).body, "unsupported_accept", target)
	}
}
