package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// BenchmarkRollupMonth stores a month of a sensor sending four fields every 5 seconds, lets all
// but a week expire, and requires that summaries stay the same and rollups match each hour's
// readings.
//
//	go test -run '^$' -bench RollupMonth -benchtime 1x ./cmd/brim
func BenchmarkRollupMonth(b *testing.B) {
	for name, flags := range map[string][]string{
		"documents-5m": {"--seal-after", "1h"},
		"columns-1h":   {"--bucket-format", "columns", "--granularity", "1h"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				newMonth(b, append(flags, "--rollup", "1h")).run()
			}
		})
	}
}

// A sensorMonth is a sensor's readings of a month.
type sensorMonth struct {
	b     *testing.B
	flags []string
	db    *mongo.Database
	from  time.Time
	hours map[int64]map[string]*hourOfField // by start
}

const (
	monthDays  = 30
	everyMonth = 5 * time.Second
)

// hourOfField is what a rollup must contain.
type hourOfField struct {
	N                          int64
	Min, Max, Sum, First, Last float64
}

func newMonth(b *testing.B, flags []string) *sensorMonth {
	b.Helper()
	m := &sensorMonth{b: b, db: mongodtest.Database(b), hours: make(map[int64]map[string]*hourOfField)}
	m.from = time.Now().UTC().Truncate(time.Hour).Add(-monthDays*24*time.Hour - 4*time.Hour)
	m.flags = append(append(onShared(b, m.db), "--max-body-bytes", "64MiB", "--max-inflated-bytes", "64MiB"), flags...)
	return m
}

func (m *sensorMonth) run() {
	b := m.b
	p := startBrim(b, m.flags...).awaitStorage()
	m.store(p)
	for range 2 {
		got := runBrim(b, nil, "seal", "readings", "--wait", "--admin", p.Admin, "--output", "json")
		require.NoError(b, got.err, got.stderr)
	}
	m.checkHours()
	b.ReportMetric(m.bytes("readings"), "rawB")
	b.ReportMetric(m.bytes(store.RollupName("readings")), "rollupB")
	before := m.answers(p, "before")
	p.stop()

	admin := m.db.Client().Database("admin")
	require.NoError(b, admin.RunCommand(b.Context(), bson.D{{Key: "setParameter", Value: 1}, {Key: "ttlMonitorSleepSecs", Value: 1}}).Err())
	p = startBrim(b, append(m.flags, "--retention", "7d")...).awaitStorage()
	week := bson.D{{Key: "bucketStart", Value: bson.D{{Key: "$lt", Value: time.Now().Add(-7*24*time.Hour - 5*time.Hour)}}}}
	p.eventually("all but a week has expired", func() bool {
		n, err := m.db.Collection("readings").CountDocuments(b.Context(), week)
		return err == nil && n == 0
	})
	after := m.answers(p, "after")
	for every, want := range before {
		require.Len(b, after[every].Summary, len(want.Summary), every)
		for i, step := range want.Summary {
			got := after[every].Summary[i]
			assert.Equal(b, []any{step.Start, step.Count}, []any{got.Start, got.Count})
			for name, f := range step.Fields {
				assert.InDelta(b, f.Mean, got.Fields[name].Mean, 1e-9*math.Abs(f.Mean))
				f.Mean, got.Fields[name].Mean = 0, 0
				assert.Equal(b, f, got.Fields[name])
			}
		}
	}
	m.checkHours()
}

// store writes the readings.
func (m *sensorMonth) store(p *brimProcess) {
	r := rand.New(rand.NewPCG(1, 2))
	middle := map[string]float64{"t": 20, "h": 50, "p": 1013, "v": 230}
	values := maps.Clone(middle)
	names := []string{"t", "h", "p", "v"}
	const each = 10_000
	total := int(monthDays * 24 * time.Hour / everyMonth)
	for i := 0; i < total; i += each {
		var lines strings.Builder
		for k := i; k < min(i+each, total); k++ {
			at := m.from.Add(time.Duration(k)*everyMonth + time.Duration(r.IntN(50))*time.Millisecond)
			_, _ = fmt.Fprintf(&lines, `{"sensorId":"s-1","ts":%q,"fields":{`, at.Format(time.RFC3339Nano))
			for n, name := range names {
				values[name] = math.Round(100*(values[name]+(middle[name]-values[name])/1000+float64(r.IntN(21)-10)/100)) / 100
				_, _ = fmt.Fprintf(&lines, `%s"%s":%g`, []string{"", ","}[min(n, 1)], name, values[name])
				m.count(at, name, values[name])
			}
			lines.WriteString("}}\n")
		}
		code, answer, err := p.send("/v1/readings?ack=stored", []byte(lines.String()), "Content-Type", "application/x-ndjson")
		require.NoError(m.b, err)
		require.Equal(m.b, http.StatusOK, code, answer)
	}
}

func (m *sensorMonth) count(at time.Time, name string, v float64) {
	start := at.Truncate(time.Hour).UnixMilli()
	if m.hours[start] == nil {
		m.hours[start] = make(map[string]*hourOfField)
	}
	f := m.hours[start][name]
	if f == nil {
		f = &hourOfField{Min: v, Max: v, First: v}
		m.hours[start][name] = f
	}
	f.N, f.Min, f.Max, f.Sum, f.Last = f.N+1, min(f.Min, v), max(f.Max, v), f.Sum+v, v
}

// checkHours compares all rollups with the sent readings.
func (m *sensorMonth) checkHours() {
	cursor, err := m.db.Collection(store.RollupName("readings")).Find(m.b.Context(), bson.D{})
	require.NoError(m.b, err)
	var days []struct {
		Day   time.Time `bson:"day"`
		Steps map[int64]struct {
			N      int64                  `bson:"n"`
			Fields map[string]hourOfField `bson:"fields"`
		} `bson:"steps"`
	}
	require.NoError(m.b, cursor.All(m.b.Context(), &days))
	hours := 0
	for _, day := range days {
		for offset, step := range day.Steps {
			hours++
			want := m.hours[day.Day.Add(time.Duration(offset)*time.Second).UnixMilli()]
			require.Len(m.b, step.Fields, len(want))
			for name, f := range step.Fields {
				assert.InDelta(m.b, want[name].Sum, f.Sum, 1e-9*math.Abs(f.Sum))
				f.Sum = want[name].Sum
				assert.Equal(m.b, *want[name], f)
			}
		}
	}
	require.Equal(m.b, len(m.hours), hours)
}

// bytes returns what a collection takes on disk when written in one go.
func (m *sensorMonth) bytes(name string) float64 {
	copied := name + "-copy"
	cursor, err := m.db.Collection(name).Aggregate(m.b.Context(), mongo.Pipeline{{{Key: "$out", Value: copied}}})
	require.NoError(m.b, err)
	require.NoError(m.b, cursor.Close(m.b.Context()))
	require.NoError(m.b, m.db.Client().Database("admin").RunCommand(m.b.Context(), bson.D{{Key: "fsync", Value: 1}}).Err())
	var stats struct {
		Storage float64 `bson:"storageSize"`
	}
	require.NoError(m.b, m.db.RunCommand(m.b.Context(), bson.D{{Key: "collStats", Value: copied}}).Decode(&stats))
	return stats.Storage
}

// monthAnswer is the answer to a summary.
type monthAnswer struct {
	Summary []struct {
		Start  string `json:"start"`
		Count  int64  `json:"count"`
		Fields map[string]*struct {
			N              int64
			Min, Max, Mean float64
		} `json:"fields"`
	} `json:"summary"`
}

// answers requests summaries of the month, and reports the median times.
func (m *sensorMonth) answers(p *brimProcess, when string) map[string]monthAnswer {
	out := make(map[string]monthAnswer)
	for _, every := range []string{"1h", "1d", "30d"} {
		path := "/v1/sensors/s-1/summary?" + url.Values{"from": {m.from.Format(time.RFC3339)}, "every": {every}}.Encode()
		var took []time.Duration
		for range 11 {
			begin := time.Now()
			code, answer, err := p.ask(path)
			took = append(took, time.Since(begin))
			require.NoError(m.b, err)
			require.Equal(m.b, http.StatusOK, code, answer)
			var got monthAnswer
			require.NoError(m.b, json.Unmarshal([]byte(answer), &got))
			out[every] = got
		}
		slices.Sort(took)
		m.b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-"+every+"-"+when)
	}
	return out
}
