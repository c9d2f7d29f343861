package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// queryOptions are the flags of `brim query`.
type queryOptions struct {
	sensor   string // empty: all sensors
	stream   string
	from, to string
	every    string // empty: readings, else their summary by steps
	latest   bool
	sensors  bool
	prefix   string
	tags     []string
	silent   string // age of the newest reading from which a sensor is printed; empty: all
	fields   []string
	unstored daemon.OnOff
	limit    int // 0: no limit
	output   *string
	flags    *pflag.FlagSet
}

// queryHelp is the long help.
const queryHelp = `Print a daemon's readings of a sensor, their summary, the newest reading, the
sensors themselves, or the sensors that stopped reporting.

Text is a table, and on a terminal a drawing of each numeric field under it.
CSV has a header and a column for every field that occurs, or for those of --fields.
An answer is kept in memory until it is complete: write millions of readings as
NDJSON, or with brim export. It contains what sensors sent: a spreadsheet may take a
value that begins with = + - or @ for a formula, so import it as text. Its columns
are sensorId, ts, the fields and then tags.NAME; CSV of brim export and of the HTTP API has ts, sensorId,
the tags and then the fields. Of sensors, the columns are sensorId, newest, fields
(names with a space between them) and then tags.NAME. Strings are quoted only where
necessary; those of brim export and of the HTTP API all are.
JSON and NDJSON are as the daemon returns them.

A sensor is silent if its newest reading is older than --silent-for. Finding
silent sensors is not a failure, the exit code is 0; in a script:

  silent=$(brim query --silent-for 10m --output ndjson) || exit
  test -z "$silent" || echo "some are silent"

This command removes nothing; brim delete does.`

// newQuery returns `brim query`, which asks a running daemon over HTTP:
//
//	flags ─▶ question ─▶ GET /v1/sensors… ─▶ a page ─▶ rows ─▶ printer ─▶ stdout
//	                          ▲                 │
//	                          └───── after ◀────┘
func newQuery(p *process) *cobra.Command {
	var o queryOptions
	cmd := &cobra.Command{
		Use:   "query SENSOR",
		Short: "Print readings, summaries, and which sensors there are",
		Long:  queryHelp,
		Example: "  brim query s-1\n" +
			"  brim query s-1 --from -1h --output csv\n" +
			"  brim query s-1 --from 2026-11-21T10:00:00Z --to 2026-11-21T11:00:00Z --stream machines\n" +
			"  brim query s-1 --every 1h\n" +
			"  brim query s-1 --latest\n" +
			"  brim query --sensors --prefix north/\n" +
			"  brim query --sensors --tag site=north\n" +
			"  brim query --silent-for 10m",
	}
	o.flags = cmd.Flags()
	o.flags.StringVar(&o.from, "from", "", "start `TIME` (inclusive): RFC 3339, a date, milliseconds since 1970, or back from now like -1h")
	o.flags.StringVar(&o.to, "to", "", "end `TIME` (exclusive)")
	o.flags.StringVar(&o.every, "every", "", "summary in steps of this `DURATION`; of the last day, unless --from says otherwise")
	o.flags.BoolVar(&o.latest, "latest", false, "the newest reading")
	o.flags.BoolVar(&o.sensors, "sensors", false, "the sensors, with the times of their newest readings, their tags and fields")
	o.flags.StringVar(&o.silent, "silent-for", "", "sensors whose newest reading is older than this `DURATION`")
	o.flags.StringVar(&o.prefix, "prefix", "", "sensors whose ids begin with this `TEXT`")
	tagFlag(o.flags, &o.tags)
	o.flags.StringSliceVar(&o.fields, "fields", nil, "`NAMES` of the fields to print, as columns in this order; empty: all")
	add := flagAdder(o.flags)
	add("limit", "1000", "N", "maximum number of readings, steps or sensors to print; 0: all, which is the default with --silent-for", config.Count(&o.limit, 0, math.MaxInt32))
	add("unstored", string(daemon.On), "on|off", "also search the journal, for readings that are acknowledged and not stored yet", config.Choice(&o.unstored, daemon.On, daemon.Off))
	o.flags.StringVar(&o.stream, "stream", "", "`NAME` of the stream; empty: the daemon's default stream")
	o.output = outputFlag(cmd, "text", "csv", "ndjson", "json")
	cmd.Args = o.arguments
	withRemote(cmd, p, func(ctx context.Context, r *remote, args []string) error {
		if len(args) == 1 {
			o.sensor = args[0]
		}
		q, err := o.question(time.Now())
		if err != nil {
			return config.Usage(err)
		}
		return o.run(ctx, p, r, q)
	})
	return cmd
}

// aboutAll reports whether the question is about all sensors.
func (o *queryOptions) aboutAll() bool { return o.sensors || o.silent != "" }

// arguments checks that there is a sensor, except where the question is about all.
func (o *queryOptions) arguments(cmd *cobra.Command, args []string) error {
	if !o.aboutAll() {
		return exactArg("a sensor id, or --sensors or --silent-for")(cmd, args)
	}
	if len(args) > 0 {
		return fmt.Errorf("%s takes no sensor id with --sensors or --silent-for, and was given %q; --prefix selects by the beginning of ids", cmd.CommandPath(), args[0])
	}
	return nil
}

// A question is a request to the daemon, and how to read the response.
type question struct {
	path     string
	query    url.Values // except limit and after
	kind     kind
	keep     func(row) bool // nil: all rows are printed
	limit    int            // rows to print; 0: all
	searched string         // message if there is no result
	missing  string         // daemons that could not be asked: only their stored readings are shown; empty: none
}

// question creates a question from the flags, and rejects flags that do not apply to it.
func (o *queryOptions) question(now time.Time) (*question, error) {
	q := &question{query: url.Values{}, limit: o.limit, path: "/v1/sensors/" + escapeSensor(o.sensor)}
	inStream := "the default stream"
	if o.stream != "" {
		q.query.Set("stream", o.stream)
		inStream = fmt.Sprintf("stream %q", o.stream)
	}
	if o.unstored == daemon.Off {
		q.query.Set("unstored", string(daemon.Off))
	}
	var err error
	var about string
	var allowed []string // flags that apply, of those that not all questions have
	switch {
	case o.aboutAll():
		about, allowed = "--sensors", []string{"sensors", "silent-for", "prefix", "tag"}
		if o.silent != "" {
			about = "--silent-for"
		}
		q.path, q.kind = "/v1/sensors", sensorsKind(now)
		q.searched = inStream + " has no sensors"
		if o.prefix != "" {
			q.query.Set("prefix", o.prefix)
			q.searched += fmt.Sprintf(" whose ids begin with %q", o.prefix)
		}
		if len(o.tags) > 0 {
			q.query["tag"] = o.tags
			q.searched += " with " + strings.Join(o.tags, " and ")
		}
		for _, text := range o.tags {
			if _, wrong := telemetry.ParseMatcher(text); wrong != nil {
				err = errors.Join(err, fmt.Errorf("--tag %q: %w", text, wrong))
			}
		}
		err = errors.Join(err, o.askSilent(q, now))
	case o.latest:
		about, allowed = "--latest", []string{"latest", "fields"}
		q.path, q.kind = q.path+"/latest", latestKind()
	case o.every != "":
		about, allowed = "--every", []string{"every", "from", "to", "fields"}
		q.path, q.kind = q.path+"/summary", summaryKind()
		err = o.askSummary(q, now)
	default:
		about, allowed = "a sensor id", []string{"from", "to", "fields"}
		q.path, q.kind = q.path+"/readings", readingsKind()
		err = o.setSpan(q.query, now)
	}
	for _, name := range []string{"from", "to", "every", "latest", "sensors", "silent-for", "prefix", "tag", "fields"} {
		if f := o.flags.Lookup(name); f.Changed && f.Value.String() != "false" && !slices.Contains(allowed, name) && err == nil {
			err = fmt.Errorf("--%s and %s cannot be used together; see brim query --help", name, about)
		}
	}
	if q.searched == "" {
		stored := ""
		if o.unstored == daemon.Off {
			stored = "stored "
		}
		q.searched = fmt.Sprintf("sensor %q has no %sreadings in %s%s", o.sensor, stored, inStream, spanText(q.query))
	}
	return q, err
}

// spanText describes the time range of a query; empty for all time.
func spanText(query url.Values) string {
	end := func(name string) string {
		if query.Get(name) == "" {
			return ""
		}
		return " " + name + " " + query.Get(name)
	}
	return end("from") + end("to")
}

// askSilent selects only silent sensors, if --silent-for is given.
func (o *queryOptions) askSilent(q *question, now time.Time) error {
	if o.silent == "" {
		return nil
	}
	age, err := config.ParseDuration(o.silent)
	if err == nil && age <= 0 {
		err = fmt.Errorf("%q is not above 0", o.silent)
	}
	if err != nil {
		return fmt.Errorf("--silent-for: %w", err)
	}
	q.keep = func(r row) bool { return r.at.Before(now.Add(-age)) }
	if !o.flags.Changed("limit") {
		q.limit = 0
	}
	return nil
}

func (o *queryOptions) askSummary(q *question, now time.Time) error {
	step, err := config.ParseDuration(o.every)
	if err == nil && step < time.Millisecond {
		err = fmt.Errorf("%q is shorter than a millisecond", o.every)
	}
	if err != nil {
		return fmt.Errorf("--every: %w", err)
	}
	q.query.Set("every", config.FormatDuration(step))
	end, err := config.ParseTime(cmp.Or(o.to, "now"), now)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	q.query.Set("to", telemetry.FormatMillis(end.UnixMilli()))
	if err := o.setSpan(q.query, now); err != nil {
		return err
	}
	if q.query.Get("from") == "" {
		// At a step boundary, so that the first row covers a whole step.
		begin := max(0, end.Add(-24*time.Hour).UnixMilli())
		q.query.Set("from", telemetry.FormatMillis(begin-begin%step.Milliseconds()))
	}
	return nil
}

// setSpan puts --from and --to into a query.
func (o *queryOptions) setSpan(query url.Values, now time.Time) error {
	for key, text := range map[string]string{"from": o.from, "to": o.to} {
		if text == "" {
			continue
		}
		at, err := config.ParseTime(text, now)
		if err != nil {
			return fmt.Errorf("--%s: %w", key, err)
		}
		query.Set(key, telemetry.FormatMillis(at.UnixMilli()))
	}
	return nil
}

// escapeSensor escapes a sensor as one segment of a path.
func escapeSensor(sensor string) string {
	escaped := url.PathEscape(sensor)
	if strings.Trim(escaped, ".") == "" { // "." and ".." have a meaning in a path
		escaped = strings.ReplaceAll(escaped, ".", "%2E")
	}
	return escaped
}

// pageSize is how many items are requested at once, each of some 100 bytes.
const pageSize = 10_000

// run prints page after page.
func (o *queryOptions) run(ctx context.Context, p *process, r *remote, q *question) error {
	seen := make(map[string]bool) // columns
	out := o.newPrinter(p, q.kind, seen)
	found, printed, cut := 0, 0, false
	for more := true; more; {
		if !q.kind.single && !q.kind.lines {
			size := pageSize
			if q.limit > 0 && q.keep == nil {
				size = min(size, q.limit-printed)
			}
			q.query.Set("limit", strconv.Itoa(size))
		}
		var items []json.RawMessage
		var after string
		err := persist(ctx, startingFor, isStarting, func() (err error) {
			items, after, err = fetchPage(ctx, r, q)
			return err
		})
		if err != nil {
			return err
		}
		found += len(items)
		rows := make([]row, 0, len(items))
		for _, item := range items {
			one, err := q.kind.decode(item, *o.output != "text")
			if err != nil {
				return fmt.Errorf("read the daemon's answer: %w", err)
			}
			if q.keep == nil || q.keep(one) {
				rows = append(rows, one)
			}
		}
		more = after != ""
		beyond := q.limit > 0 && len(rows) > q.limit-printed
		if beyond {
			rows = rows[:q.limit-printed]
		}
		for _, one := range rows {
			for name := range one.values {
				seen[name] = true
			}
		}
		if err := out.page(rows); err != nil {
			return fmt.Errorf("print %s: %w", q.kind.name, err)
		}
		printed += len(rows)
		if q.limit > 0 && printed >= q.limit {
			cut, more = more || beyond, false
		}
		q.query.Set("after", after)
	}
	if err := out.end(); err != nil {
		return fmt.Errorf("print %s: %w", q.kind.name, err)
	}
	switch {
	case cut:
		_, _ = fmt.Fprintln(p.stderr, q.moreThan(printed))
	case found == 0:
		_, _ = fmt.Fprintln(p.stderr, q.searched)
	case q.keep != nil:
		_, _ = fmt.Fprintf(p.stderr, "%d of %d sensors %s silent\n", printed, found, map[bool]string{true: "is", false: "are"}[printed == 1])
	}
	if q.missing != "" {
		_, _ = fmt.Fprintln(p.stderr, incompleteText(q.missing))
	}
	o.warnFields(p.stderr, q.kind, seen)
	return nil
}

// moreThan returns the message that there are more than the n printed items.
func (q *question) moreThan(n int) string {
	there, item := "there are", q.kind.item
	if q.keep != nil {
		there, item = "there may be", "silent "+item
	}
	if n == 1 {
		return fmt.Sprintf("%s more %ss than this one; --limit 0 prints all", there, item)
	}
	return fmt.Sprintf("%s more than these %d %ss; --limit 0 prints all", there, n, item)
}

// warnFields warns about names in --fields that no printed item has: a misspelled name would give
// an empty column, or no output at all.
func (o *queryOptions) warnFields(w io.Writer, k kind, seen map[string]bool) {
	var missing []string
	for _, name := range o.fields {
		if len(k.chosen(seen, []string{name})) == 1 && !seen[name] {
			missing = append(missing, strconv.Quote(name))
		}
	}
	if len(missing) == 0 || len(seen) == 0 {
		return
	}
	names := make(map[string]bool)
	for name := range seen {
		field, _ := k.split(name)
		names[printable(field)] = true
	}
	there := slices.Sorted(maps.Keys(names))
	const most = 20
	rest := ""
	if n := len(there) - most; n > 0 {
		there, rest = there[:most], fmt.Sprintf(" and %d more", n)
	}
	_, _ = fmt.Fprintf(w, "no %s shown has a field %s; they have %s%s\n", k.item, strings.Join(missing, " or "), strings.Join(there, ", "), rest)
}

// maxAnswer bounds what is read of an answer. A page of readings with 256 long fields
// each would be larger; the daemon refuses to return it.
const maxAnswer = 1 << 30

// The forms in which a daemon can be asked to answer.
const (
	asJSON  = "application/json"
	asLines = "application/x-ndjson"
)

// startingFor is how long to wait for a daemon that is starting.
const startingFor = 10 * time.Second

func isStarting(_ int, err error) bool {
	var answer *answerError
	return errors.As(err, &answer) && answer.code == "starting"
}

// fetchPage asks for one page; after is where the next one begins, empty if this is
// the last.
func fetchPage(ctx context.Context, r *remote, q *question) (items []json.RawMessage, after string, err error) {
	// A summary as JSON has a size limit, as NDJSON it has none.
	accept := asJSON
	if q.kind.lines {
		accept = asLines
	}
	resp, err := r.accepted(ctx, http.MethodGet, q.path+"?"+q.query.Encode(), accept)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	q.missing = cmp.Or(resp.Header.Get(telemetry.IncompleteHeader), q.missing)
	decoder := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case q.kind.single:
		items = make([]json.RawMessage, 1)
		err = decoder.Decode(&items[0])
	case q.kind.lines && strings.HasPrefix(resp.Header.Get("Content-Type"), asLines):
		items, err = readLines(decoder)
	default:
		var page map[string]json.RawMessage
		if err = decoder.Decode(&page); err != nil {
			break
		}
		if page[q.kind.name] == nil {
			return nil, "", fmt.Errorf("the daemon's answer has no %s; is %s the --http-addr of a daemon?", q.kind.name, config.MaskUser(r.base))
		}
		err = json.Unmarshal(page[q.kind.name], &items)
		if next, ok := page["after"]; ok && err == nil {
			err = json.Unmarshal(next, &after)
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the daemon's answer: %w", err)
	}
	return items, after, nil
}

// readLines reads one item per line. If the daemon could not finish its response, the last line
// says why.
func readLines(lines *json.Decoder) (items []json.RawMessage, err error) {
	for {
		var item json.RawMessage
		if err := lines.Decode(&item); errors.Is(err, io.EOF) {
			return items, nil
		} else if err != nil {
			return nil, err
		}
		var broken struct {
			Error *struct{ Code, Message string }
		}
		if bytes.HasPrefix(item, []byte(`{"error"`)) && json.Unmarshal(item, &broken) == nil && broken.Error != nil {
			return nil, fmt.Errorf("the daemon stopped in the middle of it: %s (%s)", broken.Error.Message, broken.Error.Code)
		}
		items = append(items, item)
	}
}

// A kind describes the items of an answer, and how to decode them.
type kind struct {
	name   string   // of the array in the answer
	item   string   // singular name of an item
	single bool     // the answer is one item itself
	lines  bool     // it is asked for as NDJSON; what is neither comes page by page
	head   []string // columns that every row has
	// decode makes a row. whole says that nothing may be omitted, as in CSV.
	decode func(item json.RawMessage, whole bool) (row, error)
	legend string // of the drawing; empty: none
	last   string // label of the last value of the drawing; empty: there is no drawing
}

// A row is a decoded item.
type row struct {
	item   json.RawMessage // as the daemon returned it
	at     time.Time
	head   []string
	values map[string]json.RawMessage // by column
}

// split splits the column of a summary, like t.mean, into the field and its statistic.
func (k kind) split(column string) (field, statistic string) {
	if i := strings.LastIndexByte(column, '.'); i > 0 && k.item == "step" {
		return column[:i], column[i+1:]
	}
	return column, ""
}

// compare compares columns: by field, and then a summary's statistics in the order n, min, mean, max.
func (k kind) compare(a, b string) int {
	order := []string{"n", "min", "mean", "max"}
	fieldA, statisticA := k.split(a)
	fieldB, statisticB := k.split(b)
	return cmp.Or(cmp.Compare(fieldA, fieldB), cmp.Compare(slices.Index(order, statisticA), slices.Index(order, statisticB)), cmp.Compare(a, b))
}

// chosen returns the columns that occur, sorted; or, if columns were requested, those in the
// requested order. A field's name selects all its columns in a summary.
func (k kind) chosen(names map[string]bool, named []string) []string {
	sorted := slices.SortedFunc(maps.Keys(names), k.compare)
	if len(named) == 0 {
		return sorted
	}
	out := make([]string, 0, len(named))
	for _, name := range named {
		of := slices.DeleteFunc(slices.Clone(sorted), func(s string) bool {
			field, _ := k.split(s)
			return s != name && field != name
		})
		if len(of) == 0 {
			of = []string{name}
		}
		out = append(out, of...)
	}
	return out
}

// readingsKind has a column for each field; only CSV includes tags. Field names have no dot, so
// they differ from those of tags.
func readingsKind() kind {
	return kind{name: "readings", item: "reading", head: []string{"ts"}, last: "last", decode: func(item json.RawMessage, whole bool) (row, error) {
		var r struct {
			TS           string
			Fields, Tags map[string]json.RawMessage
		}
		if err := json.Unmarshal(item, &r); err != nil {
			return row{}, err
		}
		out := row{item: item, head: []string{r.TS}, values: r.Fields}
		out.at, _ = time.Parse(time.RFC3339Nano, r.TS) // only needed for a drawing
		if whole && len(r.Tags) > 0 {
			out.values = maps.Clone(r.Fields)
			if out.values == nil {
				out.values = make(map[string]json.RawMessage)
			}
			for name, value := range r.Tags {
				out.values["tags."+name] = value
			}
		}
		return out, nil
	}}
}

func latestKind() kind {
	k := readingsKind()
	k.single = true
	return k
}

// summaryKind has columns such as t.min for the statistics of field t.
func summaryKind() kind {
	return kind{
		name: "summary", item: "step", lines: true, head: []string{"start", "count"}, last: "last mean",
		legend: "drawn: the mean of each step; min and max: of the readings", decode: func(item json.RawMessage, whole bool) (row, error) {
			var s struct {
				Start  string
				Count  int64
				Fields map[string]map[string]json.RawMessage
			}
			if err := json.Unmarshal(item, &s); err != nil {
				return row{}, err
			}
			out := row{item: item, head: []string{s.Start, strconv.FormatInt(s.Count, 10)}, values: make(map[string]json.RawMessage, 4*len(s.Fields))}
			out.at, _ = time.Parse(time.RFC3339Nano, s.Start) // only needed for a drawing
			for field, statistics := range s.Fields {
				for name, value := range statistics {
					switch {
					case string(value) == "null": // a mean whose sum does not fit a double
						continue
					case whole:
					case name == "n": // mostly it is the step's count
						continue
					case name == "mean":
						value = rounded(value)
					}
					out.values[field+"."+name] = value
				}
			}
			return out, nil
		},
	}
}

// sensorsKind also shows how old the newest reading is, except in CSV.
func sensorsKind(now time.Time) kind {
	return kind{name: "sensors", item: "sensor", head: []string{"sensorId", "newest"}, decode: func(item json.RawMessage, whole bool) (row, error) {
		var s struct {
			SensorID   string
			Newest     time.Time
			Tags       map[string]string
			Fields     []string
			TextFields []string
		}
		if err := json.Unmarshal(item, &s); err != nil {
			return row{}, err
		}
		out := row{
			item: item, at: s.Newest, head: []string{s.SensorID, s.Newest.UTC().Format("2006-01-02T15:04:05.000Z")},
			values: make(map[string]json.RawMessage),
		}
		if !whole {
			out.values["age"] = json.RawMessage(formatAge(now.Sub(s.Newest)))
		}
		for name, value := range s.Tags {
			out.values["tags."+name], _ = json.Marshal(value) // a string always can be
		}
		if fields := slices.Concat(s.Fields, s.TextFields); len(fields) > 0 {
			slices.Sort(fields)
			out.values["fields"], _ = json.Marshal(strings.Join(slices.Compact(fields), " ")) // likewise
		}
		return out, nil
	}}
}

// formatAge is a duration in whole units that matter; a reading may be ahead of the
// clock.
func formatAge(d time.Duration) string {
	unit := time.Second
	switch {
	case d < 0:
		return "ahead"
	case d >= 48*time.Hour:
		unit = time.Hour
	case d >= time.Hour:
		unit = time.Minute
	}
	return config.FormatDuration(d.Truncate(unit))
}

// rounded returns a mean with ten significant digits, or more if its integer part has
// more. Further digits are artefacts of the division.
func rounded(raw json.RawMessage) json.RawMessage {
	var v float64
	if json.Unmarshal(raw, &v) != nil || math.Abs(v) >= 1e10 {
		return raw
	}
	return strconv.AppendFloat(nil, v, 'g', 10, 64)
}

// A printer writes rows, page by page, in one of the forms of --output. After
// the last page comes end, unless something went wrong.
type printer interface {
	page(rows []row) error
	end() error
}

// newPrinter returns the printer for --output. By the end, seen has the columns of the rows that
// were printed.
func (o *queryOptions) newPrinter(p *process, k kind, seen map[string]bool) printer {
	terminal := config.IsTerminal(p.stdout)
	switch {
	case *o.output == "csv":
		return &csvPrinter{w: p.stdout, kind: k, sensor: o.sensor, named: o.fields, seen: seen, terminal: terminal}
	case *o.output == "ndjson", *o.output == "json" && k.single:
		return &itemPrinter{w: p.stdout, after: "\n"}
	case *o.output == "json":
		return &itemPrinter{w: p.stdout, next: `{"` + k.name + `":[`, between: ",\n", last: "]}\n"}
	}
	t := &tablePrinter{w: p.stdout, kind: k, named: o.fields}
	if terminal && k.last != "" && !k.single {
		t.drawing = newDrawing(k, columnsOf(p.stdout))
	}
	return t
}

// itemPrinter writes items as they came: one a line, or as one object such as {"readings": […]}.
type itemPrinter struct {
	w              io.Writer
	next           string // to be written before the next item, or the end
	between, after string
	last           string
}

func (i *itemPrinter) page(rows []row) error {
	for _, r := range rows {
		if _, err := fmt.Fprintf(i.w, "%s%s%s", i.next, r.item, i.after); err != nil {
			return err
		}
		i.next = i.between
	}
	return nil
}

func (i *itemPrinter) end() error {
	_, err := io.WriteString(i.w, strings.TrimPrefix(i.next, i.between)+i.last)
	return err
}

// tablePrinter writes a table a page, with a column for each field in it, and
// repeats the head only where the columns change.
type tablePrinter struct {
	w       io.Writer
	kind    kind
	named   []string // columns; none: those that occur
	drawing *drawing // nil: none
	columns []string
}

// absent is shown where a row has no value of the column.
const absent = "-"

func (t *tablePrinter) page(rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	names := make(map[string]bool)
	for _, r := range rows {
		for name := range r.values {
			names[name] = true
		}
	}
	var head []string
	if columns := t.kind.chosen(names, t.named); t.columns == nil || !slices.Equal(columns, t.columns) {
		t.columns = columns
		head = slices.Concat(t.kind.head, columns)
	}
	var table [][]string
	for _, r := range rows {
		cells := slices.Clone(r.head)
		for _, name := range t.columns {
			value := absent
			if raw, ok := r.values[name]; ok {
				value = plainText(raw)
			}
			cells = append(cells, value)
		}
		table = append(table, cells)
		if t.drawing != nil {
			t.drawing.add(r)
		}
	}
	_, err := io.WriteString(t.w, tableText(head, table))
	return err
}

func (t *tablePrinter) end() error {
	if t.drawing == nil {
		return nil
	}
	return t.drawing.write(t.w, t.named)
}

// plainText returns a value that is safe for a terminal: JSON does not escape all characters that
// control a terminal or reverse the text direction.
func plainText(raw json.RawMessage) string {
	var text string
	if shown := string(raw); printable(shown) == shown || json.Unmarshal(raw, &text) != nil {
		return shown
	}
	return strconv.QuoteToGraphic(text)
}

// printable quotes a name that senders chose if it could control a terminal.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return strconv.QuoteToGraphic(name)
	}
	return name
}

// csvPrinter writes a header, and one row per item. All columns are known only after the last item
// was read, and a field that occurs late must not be omitted, so items are kept until then.
type csvPrinter struct {
	w        io.Writer
	kind     kind
	sensor   string          // of all rows; empty: each row names its own
	named    []string        // columns; none: those that occur
	seen     map[string]bool // columns that occur
	terminal bool            // names that senders chose must not control it

	items []json.RawMessage
}

func (c *csvPrinter) page(rows []row) error {
	for _, r := range rows {
		c.items = append(c.items, r.item)
	}
	return nil
}

func (c *csvPrinter) end() error {
	out, columns := csv.NewWriter(c.w), c.kind.chosen(c.seen, c.named)
	if err := c.write(out, "sensorId", slices.Concat(c.kind.head, columns)); err != nil {
		return err
	}
	for _, item := range c.items {
		r, err := c.kind.decode(item, true)
		if err != nil {
			return err
		}
		cells := slices.Clone(r.head)
		for _, name := range columns {
			cell := string(r.values[name])
			if strings.HasPrefix(cell, `"`) { // a string goes without its JSON
				if err := json.Unmarshal(r.values[name], &cell); err != nil {
					return err
				}
			}
			cells = append(cells, cell)
		}
		if err := c.write(out, c.sensor, cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// write writes a row, after the sensor if the query names one.
func (c *csvPrinter) write(out *csv.Writer, sensor string, cells []string) error {
	if c.sensor != "" {
		cells = slices.Insert(cells, 0, sensor)
	}
	if c.terminal {
		for i := range cells {
			cells[i] = printable(cells[i])
		}
	}
	return out.Write(cells)
}

// A drawing has a line for each numeric field: its values over time, as a sparkline, and the
// bounds of the readings.
type drawing struct {
	kind    kind
	columns int // of the terminal
	begin   time.Time
	end     time.Time
	items   int
	fields  map[string]*fieldSeries
}

// A fieldSeries has the values of one field.
type fieldSeries struct {
	at       []time.Time
	values   []float64 // that are drawn
	min, max float64   // of the readings
}

const maxDrawn = 120 // characters

func newDrawing(k kind, columns int) *drawing {
	return &drawing{kind: k, columns: columns, fields: make(map[string]*fieldSeries)}
}

// add takes a row; rows come in the order of time. Of a summary the means are drawn.
func (d *drawing) add(r row) {
	if d.items++; d.items == 1 {
		d.begin = r.at
	}
	d.end = r.at
	for column, raw := range r.values {
		var v float64
		if raw[0] == '"' || json.Unmarshal(raw, &v) != nil {
			continue // it is no number
		}
		field, statistic := d.kind.split(column)
		c := d.fields[field]
		if c == nil {
			c = &fieldSeries{min: v, max: v}
			d.fields[field] = c
		}
		c.min, c.max = min(c.min, v), max(c.max, v)
		if statistic == "" || statistic == "mean" {
			c.at, c.values = append(c.at, r.at), append(c.values, v)
		}
	}
}

// write draws the fields that are named, or all.
func (d *drawing) write(w io.Writer, named []string) error {
	names := slices.Sorted(maps.Keys(d.fields))
	if len(named) > 0 {
		names = slices.Clone(named)
	}
	names = slices.DeleteFunc(names, func(s string) bool { return d.fields[s] == nil || len(d.fields[s].values) == 0 })
	if d.items < 2 || len(names) == 0 { // a single value is not drawn
		return nil
	}
	longest, room, bounds := 0, 0, make([]string, len(names))
	for i, name := range names {
		c := d.fields[name]
		bounds[i] = fmt.Sprintf("min %s  max %s  %s %s", short(c.min), short(c.max), d.kind.last, short(c.values[len(c.values)-1]))
		longest, room = max(longest, len([]rune(printable(name)))), max(room, len(bounds[i]))
	}
	width := min(d.columns-longest-room-4, maxDrawn, d.items)
	var text strings.Builder
	text.WriteString("\n")
	if d.kind.legend != "" {
		text.WriteString(d.kind.legend + "\n")
	}
	for i, name := range names {
		_, _ = fmt.Fprintf(&text, "%-*s  ", longest, printable(name))
		if width >= 8 || width == d.items { // anything narrower would show nothing
			text.WriteString(d.sparkline(d.fields[name], width) + "  ")
		}
		text.WriteString(bounds[i] + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// sparkline returns one character for each of width equal time spans; a space if a span has no
// values.
func (d *drawing) sparkline(c *fieldSeries, width int) string {
	levels, span := []rune("▁▂▃▄▅▆▇█"), max(d.end.Sub(d.begin), 1)
	sums, ns := make([]float64, width), make([]float64, width)
	for i, v := range c.values {
		at := min(int(float64(width)*float64(c.at[i].Sub(d.begin))/float64(span)), width-1)
		sums[max(at, 0)] += v
		ns[max(at, 0)]++
	}
	low, high := slices.Min(c.values), slices.Max(c.values)
	out := make([]rune, width)
	for i := range out {
		if out[i] = ' '; ns[i] > 0 {
			part := (sums[i]/ns[i] - low) / (high - low)
			if math.IsNaN(part) || math.IsInf(part, 0) { // all values are alike
				part = 0.5
			}
			out[i] = levels[min(int(part*float64(len(levels))), len(levels)-1)]
		}
	}
	return string(out)
}

// short formats a number compactly.
func short(v float64) string {
	if exact := strconv.FormatFloat(v, 'f', -1, 64); len(exact) <= 12 {
		return exact
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
