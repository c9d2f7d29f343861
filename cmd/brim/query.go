package main

import (
	"bytes"
	"cmp"
	"context"
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
CSV has a header and a column for every field that occurs; an answer is therefore
kept in a temporary file until all columns are known, unless --fields names them.
It contains what sensors sent: a spreadsheet may take a value that begins with
= + - or @ for a formula, so import it as text. Its columns are sensorId, ts, the
fields and then tags.NAME; CSV of brim export and of the HTTP API has ts, sensorId,
the tags and then the fields. Of sensors, the columns are sensorId, newest, fields
(names with a space between them) and then tags.NAME. Lines end in CR LF and strings
are quoted only where necessary; those of brim export and of the HTTP API end in LF,
and all strings are quoted.
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
	o.flags.SortFlags = false
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
	remote := remoteFlags(o.flags, p)
	cmd.Args = o.arguments
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			o.sensor = args[0]
		}
		q, err := o.question(time.Now())
		if err != nil {
			return config.Usage(err)
		}
		r, err := remote()
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), p, r, q)
	}
	return cmd
}

// aboutAll reports whether the question is about all sensors.
func (o *queryOptions) aboutAll() bool { return o.sensors || o.silent != "" }

// arguments checks that there is a sensor, except where the question is about all.
func (o *queryOptions) arguments(cmd *cobra.Command, args []string) error {
	if !o.aboutAll() {
		return exactArg("a sensor id")(cmd, args)
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
	out, closeOut := o.newPrinter(p, q.kind, seen)
	defer closeOut()
	found, printed, cut := 0, 0, false
	for more := true; more; {
		if q.kind.paged {
			size := pageSize
			if q.limit > 0 && q.keep == nil {
				size = min(size, q.limit-printed)
			}
			q.query.Set("limit", strconv.Itoa(size))
		}
		items, after, err := fetchPage(ctx, r, q)
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
	var resp *http.Response
	err = persist(ctx, startingFor, isStarting, func() (err error) {
		resp, err = r.accepted(ctx, http.MethodGet, q.path+"?"+q.query.Encode(), map[string]string{"Accept": accept})
		return err
	})
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
