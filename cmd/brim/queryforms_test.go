package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An answering daemon is a fake that always gives the same answer.
type answering struct {
	body string

	mu   sync.Mutex
	asks []*url.URL
}

func (a *answering) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.asks = append(a.asks, r.URL)
		a.mu.Unlock()
		_, _ = w.Write([]byte(a.body))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

const twoSteps = `{"summary":[
	{"start":"2026-11-21T10:00:00.000Z","count":3,"fields":{"t":{"n":3,"min":1,"max":2.5,"mean":1.4999999999999998},"h":{"n":1,"min":9007199254740993,"max":9007199254740993,"mean":9007199254740992}}},
	{"start":"2026-11-21T11:00:00.000Z","count":2,"fields":{"t":{"n":2,"min":2,"max":4,"mean":3}}}]}`

func TestQueryPrintsSummaries(t *testing.T) {
	t.Parallel()
	a := &answering{body: twoSteps}
	base := a.serve(t)
	got := runBrim(t, nil, "query", "s", "--url", base, "--every", "1h", "--from", "2026-11-21T10:00:00Z", "--to", "2026-11-21T12:00:00Z")
	require.NoError(t, got.err)
	assert.Equal(t, `start                     count  h.min             h.mean            h.max             t.min  t.mean  t.max
2026-11-21T10:00:00.000Z  3      9007199254740993  9007199254740992  9007199254740993  1      1.5     2.5
2026-11-21T11:00:00.000Z  2      -                 -                 -                 2      3       4
`, got.stdout)
	assert.Equal(t, "/v1/sensors/s/summary", a.asks[0].Path)
	assert.Equal(t, url.Values{"every": {"1h"}, "from": {"2026-11-21T10:00:00.000Z"}, "to": {"2026-11-21T12:00:00.000Z"}}, a.asks[0].Query())

	got = runBrim(t, nil, "query", "s", "--url", base, "--every", "1h", "--fields", "t", "--output", "csv")
	require.NoError(t, got.err)
	assert.Equal(t, "sensorId,start,count,t.n,t.min,t.mean,t.max\ns,2026-11-21T10:00:00.000Z,3,3,1,1.4999999999999998,2.5\ns,2026-11-21T11:00:00.000Z,2,2,2,3,4\n", got.stdout)
}

// TestAMeanThatDoesNotExistIsNotZero has a sum that overflows a double.
func TestAMeanThatDoesNotExistIsNotZero(t *testing.T) {
	t.Parallel()
	a := &answering{body: `{"summary":[
		{"start":"2026-11-21T10:00:00.000Z","count":2,"fields":{"t":{"n":2,"min":1e308,"max":1.5e308,"mean":null}}},
		{"start":"2026-11-21T11:00:00.000Z","count":1,"fields":{"t":{"n":1,"min":1e308,"max":1e308,"mean":1e308}}}]}`}
	base := a.serve(t)
	got := runBrim(t, nil, "query", "s", "--url", base, "--every", "1h")
	require.NoError(t, got.err)
	assert.Equal(t, `start                     count  t.min  t.mean  t.max
2026-11-21T10:00:00.000Z  2      1e308  -       1.5e308
2026-11-21T11:00:00.000Z  1      1e308  1e308   1e308
`, got.stdout)
	got = runBrim(t, nil, "query", "s", "--url", base, "--every", "1h", "--output", "csv")
	require.NoError(t, got.err)
	assert.Equal(t, "sensorId,start,count,t.n,t.min,t.mean,t.max\ns,2026-11-21T10:00:00.000Z,2,2,1e308,,1.5e308\ns,2026-11-21T11:00:00.000Z,1,1,1e308,1e308,1e308\n", got.stdout)
	var page struct{ Summary []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(a.body), &page))
	d := newDrawing(summaryKind(), 80)
	for _, item := range page.Summary {
		r, err := summaryKind().decode(item, false)
		require.NoError(t, err)
		d.add(r)
	}
	assert.InDelta(t, 1e308, d.fields["t"].min, 0)
	assert.Equal(t, []float64{1e308}, d.fields["t"].values)
}

func TestASummaryIsDrawnWithTheBoundsOfItsReadings(t *testing.T) {
	t.Parallel()
	d := newDrawing(summaryKind(), 80)
	var page struct{ Summary []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(twoSteps), &page))
	table := &tablePrinter{w: new(strings.Builder), kind: summaryKind(), drawing: d}
	require.NoError(t, table.page(rowsOf(t, summaryKind(), page.Summary...)))
	var b strings.Builder
	require.NoError(t, d.write(&b, []string{"t"}))
	assert.Equal(t, "\ndrawn: the mean of each step; min and max: of the readings\nt  ▁█  min 1  max 4  last mean 3\n", b.String())
}

func TestMeansHaveTenDigits(t *testing.T) {
	t.Parallel()
	for mean, want := range map[string]string{
		"57.558333333333": "57.55833333", "2.9999999": "2.9999999", "1.4999999999999998": "1.5", "-0.0001": "-0.0001", "3.0": "3",
		"1.23456789012345e-9": "1.23456789e-09", "9007199254740993": "9007199254740993", `"x"`: `"x"`,
	} {
		assert.Equal(t, want, string(rounded(json.RawMessage(mean))), mean)
	}
}

func TestASummaryIsOfTheLastDayFromAStepOn(t *testing.T) {
	t.Parallel()
	a := &answering{body: `{"summary":[]}`}
	got := runBrim(t, nil, "query", "s", "--url", a.serve(t), "--every", "2h")
	require.NoError(t, got.err)
	q := a.asks[0].Query()
	from, err := time.Parse(time.RFC3339, q.Get("from"))
	require.NoError(t, err)
	to, err := time.Parse(time.RFC3339, q.Get("to"))
	require.NoError(t, err)
	const step = 2 * time.Hour
	assert.Zero(t, from.UnixMilli()%step.Milliseconds())
	assert.GreaterOrEqual(t, to.Sub(from), 12*step)
	assert.Less(t, to.Sub(from), 13*step)
	assert.Contains(t, got.stderr, "sensor \"s\" has no readings in the default stream from 20")
}

func TestQueryPrintsTheNewestReading(t *testing.T) {
	t.Parallel()
	a := &answering{body: `{"sensorId":"a/b","ts":"2026-11-21T10:00:00.000Z","fields":{"t":1.50}}`}
	base := a.serve(t)
	got := runBrim(t, nil, "query", "a/b", "--url", base, "--latest")
	require.NoError(t, got.err)
	assert.Equal(t, "ts                        t\n2026-11-21T10:00:00.000Z  1.50\n", got.stdout)
	assert.Equal(t, "/v1/sensors/a%2Fb/latest", a.asks[0].EscapedPath())
	for _, output := range []string{"json", "ndjson"} {
		got = runBrim(t, nil, "query", "a/b", "--url", base, "--latest", "--output", output)
		require.NoError(t, got.err)
		assert.Equal(t, a.body+"\n", got.stdout)
	}
}

// A register returns sensors page by page.
type register struct {
	newest []time.Time
}

func (s register) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("after"))
	var items []string
	for i := from; i < min(from+limit, len(s.newest)); i++ {
		items = append(items, fmt.Sprintf(`{"sensorId":"s-%d","newest":%q}`, i, s.newest[i].UTC().Format(time.RFC3339Nano)))
	}
	after := ""
	if from+limit < len(s.newest) {
		after = fmt.Sprintf(`,"after":"%d"`, from+limit)
	}
	_, _ = fmt.Fprintf(w, `{"sensors":[%s]%s}`, strings.Join(items, ","), after)
}

func TestQueryListsSensorsAndThoseThatAreSilent(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var all register
	for i := range 25_000 {
		age := time.Minute
		if i%1000 == 7 {
			age = time.Hour
		}
		all.newest = append(all.newest, now.Add(-age))
	}
	server := httptest.NewServer(all)
	t.Cleanup(server.Close)

	got := runBrim(t, nil, "query", "--sensors", "--url", server.URL, "--limit", "2")
	require.NoError(t, got.err)
	assert.Regexp(t, `^sensorId +newest +age\ns-0 +\S+Z +1m\d*s?\ns-1 +\S+Z +1m\d*s?\n$`, got.stdout)
	assert.Contains(t, got.stderr, "there are more than these 2 sensors; ")

	got = runBrim(t, nil, "query", "--sensors", "--url", server.URL, "--limit", "1")
	require.NoError(t, got.err)
	assert.Contains(t, got.stderr, "there are more sensors than this one; ")

	got = runBrim(t, nil, "query", "--silent-for", "10m", "--url", server.URL, "--output", "ndjson")
	require.NoError(t, got.err)
	assert.Equal(t, 25, strings.Count(got.stdout, "\n"), "all pages are read")
	assert.Contains(t, got.stdout, `"s-24007"`)
	assert.Equal(t, "25 of 25000 sensors are silent\n", got.stderr)
	assert.Equal(t, exitDone, got.code)

	got = runBrim(t, nil, "query", "--silent-for", "10m", "--url", server.URL, "--output", "csv", "--limit", "3")
	require.NoError(t, got.err)
	rows, err := csv.NewReader(strings.NewReader(got.stdout)).ReadAll()
	require.NoError(t, err)
	assert.Len(t, rows, 4)
	assert.Contains(t, got.stderr, "more than these 3 silent sensors")

	got = runBrim(t, nil, "query", "--silent-for", "2h", "--url", server.URL, "--output", "ndjson")
	require.NoError(t, got.err)
	assert.Empty(t, got.stdout, "what a script tests for")
	assert.Equal(t, "0 of 25000 sensors are silent\n", got.stderr)
}

// A late field first occurs in the last reading of several pages.
type lateField struct{ pages int }

func (l lateField) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, _ := strconv.Atoi(r.URL.Query().Get("after"))
	after := fmt.Sprintf(`,"after":"%d"`, page+1)
	reading := fmt.Sprintf(`{"sensorId":"s","ts":"2026-11-21T10:00:0%d.000Z","fields":{"t":%d,"say":"a \"b\",\n=c"}}`, page, page)
	if page == l.pages-1 {
		after, reading = "", `{"sensorId":"s","ts":"2026-11-21T10:01:00.000Z","fields":{"late":true},"tags":{"site":"north"}}`
	}
	_, _ = fmt.Fprintf(w, `{"readings":[%s]%s}`, reading, after)
}

func TestCSVHasAColumnForEveryFieldHoweverLateItOccurs(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(lateField{pages: 4})
	t.Cleanup(server.Close)
	got := runBrim(t, nil, "query", "s", "--url", server.URL, "--limit", "0", "--output", "csv")
	require.NoError(t, got.err)
	rows, err := csv.NewReader(strings.NewReader(got.stdout)).ReadAll()
	require.NoError(t, err)
	assert.Equal(t, [][]string{
		{"sensorId", "ts", "late", "say", "t", "tags.site"},
		{"s", "2026-11-21T10:00:00.000Z", "", "a \"b\",\n=c", "0", ""},
		{"s", "2026-11-21T10:00:01.000Z", "", "a \"b\",\n=c", "1", ""},
		{"s", "2026-11-21T10:00:02.000Z", "", "a \"b\",\n=c", "2", ""},
		{"s", "2026-11-21T10:01:00.000Z", "true", "", "", "north"},
	}, rows)
	got = runBrim(t, nil, "query", "s", "--url", server.URL, "--limit", "0", "--output", "csv", "--fields", "late,t")
	require.NoError(t, got.err)
	assert.True(t, strings.HasPrefix(got.stdout, "sensorId,ts,late,t\ns,2026-11-21T10:00:00.000Z,,0\n"), got.stdout)
}

func TestCSVOfSensorsHasFieldsAndTags(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"sensors":[{"sensorId":"a","newest":"2026-11-21T10:00:00.000Z","tags":{"site":"north"},"fields":["t"],"textFields":["h"]},`+
			`{"sensorId":"b","newest":"2026-11-21T10:00:00.000Z","tags":{"room":"1"},"fields":["t"]}]}`)
	}))
	t.Cleanup(server.Close)
	got := runBrim(t, nil, "query", "--sensors", "--url", server.URL, "--output", "csv")
	require.NoError(t, got.err)
	assert.Equal(t, "sensorId,newest,fields,tags.room,tags.site\na,2026-11-21T10:00:00.000Z,h t,,north\nb,2026-11-21T10:00:00.000Z,t,1,\n", got.stdout)
}

func TestCSVKeepsTheLineEndsInsideValues(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	c := &csvPrinter{w: &out, kind: readingsKind(), seen: map[string]bool{"a": true, "b": true, "c": true}}
	require.NoError(t, c.page(rowsOf(t, c.kind, json.RawMessage(`{"ts":"x","fields":{"a":"1\n2","b":"1\r2","c":"1\r\n2"}}`))))
	require.NoError(t, c.end())
	assert.Equal(t, "ts,a,b,c\nx,\"1\n2\",\"1\r2\",\"1\r\n2\"\n", out.String())
}

func TestQueryRefusesFlagsWithoutMeaning(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"s", "--latest", "--from", "-1h"}, "--from and --latest cannot be used together"},
		{[]string{"s", "--latest", "--every", "1h"}, "--every and --latest cannot be used together"},
		{[]string{"s", "--prefix", "x"}, "--prefix and a sensor id cannot be used together"},
		{[]string{"--sensors", "--every", "1h"}, "--every and --sensors cannot be used together"},
		{[]string{"--sensors", "s-1"}, "takes no sensor id with --sensors"},
		{[]string{"--silent-for", "soon"}, `--silent-for: "soon" is not a duration`},
		{[]string{"--silent-for", "0s"}, "not above 0"},
		{[]string{"s", "--every", "10us"}, "--every: "},
	} {
		got := runBrim(t, nil, append([]string{"query", "--url", "http://127.0.0.1:1"}, c.args...)...)
		assert.ErrorContains(t, got.err, c.want, "%v", c.args)
		assert.Equal(t, exitUsage, got.code, "%v", c.args)
	}
}

func TestTruncatedSummarySaysSo(t *testing.T) {
	t.Parallel()
	steps := strings.Repeat(`{"start":"2026-11-21T10:00:00.000Z","count":1,"fields":{}},`, 2)
	a := &answering{body: `{"summary":[` + steps + steps[:len(steps)-1] + `]}`}
	base := a.serve(t)
	for limit, want := range map[string]string{
		"2": "there are more than these 2 steps; --limit 0 prints all\n",
		"1": "there are more steps than this one; --limit 0 prints all\n",
		"4": "",
	} {
		got := runBrim(t, nil, "query", "s", "--url", base, "--every", "1h", "--limit", limit)
		require.NoError(t, got.err)
		assert.Equal(t, want, got.stderr)
	}
}

func TestQueryWarnsAboutUnknownFields(t *testing.T) {
	t.Parallel()
	readings := &answering{body: `{"readings":[{"sensorId":"s","ts":"2026-11-21T10:00:00.000Z","fields":{"t":1,"h":2},"tags":{"site":"north"}}]}`}
	steps := &answering{body: twoSteps}
	latest := &answering{body: `{"sensorId":"s","ts":"2026-11-21T10:00:00.000Z","fields":{"t":1}}`}
	none := &answering{body: `{"readings":[]}`}
	for _, c := range []struct {
		base, fields string
		args         []string
		want         string
	}{
		{readings.serve(t), "nope", nil, "no reading shown has a field \"nope\"; they have h, t\n"},
		{readings.serve(t), "nope,t,no", []string{"--output", "csv"}, "no reading shown has a field \"nope\" or \"no\"; they have h, t, tags.site\n"},
		{readings.serve(t), "h,tags.site", []string{"--output", "csv"}, ""},
		{steps.serve(t), "nope", []string{"--every", "1h"}, "no step shown has a field \"nope\"; they have h, t\n"},
		{steps.serve(t), "t.mean,h", []string{"--every", "1h"}, ""},
		{latest.serve(t), "nope", []string{"--latest"}, "no reading shown has a field \"nope\"; they have t\n"},
		{none.serve(t), "nope", nil, "sensor \"s\" has no readings in the default stream\n"},
	} {
		got := runBrim(t, nil, append([]string{"query", "s", "--url", c.base, "--fields", c.fields}, c.args...)...)
		require.NoError(t, got.err)
		assert.Equal(t, exitDone, got.code)
		assert.Equal(t, c.want, got.stderr, "%v", c.args)
	}
}

func TestSparklines(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	draw := func(columns, n int, every time.Duration, value func(i int) map[string]float64) string {
		d := newDrawing(readingsKind(), columns)
		for i := range n {
			values := make(map[string]json.RawMessage)
			for name, v := range value(i) {
				values[name] = json.RawMessage(strconv.FormatFloat(v, 'g', -1, 64))
			}
			d.add(row{at: begin.Add(time.Duration(i) * every), values: values})
		}
		var b strings.Builder
		require.NoError(t, d.write(&b, nil))
		return b.String()
	}
	rising := func(i int) map[string]float64 { return map[string]float64{"t": float64(i)} }
	assert.Equal(t, "\nt  ▁▂▃▄▅▆▇█  min 0  max 7  last 7\n", draw(80, 8, time.Hour, rising))
	assert.Equal(t, "\nt  ▅▅▅  min 5  max 5  last 5\n", draw(80, 3, time.Second, func(int) map[string]float64 { return map[string]float64{"t": 5} }))
	assert.Empty(t, draw(80, 1, time.Second, rising))
	gap := draw(80, 40, time.Second, func(i int) map[string]float64 {
		if i > 9 && i < 30 {
			return map[string]float64{"u": 1}
		}
		return map[string]float64{"t": float64(i), "u": 1}
	})
	assert.Contains(t, gap, "          ", "where nothing came there is nothing")
	for _, columns := range []int{20, 60, 100, 300} {
		for line := range strings.Lines(draw(columns, 20_000, 77*time.Millisecond, rising)) {
			assert.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), max(columns, 40))
		}
	}
}

// rowsOf decodes items without omissions.
func rowsOf(t *testing.T, k kind, items ...json.RawMessage) []row {
	t.Helper()
	out := make([]row, len(items))
	for i, item := range items {
		var err error
		out[i], err = k.decode(item, true)
		require.NoError(t, err)
	}
	return out
}

func FuzzPrinters(f *testing.F) {
	f.Add(`{"ts":"2026-11-21T10:00:00Z","fields":{"t":1}}`)
	f.Add(`{"ts":"x","fields":{"t":"a"},"tags":{"a":1}}`)
	f.Add(`{"start":"","count":1,"fields":{"t":{"n":null}}}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, item string) {
		if !json.Valid([]byte(item)) {
			return
		}
		for _, k := range []kind{readingsKind(), summaryKind(), sensorsKind(time.Now())} {
			one, err := k.decode(json.RawMessage(item), true)
			if err != nil {
				continue
			}
			drawn := &tablePrinter{w: new(strings.Builder), kind: k, drawing: newDrawing(k, 80)}
			table := &csvPrinter{w: new(strings.Builder), kind: k}
			for _, p := range []printer{table, drawn, &itemPrinter{w: new(strings.Builder)}} {
				if p.page([]row{one}) == nil {
					_ = p.end()
				}
			}
		}
	})
}
