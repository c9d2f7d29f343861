package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/internal/transfer"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// exportOptions are the flags of `brim export`.
type exportOptions struct {
	from, to string
	sensors  []string
	prefix   string
	format   files.Format
	out      string
	output   *string
}

const exportHelp = `Write the readings of a stream to files, one for each day (UTC) with readings:

  DIR/day=2026-11-22/readings.parquet

pandas, DuckDB and other programs read such a folder as one table, with a column
day. Readings that the daemon has acknowledged and not stored yet are included.
Within a file they are in the order of their sensors' ids, then of time.

Parquet and CSV have the columns ts and sensorId, and one for each tag and field,
the same in all files. A name that is taken twice becomes tags.NAME or fields.NAME.
A field with values of several kinds has its numbers in NAME, as doubles if one is,
and then repeats integers in NAME.int; booleans and strings are in NAME.bool and
NAME.text. CSV quotes strings, and nothing else. NDJSON is as HTTP returns it.

Memory does not grow with the number of readings. If the command is interrupted,
run it again with the same flags: it continues. Until a day's file is complete,
its readings are kept compressed in DIR/.brim-export. A complete export reads nothing
when it is run again, not even with --from -1h: choose another folder for newer readings.`

// newExport returns `brim export`, which reads from a running daemon over HTTP.
func newExport(p *process) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use: "export STREAM", Short: "Write the readings of a stream to Parquet, CSV or NDJSON", Long: exportHelp,
		Example: "  brim export readings --out november --from 2026-11-01 --to 2026-12-01\n" +
			"  brim export machines --out all --format csv\n" +
			"  brim export readings --out two --sensor s-1 --sensor s-2 --from -7d",
		Args: exactArg("the name of a stream"),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.out, "out", "", "`DIR` to write to, new, empty, or of an export to continue")
	add := flagAdder(flags)
	add("format", string(files.Parquet), "parquet|csv|ndjson", "form of the files", config.Choice(&o.format, files.Parquet, files.CSV, files.NDJSON))
	flags.StringVar(&o.from, "from", "", "start `TIME` (inclusive): RFC 3339, a date, milliseconds since 1970, or back from now like -7d; empty: the first reading")
	flags.StringVar(&o.to, "to", "", "end `TIME` (exclusive); empty: the last reading")
	flags.StringArrayVar(&o.sensors, "sensor", nil, "`ID` of a sensor; may be given several times; none: all")
	flags.StringVar(&o.prefix, "prefix", "", "sensors whose ids begin with this `TEXT`")
	o.output = outputFlag(cmd, "text", "json")
	withRemote(cmd, p, func(ctx context.Context, r *remote, args []string) error {
		c, err := o.config(args[0], time.Now())
		if err != nil {
			return config.Usage(err)
		}
		return o.run(ctx, p, r, args[0], c)
	})
	return cmd
}

// config returns the configuration from the flags.
func (o *exportOptions) config(stream string, now time.Time) (transfer.ExportConfig, error) {
	c := transfer.ExportConfig{Dir: o.out, Format: o.format, Sensors: o.sensors, Prefix: o.prefix, To: maxExportTime}
	switch {
	case o.out == "":
		return c, errors.New("--out: a folder to write to is missing")
	case len(o.sensors) > 0 && o.prefix != "":
		return c, errors.New("--sensor and --prefix cannot be combined")
	}
	c.Asked = []string{"stream " + stream, "format " + string(o.format)}
	for _, one := range []struct {
		name, text string
		place      *int64
	}{{"from", o.from, &c.From}, {"to", o.to, &c.To}} {
		if one.text == "" {
			continue
		}
		at, err := config.ParseTime(one.text, now)
		if err != nil {
			return c, fmt.Errorf("--%s: %w", one.name, err)
		}
		*one.place = at.UnixMilli()
		c.Asked = append(c.Asked, one.name+" "+one.text)
	}
	if c.From >= c.To {
		return c, fmt.Errorf("--from %s is not before --to %s", o.from, o.to)
	}
	for _, id := range o.sensors {
		if refusal := telemetry.CheckSensor([]byte(id)); refusal != nil {
			return c, fmt.Errorf("--sensor: %s", refusal.Message)
		}
		c.Asked = append(c.Asked, "sensor "+strconv.Quote(id))
	}
	if o.prefix != "" {
		c.Asked = append(c.Asked, "prefix "+strconv.Quote(o.prefix))
	}
	return c, nil
}

// maxExportTime is the end of the year 9999.
const maxExportTime = 253_402_300_800_000

// run exports until it is done or interrupted.
func (o *exportOptions) run(ctx context.Context, p *process, r *remote, stream string, c transfer.ExportConfig) error {
	line, ctx, _, end := p.interruptible(ctx, 10*time.Second, "stopping")
	defer end()
	var pace pace
	c.Show = func(at transfer.ExportProgress) {
		line.show("", func(now time.Time) string {
			what, done := "read", at.Done
			if at.Writing {
				what = "writing files"
			}
			return fmt.Sprintf("%s, day %d of %d (%s): %s readings%s", what, done+1, at.Days, at.Day, humanize.Comma(at.Readings), pace.text(now, what, at.Readings))
		})
	}
	done, err := transfer.Export(ctx, &exportSource{remote: r, stream: stream, line: line}, c)
	line.end()
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted; the same command continues the export")
	case err != nil:
		return fmt.Errorf("export stream %s: %w", stream, err)
	}
	return p.print(*o.output, done, exportText(stream, done))
}

func exportText(stream string, done transfer.Exported) string {
	const another = "choose another folder for newer readings"
	switch {
	case done.Files == 0 && done.AlreadyComplete:
		return fmt.Sprintf("already complete: nothing was read; stream %s had no such readings; %s\n", stream, another)
	case done.Files == 0:
		return fmt.Sprintf("stream %s has no such readings; nothing was written\n", stream)
	}
	already := ""
	if done.AlreadyComplete {
		already = fmt.Sprintf("; already complete: nothing was read; it begins at %s and ends at %s; %s",
			telemetry.FormatMillis(done.Begin.UnixMilli()), telemetry.FormatMillis(done.End.UnixMilli()), another)
	}
	return fmt.Sprintf("%s of stream %s, from %s to %s, in %s (%s, %s)%s\n", plural(done.Readings, "reading"), stream, done.From, done.To,
		done.Folder, plural(done.Files, "file"), humanize.IBytes(uint64(done.Bytes)), already)
}

func plural[T int | int64](n T, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return humanize.Comma(int64(n)) + " " + what + "s"
}

// A pace measures how fast a number grows.
type pace struct {
	what  string // the number; another one restarts
	since time.Time
	from  int64
}

func (p *pace) text(now time.Time, what string, n int64) string {
	if p.since.IsZero() || what != p.what || n < p.from {
		*p = pace{what, now, n}
	}
	took := now.Sub(p.since)
	if took < time.Second {
		return ""
	}
	return fmt.Sprintf(", %s/s", humanize.Comma(int64(float64(n-p.from)/took.Seconds())))
}

// exportSource reads from a daemon over HTTP. After the first successful request, failed requests
// are retried for a while.
type exportSource struct {
	*remote

	stream   string
	line     *progressLine
	answered atomic.Bool
}

const (
	exportPatience = 2 * time.Minute // maximum time of a request
	maxExportPage  = 32 << 20
)

// Sensors implements transfer.Source.
func (s *exportSource) Sensors(ctx context.Context, prefix, after string, limit int) (page []telemetry.SensorSeen, next string, err error) {
	query := url.Values{"stream": {s.stream}, "limit": {strconv.Itoa(limit)}}
	for name, value := range map[string]string{"prefix": prefix, "after": after} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var answer struct {
		Sensors []struct {
			SensorID string
			Newest   time.Time
		}
		After string
	}
	err = s.get(ctx, "/v1/sensors?"+query.Encode(), asJSON, func(resp *http.Response) error {
		answer.Sensors, answer.After = nil, ""
		return json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer)
	})
	for _, one := range answer.Sensors {
		page = append(page, telemetry.SensorSeen{Sensor: one.SensorID, Newest: one.Newest.UnixMilli()})
	}
	return page, answer.After, err
}

// Readings implements transfer.Source.
func (s *exportSource) Readings(ctx context.Context, q transfer.PageQuery) (page transfer.Page, err error) {
	query := url.Values{
		"stream": {s.stream}, "limit": {strconv.Itoa(q.Limit)},
		"from": {telemetry.FormatMillis(q.From)}, "to": {telemetry.FormatMillis(q.To)},
		"sensor": q.Sensors,
	}
	if q.After != "" {
		query.Set("after", q.After)
	}
	err = s.get(ctx, "/v1/readings?"+query.Encode(), asLines, func(resp *http.Response) error {
		var body bytes.Buffer
		n, err := io.Copy(&body, io.LimitReader(resp.Body, maxExportPage+1))
		if err == nil && n > maxExportPage {
			return transfer.ErrPageTooLarge
		}
		if err != nil {
			return err
		}
		page = transfer.Page{Lines: body.Bytes()}
		after := cmp.Or(resp.Trailer.Get(telemetry.AfterHeader), resp.Header.Get(telemetry.AfterHeader))
		if after == "" && len(resp.Trailer[telemetry.AfterHeader]) == 0 && n >= telemetry.LongAnswer {
			page.Next, err = pageAfter(page.Lines, q.After)
			return err
		}
		page.Next, err = url.PathUnescape(after)
		return err
	})
	return page, err
}

// pageAfter returns the start of the page after lines, which began after a cursor.
func pageAfter(lines []byte, after string) (string, error) {
	type place struct {
		SensorID string
		TS       time.Time
	}
	lines = bytes.TrimSuffix(lines, []byte("\n"))
	var last place
	var end telemetry.Cursor
	for rest := lines; len(rest) > 0; {
		begin := bytes.LastIndexByte(rest, '\n') + 1
		var one place
		if err := json.Unmarshal(rest[begin:], &one); err != nil {
			return "", fmt.Errorf("read the last line: %w", err)
		}
		if !end.Set {
			last = one
		}
		if one != last {
			break
		}
		end, rest = end.Past(one.TS.UnixMilli()), rest[:max(0, begin-1)]
	}
	before, err := telemetry.ParseCursor(strings.TrimSuffix(after, "."+last.SensorID))
	if err == nil && before.Millis == end.Millis { // otherwise the page began elsewhere
		end.Seen += before.Seen
	}
	return end.AfterPage(bytes.Count(lines, []byte("\n"))+1).String() + "." + last.SensorID, nil
}

// get sends a request, and retries it until read has read a complete response.
func (s *exportSource) get(ctx context.Context, path, accept string, read func(*http.Response) error) error {
	until := time.Now().Add(exportPatience)
	return persist(ctx, exportPatience, func(tried int, err error) bool {
		again := s.answered.Load() && retryable(err)
		if again && tried == 2 {
			s.line.say("trying again until %s: %v", until.Format(time.TimeOnly), err)
		}
		return again
	}, func() error {
		err := s.try(ctx, path, accept, read)
		if err == nil {
			s.answered.Store(true)
		}
		return err
	})
}

func (s *exportSource) try(ctx context.Context, path, accept string, read func(*http.Response) error) error {
	resp, err := s.accepted(ctx, http.MethodGet, path, accept)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if missing := resp.Header.Get(telemetry.IncompleteHeader); missing != "" {
		return fmt.Errorf("%s could not be asked for readings that it has acknowledged and not stored yet", missing)
	}
	if err := read(resp); err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	return nil
}

// retryable reports whether a request may succeed if repeated.
func retryable(err error) bool {
	var answer *answerError
	var misused config.UsageError
	switch {
	case errors.Is(err, transfer.ErrPageTooLarge), errors.As(err, &misused):
		return false
	case errors.As(err, &answer):
		return answer.status == http.StatusTooManyRequests || answer.status >= http.StatusInternalServerError
	}
	return true
}
