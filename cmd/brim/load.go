package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/load/report"
	"github.com/brim-telemetry/brim/internal/load/send"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/client/wire"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// loadOptions are the flags of `brim load`.
type loadOptions struct {
	config  load.Config
	target  string
	http    string // URL of the daemon's HTTP listener, if the target is another
	admin   string // HOST:PORT
	stream  string
	ack     telemetry.Ack
	form    wire.Form
	timeout time.Duration
	access  func(*process) (*caller, error)
	caller  *caller

	metricsAddr string
	report      string // file
	failIf      []report.Condition
	cleanup     bool
	output      *string
}

// newLoad returns `brim load`, which simulates many sensors:
//
//	flags ─▶ GET /v1/streams ─▶ GET /metrics ─▶ load.Generator ─▶ POST /flush ─▶ GET /metrics ─▶ report.Text ─▶ stdout
//	          (the window)        (--admin)        │       │         (--admin)                       ├─▶ --report
//	                                    send.Pool ◀┘       └▶ progress ─▶ stderr                     ├─▶ --fail-if
//	                                                                                                 └─▶ --cleanup: DELETE /v1/sensors
func newLoad(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Generate load: readings of many sensors, each sent when it is due",
		Long: "Generate load: readings of many sensors, each sent when it is due, whether or not the daemon has answered.\n\n" +
			"--interval is event time, which --speedup makes run faster than real time: at 60 an hourly bucket fills\n" +
			"in a minute. Readings per second = sensors x speedup / interval. A request with a --batch is due when the\n" +
			"last of its readings is. Response time counts from when a request was due, service time from when it\n" +
			"was sent. Readings due while --max-in-flight requests are unanswered are dropped, and counted.\n" +
			"A run with a higher rate than the daemon could accept reports SATURATED in its first line (\"saturated\" in\n" +
			"JSON): its times include time in a queue. The exit status stays 0 unless --fail-if says otherwise.\n\n" +
			"A failed request counts with the time until it failed, and a request still waiting for a connection at\n" +
			"the end with its wait: either would have taken longer. --fail-if therefore treats failed and dropped\n" +
			"requests as slower than any bound: if they are 1 % of those due, the p99 is unknown, and a condition\n" +
			"that it is too high is met; for max and mean a single such request is enough.\n" +
			"A condition can be about p50, p90, p99, p999, max and mean (of the response time, or as service.p99 of the\n" +
			"service time), store.p50, store.p99 (--admin), drain (from the end of the schedule to the last answer),\n" +
			"achieved, dropped, failed and rejected (readings, or % of them).\n\n" +
			"The readings stay in the daemon. --cleanup deletes the sensors of the run when it has ended, also after an\n" +
			"interrupt; a second interrupt leaves them, and brim delete --prefix deletes them later. The token needs the\n" +
			"scope admin.",
		Example: "  brim load --sensors 167 --interval 5s --speedup 60 --duration 60s --admin 127.0.0.1:8432 --report load.html\n" +
			"  brim load --rate 500..5000 --steps 10 --batch 10 --fail-if 'p99>50ms' --fail-if 'dropped>0'\n" +
			"  brim load --target grpc://127.0.0.1:8431 --batch 100\n" +
			"  brim load --duration 5m --cleanup",
		Args: noArgs,
	}
	o := &loadOptions{target: daemonURL(p)}
	flags := cmd.Flags()
	o.addLoad(flags)
	o.addReadings(flagAdder(flags))
	o.output = outputFlag(cmd, "text", "json")
	o.access = clientFlags(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.checkFlags(flags.Changed); err != nil {
			return config.Usage(err)
		}
		return o.run(cmd.Context(), p)
	}
	return cmd
}

// addLoad adds the flags that say what is sent, where to, and what is reported.
func (o *loadOptions) addLoad(flags *pflag.FlagSet) {
	c, add := &o.config, flagAdder(flags)
	flags.StringVar(&o.target, "target", o.target, "`URL` of the daemon: http://… or grpc://…, with TLS https://… or grpcs://…; HOST:PORT is http ("+daemon.EnvURL+")")
	flags.StringVar(&o.stream, "stream", "", "`NAME` of the stream; empty: the daemon's default stream")
	add("ack", "", "LEVEL", "journaled or stored; empty: the daemon's default", parsed(&o.ack, telemetry.ParseAck))
	add("admin", "", "HOST:PORT", "the daemon's admin listener, https://HOST:PORT with TLS, for the store's own latency by tenth of the window", adminAddress(&o.admin))
	add("http", "", "URL", "of the daemon's HTTP listener, where --target is its gRPC listener (default: as --admin says; without it "+localDaemon+" for a target of grpc://127.0.0.1:"+localGRPC+", and required for any other)", func(s string) error {
		if u, err := url.Parse(s); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("%q is not the URL of a daemon's HTTP listener, like %s", config.MaskUser(s), localDaemon)
		}
		o.http = s
		return nil
	})
	add("connections", "64", "N", "maximum requests in flight", config.Count(&c.Connections, 1, 10_000))
	add("max-in-flight", "10000", "N", "requests that may be due and not answered; what is due beyond is dropped and counted", config.Count(&c.MaxInFlight, 1, 1_000_000))
	add("timeout", "30s", "DURATION", "of one request", config.Duration(&o.timeout, time.Millisecond, time.Hour, false))
	add("grpc-form", "plain", "plain|compact", "layout of readings in gRPC messages; compact gains where a request has several readings of one sensor (--batch above --sensors)", parsed(&o.form, wire.ParseForm))
	add("sensors", "1000", "N", "number of sensors", config.Count(&c.Sensors, 1, 1_000_000))
	add("interval", "5s", "DURATION", "between readings of a sensor, in event time", config.Duration(&c.Interval, time.Millisecond, 30*config.Day, false))
	add("speedup", "1", "X", "event time runs this many times faster than the clock", config.Number(&c.Speedup, 0.001, 1e9))
	add("rate", "", "N|A..B", "readings a second, instead of --sensors; a range is a ramp. There are as many sensors as report each --interval at the highest rate, a whole number, to which the interval is adapted", parsed(&c.Rate, load.ParseRate))
	add("steps", "0", "N", "number of steps in the ramp; 0: continuous", config.Count(&c.Steps, 2, 1000))
	add("batch", "1", "N", "readings per request", config.Count(&c.Batch, 1, 100_000))
	add("duration", "30s", "DURATION", "in which readings are due", config.Duration(&c.Duration, 10*time.Millisecond, 100*config.Day, false))
	add("start", "", "TIME", "event time of the first reading: RFC 3339, a date, milliseconds since 1970, or back from now like -1h (default: event time ends at the newest boundary of a window)", config.Time(&c.Start))
	add("seed", "1", "N", "the same seed makes the same readings, with the same --sensor-prefix and --start", seed(&c.Seed))
	add("report", "", "FILE", "write a page with plots", config.Text(&o.report, daemon.NotEmpty))
	add("fail-if", "", "CONDITION", "exit with 1 if it is met, like 'p99>50ms', 'achieved<99%' or 'dropped>0'; may be repeated", func(s string) error {
		c, err := report.ParseCondition(s)
		if err == nil {
			o.failIf = append(o.failIf, c)
		}
		return err
	})
	add("metrics-addr", "", "HOST:PORT", "serve the generator's own metrics while it runs", config.Address(&o.metricsAddr))
	flags.BoolVar(&o.cleanup, "cleanup", false, "delete the sensors of the run, with their readings, when it has ended or was interrupted")
}

// addReadings adds the flags that describe the sensors.
func (o *loadOptions) addReadings(add adder) {
	f := &o.config.Fleet
	add("fields", "4", "N", "fields of a reading", config.Count(&f.Fields, 1, telemetry.MaxFields))
	add("signal", "mixed", "mixed|walk|seasonal|steps", "how values change", parsed(&f.Signal, load.ParseSignal))
	add("missing", "0", "SHARE", "of fields that are left out, from 0 to 1 or as 5%; one of each reading always stays", share(&f.Missing, 1))
	add("duplicates", "0", "SHARE", "of arrivals that repeat the sensor's previous reading; at most 0.99", share(&f.Duplicates, load.MaxDuplicates))
	add("late", "0", "SHARE", "of readings that were measured up to --late-by before", share(&f.Late, 1))
	add("late-by", "10m", "DURATION", "how late those are at most, in event time; at least 1ms", config.Duration(&f.LateBy, time.Millisecond, 365*config.Day, false))
	add("disorder", "0", "SHARE", "of readings that arrive after their successor", share(&f.Disorder, 1))
	add("sensor-prefix", "", "TEXT", "before the number in a sensor's id (default: one for each run, so that no bucket of an earlier one is filled further)", func(s string) error {
		if refusal := telemetry.CheckSensor([]byte(s)); refusal != nil || len(s) > 1000 {
			return fmt.Errorf("%q cannot begin a sensor's id; allowed: 1 to 1000 bytes of printable UTF-8", s)
		}
		f.SensorPrefix = s
		return nil
	})
}

// parsed returns a setter that parses with a function.
func parsed[T any](place *T, parse func(string) (T, error)) func(string) error {
	return func(s string) (err error) {
		*place, err = parse(s)
		return err
	}
}

// checkFlags rejects combinations of flags that make no sense.
func (o *loadOptions) checkFlags(given func(string) bool) error {
	switch {
	case given("rate") && given("sensors"):
		return errors.New("--rate and --sensors cannot be used together: the rate sets the number of sensors")
	case o.cleanup && given("sensor-prefix"):
		return errors.New("--cleanup and --sensor-prefix cannot be used together: sensors of the same names may have been there before; brim delete --prefix TEXT deletes what you choose")
	case given("late-by") && !given("late"):
		return errors.New("--late-by needs --late")
	case given("grpc-form") && !strings.HasPrefix(o.target, "grpc"):
		return errors.New("--grpc-form needs a --target of grpc://host:port or grpcs://host:port")
	case given("steps") && (o.config.Rate == load.Rate{} || o.config.Rate.From == o.config.Rate.To):
		return errors.New("--steps needs --rate with two ends, like 500..5000")
	}
	if given("rate") {
		o.config.Sensors = 0
	}
	return nil
}

// run generates the load and reports.
func (o *loadOptions) run(ctx context.Context, p *process) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if address := ""; config.Address(&address)(o.target) == nil {
		o.target = "http://" + address
	}
	if o.caller, err = o.access(p); err != nil {
		return err
	}
	if u, err := url.Parse(o.target); err == nil { // send.New says what is wrong with one that is no URL
		if err := o.caller.checkCleartext(u); err != nil {
			return config.Usage(fmt.Errorf("--target: %w", err))
		}
	}
	if err := checkWritable(o.report); err != nil {
		return err
	}
	pool, err := send.New(send.Config{
		Target: o.target, Stream: o.stream, Ack: o.ack, Timeout: o.timeout, Form: o.form,
		Token: o.caller.token, TLS: o.caller.tls,
	})
	if err != nil {
		return config.Usage(fmt.Errorf("--target: %w", err))
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	result, cleanup, err := o.generate(ctx, p, pool)
	if result == nil {
		return err
	}
	if err = errors.Join(err, o.print(p, result), o.checkResult(result)); err == nil {
		o.warnLost(p.stderr, result)
	}
	if cleanup != nil {
		err = errors.Join(err, cleanup.run(ctx, p.stderr))
	}
	return err
}

// generate checks everything that can be checked before the first reading, and then generates the
// load. The result is nil if there was none. cleanup is nil if the sensors are to be kept.
func (o *loadOptions) generate(ctx context.Context, p *process, pool *send.Pool) (result *load.Result, cleanup *loadCleanup, err error) {
	stream, remote, err := o.discover(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	if err := pool.Check(ctx); errors.Is(err, send.ErrNotGRPC) {
		return nil, nil, fmt.Errorf("--target: %s does not speak gRPC: is it a daemon's HTTP listener or its admin listener? The HTTP listener is named by --target http://HOST:PORT", o.target)
	} else if err != nil {
		return nil, nil, explainCall(o.target, "--target", err)
	}
	c := o.config
	c.Senders, c.Stream, c.Protocol, c.Target = pool.Sender, stream, pool.Protocol(), o.target
	c.Ack, c.Version = string(o.ack), readVersion().Version
	metrics := prometheus.NewRegistry()
	if o.metricsAddr != "" {
		c.Registerer = metrics
	}
	live := newProgressLine(p.stderr, 0)
	defer live.end()
	c.Progress = showLoad(live)
	generator, err := load.New(c)
	if err != nil {
		return nil, nil, config.Usage(err)
	}
	warnSetup(p.stderr, generator.Setup(), time.Now())
	if o.cleanup {
		cleanup = &loadCleanup{remote, stream.Name, generator.Setup().SensorPrefix}
		if err := cleanup.check(ctx); err != nil {
			return nil, nil, err
		}
	}
	var before scrape.Sample
	if o.admin != "" {
		if before, err = o.caller.metrics(ctx, o.admin); err != nil {
			return nil, nil, err
		}
	}
	stop, err := o.serveMetrics(ctx, p.stderr, metrics)
	if err != nil {
		return nil, nil, err
	}
	result, err = generator.Run(ctx)
	live.end()
	stop()
	if result != nil && before != nil {
		// Also after an interrupted run; a second signal ends the wait.
		rows, missed := o.caller.storeByFill(context.WithoutCancel(ctx), o.admin, stream.Name, before)
		if missed != nil {
			_, _ = fmt.Fprintf(p.stderr, "store_by_fill may miss writes: %v\n", missed)
		}
		result.StoreByFill = rows
	}
	return result, cleanup, err
}

// warnSetup warns if a whole number of sensors makes another interval, and if event
// time will overtake the clock.
func warnSetup(w io.Writer, s load.Setup, now time.Time) {
	const differs, ahead = 0.01, time.Minute
	if asked := s.AskedIntervalSeconds; asked > 0 && math.Abs(s.IntervalSeconds/asked-1) > differs {
		_, _ = fmt.Fprintf(w, "--rate %s takes %d sensors, each of which reports every %.3f s of event time, and not every %.3f s\n", s.Rate, s.Sensors, s.IntervalSeconds, asked)
	}
	end := now.Add(time.Duration(s.DurationSeconds * float64(time.Second)))
	if by := s.EventEnd.Sub(end); by > ahead {
		_, _ = fmt.Fprintf(w, "event time ends %s ahead of the clock; the daemon refuses what is beyond its --max-future\n", by.Round(time.Second))
	}
}

// serveMetrics serves the generator's metrics, with those of its process, if asked for.
func (o *loadOptions) serveMetrics(ctx context.Context, w io.Writer, reg *prometheus.Registry) (stop func(), err error) {
	if o.metricsAddr == "" {
		return func() {}, nil
	}
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), readVersion().Collector()} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.metricsAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for the load's metrics (--metrics-addr): %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	server, served := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, make(chan struct{})
	go func() { _ = server.Serve(listener); close(served) }() // until it is closed
	_, _ = fmt.Fprintf(w, "the generator's own metrics are at http://%s/metrics while it runs\n", listener.Addr())
	return func() { _ = server.Close(); <-served }, nil
}

// print prints the result and writes the files that were asked for.
func (o *loadOptions) print(p *process, r *load.Result) (err error) {
	if *o.output == "json" {
		err = report.JSON(p.stdout, r)
		if why := report.Saturation(r); why != "" { // stdout mostly goes to a file
			_, _ = fmt.Fprintf(p.stderr, "saturated: %s\n", why)
		}
	} else {
		err = report.Text(p.stdout, r)
	}
	return errors.Join(err, writeFile(o.report, func(w io.Writer) error { return report.HTML(w, r) }))
}

var errNothingAccepted = errors.New("the daemon accepted no reading")

// checkResult returns an error if the run failed.
func (o *loadOptions) checkResult(r *load.Result) error {
	var errs []error
	for _, c := range o.failIf {
		if err := c.Check(r); err != nil {
			errs = append(errs, err)
		}
	}
	if r.Sent > 0 && r.Acked == 0 {
		errs = append(errs, errNothingAccepted)
	}
	return errors.Join(errs...)
}

// warnLost warns that lost readings do not change the exit status without --fail-if.
func (o *loadOptions) warnLost(w io.Writer, r *load.Result) {
	if lost := r.Failed + r.Dropped; lost > 0 && len(o.failIf) == 0 {
		_, _ = fmt.Fprintf(w, "%s of %s readings that were due failed or were dropped, and the exit status is 0 all the same: --fail-if 'failed>0' --fail-if 'dropped>0' would make it 1\n",
			humanize.Comma(lost), humanize.Comma(r.Sent+r.Dropped))
	}
}

// storeByFill makes the daemon store what it accepted, and returns the durations of its writes to
// a stream since before, in ten rows. The error says what may be missing.
func (c *caller) storeByFill(ctx context.Context, admin, stream string, before scrape.Sample) ([]load.FillRow, error) {
	missed := c.flushed(ctx, admin)
	after, err := c.metrics(ctx, admin)
	if err != nil {
		return nil, err
	}
	rows := make([]load.FillRow, len(store.Fills))
	for i, fill := range store.Fills {
		labels := scrape.Labels{"stream": stream, "fill": fill}
		const name = "brim_store_write_seconds"
		h := after.Histogram(name, labels).Since(before.Histogram(name, labels))
		rows[i] = load.FillRow{From: float64(i) / 10, To: float64(i+1) / 10, Count: int64(math.Round(h.Count))}
		if rows[i].Count > 0 {
			rows[i].P50, rows[i].P99 = h.Quantile(0.5), h.Quantile(0.99)
		}
	}
	return rows, missed
}

// discover asks the daemon about the stream to write to, at its HTTP listener.
func (o *loadOptions) discover(ctx context.Context, p *process) (s load.Stream, r *remote, err error) {
	var about *daemon.Status
	if o.admin != "" {
		if about, err = o.caller.askStatus(ctx, o.admin); err == nil {
			err = o.checkSameDaemon(&about.Addresses)
		}
		if err != nil {
			return s, nil, err
		}
	}
	base, flag, err := o.httpListener(about)
	if err != nil {
		return s, nil, err
	}
	r = o.remote(base, flag)
	within, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if s, err = r.stream(within, o.stream); err != nil {
		return s, nil, err
	}
	if s.GranularitySeconds < 1 {
		return s, nil, fmt.Errorf("the daemon at %s does not tell the granularity of stream %q", config.MaskUser(base), s.Name)
	}
	if o.admin != "" && s.Storage == "memory" {
		_, _ = fmt.Fprintln(p.stderr, "the stream is stored in memory, not in MongoDB: store_by_fill shows the times of memory")
	}
	return s, r, nil
}

// remote returns the daemon's HTTP listener, which was given by flag.
func (o *loadOptions) remote(base, flag string) *remote {
	return &remote{
		o.caller, o.caller.client(time.Minute), strings.TrimSuffix(base, "/"), flag,
		"is it a daemon's admin listener, or its gRPC listener, which --target grpc://HOST:PORT names? The HTTP listener is another, by default " + localDaemon,
	}
}

// stream returns information about a stream; an empty name means the default stream.
func (r *remote) stream(ctx context.Context, name string) (load.Stream, error) {
	body, err := r.read(ctx, http.MethodGet, "/v1/streams")
	if err != nil {
		return load.Stream{}, err
	}
	var about struct {
		Default string        `json:"default"`
		Streams []load.Stream `json:"streams"`
	}
	if err := json.Unmarshal(body, &about); err != nil || about.Default == "" || len(about.Streams) == 0 {
		return load.Stream{}, fmt.Errorf("%s: the answer of %s is not a Brim daemon's: it has no streams", r.flag, config.MaskUser(r.base))
	}
	var names []string
	for _, s := range about.Streams {
		if s.Name == cmp.Or(name, about.Default) {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return load.Stream{}, fmt.Errorf("the daemon at %s has no stream %q; it has: %s", config.MaskUser(r.base), name, strings.Join(names, ", "))
}

// httpListener returns the URL of the daemon's HTTP listener, and the flag that determined it. For
// a gRPC target, it is taken from the admin listener's status, or is the default of a local
// daemon.
func (o *loadOptions) httpListener(about *daemon.Status) (base, flag string, err error) {
	target, err := url.Parse(o.target)
	if err != nil {
		return "", "", config.Usage(errors.New("--target: it is not a URL"))
	}
	switch {
	case o.http != "":
		return o.http, "--http", nil
	case !strings.HasPrefix(target.Scheme, "grpc"):
		return o.target, "--target", nil
	case about != nil:
		// Its listeners speak TLS all or none.
		u, err := url.Parse(adminURL(o.admin))
		host, port, split := net.SplitHostPort(about.Addresses.HTTP)
		if err != nil || split != nil {
			return "", "", fmt.Errorf("read the status of the daemon at %s: its HTTP address is %q", o.admin, about.Addresses.HTTP)
		}
		if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
			host = u.Hostname()
		}
		return u.Scheme + "://" + net.JoinHostPort(host, port), "--http", nil
	case loopback(target.Hostname()) && target.Port() == localGRPC:
		return localDaemon, "--http", nil
	}
	return "", "", config.Usage(fmt.Errorf("--target: %s does not tell about its streams; name the HTTP listener of the same daemon with --http, or its admin listener with --admin", config.MaskUser(o.target)))
}

// checkSameDaemon rejects an admin listener that certainly belongs to another daemon than the
// target: both are on this machine, on ports that do not belong together. For host names, other
// machines and forwarded ports, this cannot be checked.
func (o *loadOptions) checkSameDaemon(at *daemon.Addresses) error {
	adminHost, adminPort, err := net.SplitHostPort(hostPort(o.admin))
	if err != nil || adminHost != "" && !loopback(adminHost) || portOf(at.Admin) != adminPort {
		return nil //nolint:nilerr // it is on another machine, or its port is forwarded
	}
	for flag, where := range map[string]string{"--target": o.target, "--http": o.http} {
		u, err := url.Parse(where)
		if err != nil || !loopback(u.Hostname()) {
			continue
		}
		listens := portOf(at.HTTP)
		if strings.HasPrefix(u.Scheme, "grpc") {
			listens = portOf(at.GRPC)
		}
		if listens != "" && listens != cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]) {
			return config.Usage(fmt.Errorf("--admin: %s is the admin listener of another daemon, which accepts readings at %s (HTTP) and %s (gRPC), and %s is %s", o.admin, at.HTTP, at.GRPC, flag, config.MaskUser(where)))
		}
	}
	return nil
}

// portOf returns the port of an address; empty if there is none.
func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// showLoad returns a function that shows the progress of a run: every second on a terminal,
// otherwise every five.
func showLoad(live *progressLine) func(load.Progress) {
	return func(p load.Progress) {
		if live.terminal || int(p.Elapsed/time.Second)%5 == 0 {
			live.tell(loadText(&p))
		}
	}
}

// loadText formats a second of a run. The most important values come first, because a narrow
// terminal truncates the line.
func loadText(p *load.Progress) string {
	var line strings.Builder
	add := func(format string, args ...any) { _, _ = fmt.Fprintf(&line, format, args...) }
	add("%s/%s", p.Elapsed.Round(time.Second), config.FormatDuration(p.Duration.Round(time.Second)))
	if p.Draining || p.Elapsed >= p.Duration {
		add("  waiting for the last answers")
	} else {
		add("  asked %s got %s", chart.Format(chart.PerSecond, p.Asked), chart.Format(chart.PerSecond, p.Achieved))
	}
	if p.TotalFailed > 0 {
		add("  %s failed", humanize.Comma(p.TotalFailed))
	}
	if p.TotalDropped > 0 {
		add("  %s dropped", humanize.Comma(p.TotalDropped))
	}
	const cells = 10 // of the window, as far as event time has come in it
	full := min(max(int(math.Round(p.Fill*cells)), 0), cells)
	add("  p50 %s p99 %s  %s%s %3.0f %%  in flight %d", timeOrDash(p.P50), timeOrDash(p.P99),
		strings.Repeat("█", full), strings.Repeat("░", cells-full), 100*p.Fill, p.InFlight)
	return line.String()
}

// timeOrDash formats a time, or a dash if there was none.
func timeOrDash(seconds float64) string {
	if seconds <= 0 {
		return "–"
	}
	return chart.Format(chart.Seconds, seconds)
}

// A loadCleanup deletes the sensors of one load run, whose ids share a unique prefix.
type loadCleanup struct {
	remote         *remote
	stream, prefix string
}

// check returns an error if the sensors could not be deleted. It is called before the run.
func (c *loadCleanup) check(ctx context.Context) error {
	d := &deletion{DryRun: true}
	query := url.Values{"stream": {c.stream}, "prefix": {c.prefix}, "dry-run": {"true"}, "limit": {"1"}}
	if _, err := d.ask(ctx, c.remote, "/v1/sensors?"+query.Encode()); err != nil {
		return fmt.Errorf("--cleanup: %w", err)
	}
	return nil
}

// run deletes them, also after a run that was interrupted: ctx may have ended.
func (c *loadCleanup) run(ctx context.Context, w io.Writer) error {
	again := ""
	if ctx.Err() != nil {
		ctx, again = context.WithoutCancel(ctx), "; interrupt again to leave them"
	}
	_, _ = fmt.Fprintf(w, "deleting the sensors of this run (%s…)%s\n", c.prefix, again)
	o := deleteOptions{stream: c.stream, prefix: c.prefix, yes: true}
	d, err := o.run(ctx, &process{stderr: w}, c.remote)
	if err != nil {
		return fmt.Errorf("--cleanup: %w; %s; to delete the rest, run: brim delete --url %s --stream %s --prefix %s --yes", err, d, config.ShellWord(config.MaskUser(c.remote.base)), config.ShellWord(c.stream), c.prefix)
	}
	_, _ = fmt.Fprintln(w, d)
	return nil
}
