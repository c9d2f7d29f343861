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
)

// queryOptions are the flags of `brim query`.
type queryOptions struct {
	base     string // URL of the daemon
	sensor   string // empty: about all sensors
	stream   string
	from, to string
	every    string // empty: readings, else their summary by steps
	latest   bool
	sensors  bool
	prefix   string
	silent   string // how long nothing came from sensors that are printed; empty: all
	fields   []string
	unstored daemon.SwitchPosition
	limit    int // 0: no limit
	limited  bool
	output   *string
	caller   *caller
	client   *http.Client
}

const localDaemon = "http://127.0.0.1:8430"

// queryHelp says what the short help cannot.
const queryHelp = `Print what a daemon has of its sensors: readings, their summaries, the newest
reading, the sensors themselves, and those that have fallen silent.

Text is a table, and on a terminal a drawing of each numeric field under it.
CSV has a header and a column for every field that occurs; an answer of several
pages is therefore kept in a temporary file until all columns are known, unless
--fields names them. It holds what sensors sent: a spreadsheet may take a value
that begins with = + - or @ for a formula, so import it as text. JSON and NDJSON
are as the daemon gives them.

A sensor is silent if the time of its newest reading lies further back than
--silent-for. There being any is no failure, the exit code is 0; in a script:

  silent=$(brim query --silent-for 10m --output ndjson) || exit
  test -z "$silent" || echo "some are silent"

Nothing is removed by this command; DELETE /v1/sensors/SENSOR does that.`

// newQuery returns `brim query`, which asks a running daemon over HTTP:
//
//	flags ─▶ question ─▶ GET /v1/sensors… ─▶ a page ─▶ printer ─▶ stdout
//	                          ▲                 │
//	                          └───── after ◀────┘
func newQuery(p *process) *cobra.Command {
	o := queryOptions{limit: 1000, unstored: daemon.On}
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
			"  brim query --silent-for 10m",
	}
	caller := o.addFlags(cmd, p)
	cmd.Args = o.arguments
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			o.sensor = args[0]
		}
		o.limited = cmd.Flags().Changed("limit")
		q, err := o.question(cmd.Flags(), time.Now())
		if err != nil {
			return config.Usage(err)
		}
		if o.caller, err = caller(p); err != nil {
			return err
		}
		o.client = o.caller.client(askTimeout)
		return o.run(cmd.Context(), p, q)
	}
	return cmd
}

func (o *queryOptions) addFlags(cmd *cobra.Command, p *process) func(*process) (*caller, error) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.from, "from", "", "first `TIME`: RFC 3339, a date, milliseconds since 1970, or back from now like -1h")
	flags.StringVar(&o.to, "to", "", "end `TIME`, itself not included")
	flags.StringVar(&o.every, "every", "", "summary by steps of this `DURATION`; of the last day, unless --from says more")
	flags.BoolVar(&o.latest, "latest", false, "the newest reading")
	flags.BoolVar(&o.sensors, "sensors", false, "the sensors there are, with the times of their newest readings")
	flags.StringVar(&o.silent, "silent-for", "", "sensors whose newest reading is older than this `DURATION`")
	flags.StringVar(&o.prefix, "prefix", "", "sensors whose ids begin with this `TEXT`")
	flags.StringSliceVar(&o.fields, "fields", nil, "`NAMES` of the fields to print, as columns in this order; empty: all")
	limit := "1000"
	flags.Var(&flagText{text: &limit, kind: "N", set: func(s string) error { limit = s; return config.Count(&o.limit, 0, math.MaxInt32)(s) }}, "limit", "readings, steps or sensors to print; 0: all, and so it is of those that are silent")
	unstored := string(o.unstored)
	flags.Var(&flagText{text: &unstored, kind: "on|off", set: keep(&unstored, config.Choice(&o.unstored, daemon.On, daemon.Off))}, "unstored", "also search the journal, for readings that are acknowledged and not stored yet")
	flags.StringVar(&o.stream, "stream", "", "`NAME` of the stream; empty: the daemon's default stream")
	o.output = outputFlag(cmd, "text", "csv", "ndjson", "json")
	flags.StringVar(&o.base, "url", daemonURL(p), "`URL` of the daemon ("+daemon.EnvURL+")")
	return clientFlags(flags)
}

// askTimeout is longer than a daemon works on one page.
const askTimeout = time.Minute

// aboutAll reports whether the question is about all sensors.
func (o *queryOptions) aboutAll() bool { return o.sensors || o.silent != "" }

// arguments wants a sensor, except where the question is about all.
func (o *queryOptions) arguments(cmd *cobra.Command, args []string) error {
	if o.aboutAll() && len(args) > 0 {
		return fmt.Errorf("%s takes no sensor id with --sensors or --silent-for, and was given %q; --prefix names those that begin alike", cmd.CommandPath(), args[0])
	}
	if !o.aboutAll() {
		return exactly("a sensor id")(cmd, args)
	}
	return nil
}

// daemonURL is where commands ask a daemon, unless a flag says otherwise.
func daemonURL(p *process) string {
	if v := config.LookupEnv(p.env, daemon.EnvURL); v != "" {
		return v
	}
	return localDaemon
}

// A question is what to ask the daemon, and how its answer is to be read.
type question struct {
	address string     // without what stands behind the question mark
	query   url.Values // but for limit and after
	kind    kind
	keep    func(sensor) bool // nil: all items are printed
	limit   int               // items to print; 0: all
	none    string            // what to say where there are none
}

// question makes one of the flags, and refuses flags that say nothing in it.
func (o *queryOptions) question(flags *pflag.FlagSet, now time.Time) (*question, error) {
	q := &question{query: url.Values{}, limit: o.limit}
	if o.stream != "" {
		q.query.Set("stream", o.stream)
	}
	if o.unstored == daemon.Off {
		q.query.Set("unstored", string(daemon.Off))
	}
	if base, err := url.Parse(o.base); err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("--url: %q is not the URL of a daemon, like %s", config.MaskUser(o.base), localDaemon)
	}
	q.address = strings.TrimSuffix(o.base, "/") + "/v1/sensors"
	var err error
	var about string
	var allowed []string // of the flags that not all questions have
	switch {
	case o.aboutAll():
		about, allowed = "sensors", []string{"sensors", "silent-for", "prefix"}
		err = o.askSensors(q, now)
	case o.latest:
		about, allowed = "the newest reading", []string{"latest", "fields"}
		q.kind, q.address = latestKind(), q.address+"/"+escapeSensor(o.sensor)+"/latest"
	case o.every != "":
		about, allowed = "a summary", []string{"every", "from", "to", "fields"}
		err = o.askSummary(q, now)
	default:
		about, allowed = "readings", []string{"from", "to", "fields"}
		q.kind, q.address = readingsKind(), q.address+"/"+escapeSensor(o.sensor)+"/readings"
		q.none = fmt.Sprintf("sensor %q has no stored readings in this range", o.sensor)
		err = o.setSpan(q.query, now)
	}
	for _, name := range []string{"from", "to", "every", "latest", "sensors", "silent-for", "prefix", "fields"} {
		if f := flags.Lookup(name); f.Changed && f.Value.String() != "false" && !slices.Contains(allowed, name) && err == nil {
			err = fmt.Errorf("--%s has no meaning where %s is asked for; leave it out, or see brim query --help", name, about)
		}
	}
	return q, err
}

func (o *queryOptions) askSensors(q *question, now time.Time) error {
	q.kind, q.none = sensorsKind(now), "there are no sensors"
	if o.prefix != "" {
		q.query.Set("prefix", o.prefix)
		q.none = fmt.Sprintf("there are no sensors whose ids begin with %q", o.prefix)
	}
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
	before := now.Add(-age)
	q.keep = func(s sensor) bool { return s.Newest.Before(before) }
	if !o.limited {
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
	q.kind, q.address = summaryKind(), q.address+"/"+escapeSensor(o.sensor)+"/summary"
	q.none = fmt.Sprintf("sensor %q has no readings in this range", o.sensor)
	q.query.Set("every", config.FormatDuration(step))
	if err := o.setSpan(q.query, now); err != nil {
		return err
	}
	end := now.UnixMilli()
	if text := q.query.Get("to"); text != "" {
		end, _ = strconv.ParseInt(text, 10, 64) // we wrote it
	}
	q.query.Set("to", strconv.FormatInt(end, 10))
	if q.query.Get("from") == "" {
		// On a step's boundary, so that the first row is of a whole step.
		begin := max(0, end-(24*time.Hour).Milliseconds())
		q.query.Set("from", strconv.FormatInt(begin-begin%step.Milliseconds(), 10))
	}
	return nil
}

// setSpan puts --from and --to into a query, in milliseconds.
func (o *queryOptions) setSpan(query url.Values, now time.Time) error {
	for _, one := range []struct{ key, text string }{{"from", o.from}, {"to", o.to}} {
		if one.text == "" {
			continue
		}
		at, err := config.ParseTime(one.text, now)
		if err != nil {
			return fmt.Errorf("--%s %q: %w", one.key, one.text, err)
		}
		query.Set(one.key, strconv.FormatInt(at.UnixMilli(), 10))
	}
	return nil
}

// escapeSensor is the sensor as one step of a path.
func escapeSensor(sensor string) string {
	escaped := url.PathEscape(sensor)
	if strings.Trim(escaped, ".") == "" { // would be taken for a step in the path
		escaped = strings.ReplaceAll(escaped, ".", "%2E")
	}
	return escaped
}

// pageSize is how many items are asked for at once; at some 100 bytes each an
// answer comes at once, and takes at most a megabyte.
const pageSize = 10_000

// run prints page after page.
func (o *queryOptions) run(ctx context.Context, p *process, q *question) error {
	out := o.newPrinter(p, q.kind)
	defer out.close()
	seen, printed := 0, 0
	fields := askedFields{asked: o.fields, whole: *o.output != "text", seen: make(map[string]bool)}
	for {
		size := pageSize
		if q.limit > 0 && q.keep == nil {
			size = min(size, q.limit-printed)
		}
		if q.kind.paged {
			q.query.Set("limit", strconv.Itoa(size))
		}
		items, after, err := o.fetch(ctx, q)
		if err != nil {
			return err
		}
		seen += len(items)
		if items, err = q.kept(items); err != nil {
			return err
		}
		more := after != ""
		if q.limit > 0 && len(items) > q.limit-printed {
			items, more = items[:q.limit-printed], true
		}
		if err := out.page(items); err != nil {
			return fmt.Errorf("print %s: %w", q.kind.name, err)
		}
		if err := fields.look(q.kind, items); err != nil {
			return err
		}
		printed += len(items)
		if !more || q.limit > 0 && printed >= q.limit {
			if err := out.end(); err != nil {
				return fmt.Errorf("print %s: %w", q.kind.name, err)
			}
			return errors.Join(q.tell(p.stderr, seen, printed, more), fields.warn(p.stderr, q.kind))
		}
		q.query.Set("after", after)
	}
}

// tell says what the output does not show.
func (q *question) tell(w io.Writer, seen, printed int, more bool) error {
	var note string
	switch {
	case more && q.keep == nil:
		note = "there are " + moreThan(printed, q.kind.item) + "; --limit 0 prints all"
	case more:
		note = "there may be " + moreThan(printed, "silent sensor") + "; --limit 0 prints all"
	case seen == 0:
		note = q.none
	case q.keep != nil:
		are := "are"
		if printed == 1 {
			are = "is"
		}
		note = fmt.Sprintf("%d of %d sensors %s silent", printed, seen, are)
	}
	if note == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, note)
	return err
}

// moreThan says that there is more of an item than n that were printed.
func moreThan(n int, item string) string {
	if n == 1 {
		return "more " + item + "s than this one"
	}
	return fmt.Sprintf("more than these %d %ss", n, item)
}

// maxAnswer bounds what is read of an answer: a page of readings with 256 long
// fields each would be larger, and is told to be asked for in smaller pages.
const maxAnswer = 1 << 30

// fetch asks for one page; after is where the next one begins, empty if this is
// the last.
func (o *queryOptions) fetch(ctx context.Context, q *question) (items []json.RawMessage, after string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, q.address+"?"+q.query.Encode(), http.NoBody)
	if err != nil {
		return nil, "", fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", q.kind.accept())
	resp, err := o.client.Do(req)
	if err != nil {
		return nil, "", o.explain(err)
	}
	defer resp.Body.Close()
	body := io.LimitReader(resp.Body, maxAnswer)
	if resp.StatusCode != http.StatusOK {
		return nil, "", o.refusal(resp.StatusCode, body)
	}
	switch {
	case q.kind.single:
		var item json.RawMessage
		if err := json.NewDecoder(body).Decode(&item); err != nil {
			return nil, "", fmt.Errorf("read the daemon's answer: %w", err)
		}
		return []json.RawMessage{item}, "", nil
	case q.kind.lines && strings.HasPrefix(resp.Header.Get("Content-Type"), asLines):
		items, err = readLines(body)
		return items, "", err
	default:
		return o.readPage(body, q.kind.name)
	}
}

// The forms in which a daemon can be asked to answer.
const (
	asJSON  = "application/json"
	asLines = "application/x-ndjson"
)

// A kind is what the items of an answer are, and how one becomes a row.
type kind struct {
	name   string   // of the array in the answer
	item   string   // what one item is called, with an s for more
	single bool     // the answer is one item itself
	paged  bool     // the daemon gives it page by page
	lines  bool     // it is asked for as NDJSON
	head   []string // columns that every row has
	// row returns the cells under head, and the others by their column. Whole says
	// that nothing may be left out, as in CSV.
	row func(item json.RawMessage, whole bool) (cells []string, fields map[string]json.RawMessage, err error)
	// drawn returns what of a row is drawn: its time, and numbers by field.
	drawn func(item json.RawMessage) (time.Time, map[string]point, error)
	// legend says what is drawn, and last what its last value is called.
	legend, last string
}

// accept is the form in which an answer is asked for: as lines where it comes in
// one page, since one of JSON is refused if it is long.
func (k kind) accept() string {
	if k.lines {
		return asLines
	}
	return asJSON
}

// readPage reads a list of things under their name, and where the next one begins.
func (o *queryOptions) readPage(body io.Reader, name string) (items []json.RawMessage, after string, err error) {
	var page map[string]json.RawMessage
	if err := json.NewDecoder(body).Decode(&page); err != nil {
		return nil, "", fmt.Errorf("read the daemon's answer: %w", err)
	}
	list, ok := page[name]
	if !ok {
		return nil, "", fmt.Errorf("the daemon's answer has no %s; is %s the --http-addr of a daemon?", name, config.MaskUser(o.base))
	}
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, "", fmt.Errorf("read the daemon's answer: %w", err)
	}
	if next, ok := page["after"]; ok {
		if err := json.Unmarshal(next, &after); err != nil {
			return nil, "", fmt.Errorf("read the daemon's answer: %w", err)
		}
	}
	return items, after, nil
}

// readLines reads a thing a line. An answer that the daemon could not end has as
// its last line why.
func readLines(body io.Reader) (items []json.RawMessage, err error) {
	for lines := json.NewDecoder(body); ; {
		var item json.RawMessage
		switch err := lines.Decode(&item); {
		case errors.Is(err, io.EOF):
			return items, nil
		case err != nil:
			return nil, fmt.Errorf("read the daemon's answer: %w", err)
		}
		var broken struct {
			Error *struct{ Code, Message string }
		}
		if bytes.HasPrefix(item, []byte(`{"error"`)) && json.Unmarshal(item, &broken) == nil && broken.Error != nil {
			return nil, fmt.Errorf("the daemon broke its answer off: %s (%s)", broken.Error.Message, broken.Error.Code)
		}
		items = append(items, item)
	}
}

// explain tells what to do when there is no answer.
func (o *queryOptions) explain(err error) error {
	if told := explainCall(o.base, "--url", err); told != err { //nolint:errorlint // whether there is something to tell
		return told
	}
	return fmt.Errorf("ask the daemon at %s: %w", config.MaskUser(o.base), err)
}

// refusal makes an error of an answer that is no page.
func (o *queryOptions) refusal(code int, answer io.Reader) error {
	body, err := io.ReadAll(io.LimitReader(answer, 1<<20))
	if err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	if wantsTLS(code, body) {
		return config.Usage(fmt.Errorf("--url: %s speaks TLS; call it by https://", config.MaskUser(o.base)))
	}
	var problem struct{ Code, Message string }
	if err := json.Unmarshal(body, &problem); err != nil || problem.Message == "" {
		return fmt.Errorf("the daemon answered %d %s without saying why; is this its --http-addr?", code, http.StatusText(code))
	}
	err = fmt.Errorf("%s (%s, HTTP %d)%s", problem.Message, problem.Code, code, o.caller.hint(code))
	if code == http.StatusBadRequest {
		return config.Usage(err)
	}
	return err
}

// askedFields finds the fields named by --fields that no printed item has: a
// misspelled name would be an empty column, or nothing at all.
type askedFields struct {
	asked []string
	whole bool            // as in kind.row
	seen  map[string]bool // names of columns
}

// look notes the fields of items.
func (a *askedFields) look(k kind, items []json.RawMessage) error {
	if len(a.asked) == 0 {
		return nil
	}
	for _, item := range items {
		_, fields, err := k.row(item, a.whole)
		if err != nil {
			return err
		}
		for name := range fields {
			a.seen[name] = true
		}
	}
	return nil
}

// warn names the fields that were asked for and not seen, and those that were.
func (a *askedFields) warn(w io.Writer, k kind) error {
	var missing []string
	for _, name := range a.asked {
		if len(chosen(a.seen, []string{name})) == 1 && !a.seen[name] {
			missing = append(missing, strconv.Quote(name))
		}
	}
	there := a.names(k)
	if len(missing) == 0 || len(there) == 0 {
		return nil
	}
	const most = 20
	rest := ""
	if n := len(there) - most; n > 0 {
		there, rest = there[:most], fmt.Sprintf(" and %d more", n)
	}
	_, err := fmt.Fprintf(w, "no %s shown has a field %s; they have %s%s\n", k.item, strings.Join(missing, " or "), strings.Join(there, ", "), rest)
	return err
}

// names returns the names of the fields that were seen. Tags, and the statistics
// of a field in a summary, come after a dot.
func (a *askedFields) names(k kind) []string {
	fields := make(map[string]bool)
	for name := range a.seen {
		if i := strings.LastIndexByte(name, '.'); i > 0 && k.item == "step" {
			name = name[:i]
		}
		fields[printable(name)] = true
	}
	return slices.Sorted(maps.Keys(fields))
}

// A point is what one row adds to the drawing of a field.
type point struct {
	drawn    float64
	min, max float64 // of the readings that the row stands for
}

// A sensor is one of an answer that lists them.
type sensor struct {
	ID     string    `json:"sensorId"`
	Newest time.Time `json:"newest"`
}

type reading struct {
	Time   string                     `json:"ts"`
	Fields map[string]json.RawMessage `json:"fields"`
	Tags   map[string]json.RawMessage `json:"tags"`
}

type step struct {
	Start  string                                `json:"start"`
	Count  int64                                 `json:"count"`
	Fields map[string]map[string]json.RawMessage `json:"fields"`
}

// decodeItem reads an item of the daemon's answer.
func decodeItem[T any](item json.RawMessage) (T, error) {
	var v T
	if err := json.Unmarshal(item, &v); err != nil {
		return v, fmt.Errorf("read the daemon's answer: %w", err)
	}
	return v, nil
}

// readingsKind has a column for each field; tags are in CSV alone. Names of
// fields have no dot, so that those of tags cannot be taken for one.
func readingsKind() kind {
	return kind{name: "readings", item: "reading", paged: true, head: []string{"ts"}, row: readingRow, drawn: drawnReading, last: "last"}
}

func latestKind() kind {
	k := readingsKind()
	k.single, k.paged = true, false
	return k
}

func readingRow(item json.RawMessage, whole bool) ([]string, map[string]json.RawMessage, error) {
	r, err := decodeItem[reading](item)
	if err != nil {
		return nil, nil, err
	}
	if whole && len(r.Tags) > 0 {
		if r.Fields == nil {
			r.Fields = make(map[string]json.RawMessage, len(r.Tags))
		}
		for name, value := range r.Tags {
			r.Fields["tags."+name] = value
		}
	}
	return []string{r.Time}, r.Fields, nil
}

func drawnReading(item json.RawMessage) (time.Time, map[string]point, error) {
	r, err := decodeItem[reading](item)
	if err != nil {
		return time.Time{}, nil, err
	}
	points := make(map[string]point, len(r.Fields))
	for name, raw := range r.Fields {
		if v, ok := number(raw); ok {
			points[name] = point{drawn: v, min: v, max: v}
		}
	}
	at, err := time.Parse(time.RFC3339Nano, r.Time)
	return at, points, err
}

// number returns a value that is a number.
func number(raw json.RawMessage) (v float64, ok bool) {
	return v, len(raw) > 0 && raw[0] != '"' && json.Unmarshal(raw, &v) == nil
}

// summaryKind has columns such as t.min for what is said of field t.
func summaryKind() kind {
	return kind{
		name: "summary", item: "step", lines: true, head: []string{"start", "count"}, row: stepRow, drawn: drawnStep,
		legend: "drawn: the mean of each step; min and max: of the readings", last: "last mean",
	}
}

func stepRow(item json.RawMessage, whole bool) ([]string, map[string]json.RawMessage, error) {
	s, err := decodeItem[step](item)
	if err != nil {
		return nil, nil, err
	}
	cells := make(map[string]json.RawMessage, 4*len(s.Fields))
	for field, said := range s.Fields {
		for name, value := range said {
			switch {
			case whole:
			case name == "n": // mostly it is the step's count
				continue
			case name == "mean":
				value = rounded(value, max(decimals(said["min"]), decimals(said["max"])))
			}
			cells[field+"."+name] = value
		}
	}
	return []string{s.Start, strconv.FormatInt(s.Count, 10)}, cells, nil
}

// mostDecimals is how many digits are taken to be meant.
const mostDecimals = 8

// decimals is how many digits a number has behind its point.
func decimals(raw json.RawMessage) int {
	if bytes.ContainsAny(raw, "eE") {
		return mostDecimals + 1
	}
	_, behind, _ := strings.Cut(string(raw), ".")
	return len(behind)
}

// rounded is a mean as people compare it: with two more digits behind the point
// than the values have, or ten in all where these have too many.
func rounded(raw json.RawMessage, places int) json.RawMessage {
	var v float64
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}
	if places > mostDecimals {
		return strconv.AppendFloat(nil, v, 'g', 10, 64)
	}
	out := strconv.AppendFloat(nil, v, 'f', places+2, 64)
	out = bytes.TrimSuffix(bytes.TrimRight(out, "0"), []byte("."))
	if string(out) == "-0" {
		return json.RawMessage("0")
	}
	return out
}

// inColumns compares names of columns: by field, and what a summary says of one in
// the order of the values. Least is left of most.
func inColumns(a, b string) int {
	split := func(name string) (field string, place int) {
		i := strings.LastIndexByte(name, '.')
		if i < 0 {
			return name, 0
		}
		return name[:i], 1 + slices.Index([]string{"n", "min", "mean", "max"}, name[i+1:])
	}
	fieldA, placeA := split(a)
	fieldB, placeB := split(b)
	return cmp.Or(cmp.Compare(fieldA, fieldB), cmp.Compare(placeA, placeB), cmp.Compare(a, b))
}

func drawnStep(item json.RawMessage) (time.Time, map[string]point, error) {
	s, err := decodeItem[step](item)
	if err != nil {
		return time.Time{}, nil, err
	}
	points := make(map[string]point, len(s.Fields))
	for field, said := range s.Fields {
		if mean, ok := number(said["mean"]); ok {
			points[field] = boundsOf(said, mean)
		}
	}
	at, err := time.Parse(time.RFC3339Nano, s.Start)
	return at, points, err
}

// boundsOf returns a step's point; the mean stands in for a bound that is missing.
func boundsOf(said map[string]json.RawMessage, mean float64) point {
	p := point{drawn: mean, min: mean, max: mean}
	if v, ok := number(said["min"]); ok {
		p.min = v
	}
	if v, ok := number(said["max"]); ok {
		p.max = v
	}
	return p
}

// sensorsKind tells for people how long ago the newest reading was.
func sensorsKind(now time.Time) kind {
	return kind{name: "sensors", item: "sensor", paged: true, head: []string{"sensorId", "newest"}, row: func(item json.RawMessage, whole bool) ([]string, map[string]json.RawMessage, error) {
		s, err := decodeItem[sensor](item)
		if err != nil {
			return nil, nil, err
		}
		newest := s.Newest.UTC().Format("2006-01-02T15:04:05.000Z")
		if whole {
			return []string{s.ID, newest}, nil, nil
		}
		return []string{printable(s.ID), newest}, map[string]json.RawMessage{"age": json.RawMessage(formatAge(now.Sub(s.Newest)))}, nil
	}}
}

// formatAge is a span as people say it; a reading may be ahead of the clock.
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

// kept are the items that are asked for.
func (q *question) kept(items []json.RawMessage) ([]json.RawMessage, error) {
	if q.keep == nil {
		return items, nil
	}
	out := items[:0]
	for _, item := range items {
		s, err := decodeItem[sensor](item)
		if err != nil {
			return nil, err
		}
		if q.keep(s) {
			out = append(out, item)
		}
	}
	return out, nil
}
