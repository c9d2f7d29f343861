package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// queryOptions are the flags of `brim query`.
type queryOptions struct {
	base         string // URL of the daemon
	sensor       string
	stream       string
	from, to     string
	limit        int // 0: no limit
	output       *string
	client       *http.Client
	printReading printer
}

const localDaemon = "http://127.0.0.1:8430"

// newQuery returns `brim query`, which asks a running daemon over HTTP:
//
//	flags ─▶ GET /v1/sensors/SENSOR/readings ─▶ a page ─▶ printer ─▶ stdout
//	              ▲                               │
//	              └──────────── after ◀───────────┘
func newQuery(p *process) *cobra.Command {
	o := queryOptions{client: &http.Client{Timeout: time.Minute}}
	cmd := &cobra.Command{
		Use:   "query SENSOR",
		Short: "Print the stored readings of a sensor",
		Example: "  brim query s-1\n" +
			"  brim query s-1 --from -1h --output ndjson\n" +
			"  brim query s-1 --from 2026-11-21T10:00:00Z --to 2026-11-21T11:00:00Z --stream machines",
		Args: exactly("a sensor id"),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.from, "from", "", "first `TIME`: RFC 3339, milliseconds since 1970, or back from now like -1h")
	flags.StringVar(&o.to, "to", "", "end `TIME`, itself not included")
	limit := "1000"
	flags.Var(&flagText{text: &limit, kind: "N", set: func(s string) error { limit = s; return count(&o.limit, 0, math.MaxInt32)(s) }}, "limit", "readings to print; 0: all")
	flags.StringVar(&o.stream, "stream", "", "`NAME` of the stream; empty: the daemon's default stream")
	o.output = outputFlag(cmd, "text", "json", "ndjson")
	flags.StringVar(&o.base, "url", daemonURL(p), "`URL` of the daemon ("+envURL+")")
	o.limit = 1000
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.sensor = args[0]
		o.printReading = newPrinter(*o.output, p.stdout)
		return o.run(cmd.Context(), p)
	}
	return cmd
}

// daemonURL is where commands ask a daemon, unless a flag says otherwise.
func daemonURL(p *process) string {
	base := localDaemon
	for _, pair := range p.env {
		if v, ok := strings.CutPrefix(pair, envURL+"="); ok && v != "" {
			base = v
		}
	}
	return base
}

// pageSize is how many readings are asked for at once; at some 100 bytes each
// an answer comes at once, and nobody holds more than a megabyte.
const pageSize = 10_000

// run prints page after page.
func (o *queryOptions) run(ctx context.Context, p *process) error {
	query := url.Values{}
	now := time.Now()
	for key, text := range map[string]string{"from": o.from, "to": o.to} {
		if text == "" {
			continue
		}
		ms, err := parseInstant(text, now)
		if err != nil {
			return usageError{fmt.Errorf("--%s: %w", key, err)}
		}
		query.Set(key, strconv.FormatInt(ms, 10))
	}
	if o.stream != "" {
		query.Set("stream", o.stream)
	}
	address, err := o.address()
	if err != nil {
		return usageError{err}
	}
	printed := 0
	for {
		size := pageSize
		if o.limit > 0 {
			size = min(size, o.limit-printed)
		}
		query.Set("limit", strconv.Itoa(size))
		page, err := o.fetch(ctx, address+"?"+query.Encode())
		if err != nil {
			return err
		}
		if err := o.printReading.page(page.Readings); err != nil {
			return fmt.Errorf("print readings: %w", err)
		}
		printed += len(page.Readings)
		more := page.After != ""
		if !more || o.limit > 0 && printed >= o.limit {
			return o.finish(p, printed, more)
		}
		query.Set("after", page.After)
	}
}

// finish closes the output and tells what it does not show.
func (o *queryOptions) finish(p *process, printed int, more bool) error {
	if err := o.printReading.end(); err != nil {
		return fmt.Errorf("print readings: %w", err)
	}
	var note string
	switch {
	case more:
		note = fmt.Sprintf("there are more than these %d readings; --limit 0 prints all", printed)
	case printed == 0:
		note = fmt.Sprintf("sensor %q has no stored readings in this range", o.sensor)
	default:
		return nil
	}
	_, err := fmt.Fprintln(p.stderr, note)
	return err
}

// address is where the sensor's readings are.
func (o *queryOptions) address() (string, error) {
	base, err := url.Parse(o.base)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return "", fmt.Errorf("--url: %q is not the URL of a daemon, like %s", o.base, localDaemon)
	}
	sensor := url.PathEscape(o.sensor)
	if strings.Trim(sensor, ".") == "" { // would be taken for a step in the path
		sensor = strings.ReplaceAll(sensor, ".", "%2E")
	}
	return strings.TrimSuffix(o.base, "/") + "/v1/sensors/" + sensor + "/readings", nil
}

// explainNoAnswer tells what to do when there is no daemon.
func (o *queryOptions) explainNoAnswer(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no daemon answers at %s: start one with `brim serve`, or name another with --url", o.base)
	}
	return fmt.Errorf("ask the daemon at %s: %w", o.base, err)
}

// parseInstant reads a time on the command line, in milliseconds since 1970:
// RFC 3339, the number itself, or a distance from now.
func parseInstant(text string, now time.Time) (int64, error) {
	if len(text) > 1 && (text[0] == '+' || text[0] == '-') && text[1] >= '0' && text[1] <= '9' {
		if d, err := parseDuration(text[1:]); err == nil {
			if text[0] == '-' {
				d = -d
			}
			return max(0, now.Add(d).UnixMilli()), nil
		}
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 {
		return ms, nil
	}
	if text == "now" {
		return now.UnixMilli(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time; allowed are 2026-11-21T10:00:00Z, milliseconds since 1970, now, and -90s, -1h or -2d back from now", text)
	}
	return t.UnixMilli(), nil
}
