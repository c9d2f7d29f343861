package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
// answer comes at once, and nobody holds more than a megabyte.
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
