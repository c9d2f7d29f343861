package main

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/load/report"
	"github.com/brim-telemetry/brim/internal/load/send"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// loadOptions are the flags of `brim load`.
type loadOptions struct {
	config  load.Config
	target  string
	http    string // URL of the daemon's HTTP side, where the target is not it
	admin   string // host:port
	stream  string
	ack     telemetry.Ack
	form    send.Form
	timeout time.Duration

	adminTimeout time.Duration // of its answer about itself

	access func(*process) (*caller, error)
	caller *caller

	metricsAddr         string
	report, hgrm, floor string // files
	failIf              []report.Condition
	compare             bool
	output              *string

	// Of the run.
	registry *prometheus.Registry // nil without --metrics-addr
	live     *liveLine
}

// defaultConnections is more than a local daemon can work on at once.
const defaultConnections = 64

// newLoadFlags adds the flags to the command. Each is checked as it is read.
func newLoadFlags(cmd *cobra.Command, p *process) *loadOptions {
	o := &loadOptions{target: daemonURL(p), timeout: 30 * time.Second, adminTimeout: lookTimeout}
	o.config.Connections = defaultConnections
	flags := cmd.Flags()
	flags.SortFlags = false
	add := flagAdder(flags)
	o.addTarget(cmd, add)
	o.addLoad(add)
	o.addReadings(add)
	o.addReport(cmd, add)
	o.access = clientFlags(flags)
	return o
}

// An adder adds a flag: its name, default, kind of value, use, and what takes it.
type adder func(name, initial, kind, usage string, set func(string) error)

func flagAdder(flags *pflag.FlagSet) adder {
	return func(name, initial, kind, usage string, set func(string) error) {
		value := initial
		flags.Var(&flagText{text: &value, kind: kind, set: func(s string) error {
			if err := set(s); err != nil {
				return err
			}
			value = s
			return nil
		}}, name, usage)
	}
}

func (o *loadOptions) addTarget(cmd *cobra.Command, add adder) {
	c := &o.config
	flags := cmd.Flags()
	flags.StringVar(&o.target, "target", o.target, "`URL` of the daemon: http://… or grpc://…, with TLS https://… or grpcs://…; HOST:PORT is http ("+daemon.EnvURL+")")
	flags.StringVar(&o.stream, "stream", "", "`NAME` of the stream; empty: the daemon's default stream")
	add("ack", "", "LEVEL", "journaled or stored; empty: the daemon's default", func(s string) (err error) {
		o.ack, err = telemetry.ParseAck(s)
		return err
	})
	add("admin", "", "HOST:PORT", "the daemon's admin listener, https://HOST:PORT with TLS, for the store's own latency by tenth of the window", adminAddress(&o.admin))
	add("http", "", "URL", "of the daemon's HTTP side, where --target is its gRPC side (default: as --admin says; without it "+localDaemon+" for a target of grpc://127.0.0.1:"+localGRPC+", and required for any other)", func(s string) error {
		if u, err := url.Parse(s); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("%q is not the URL of a daemon's HTTP side, like %s", s, localDaemon)
		}
		o.http = s
		return nil
	})
	add("connections", strconv.Itoa(defaultConnections), "N", "requests that can be under way", config.Count(&c.Connections, 1, 10_000))
	add("max-in-flight", "10000", "N", "requests that may be due and not answered, with --from of 256 MiB of readings at most; what is due beyond is dropped and counted", config.Count(&c.MaxInFlight, 1, 1_000_000))
	add("timeout", "30s", "DURATION", "of one request", config.Duration(&o.timeout, time.Millisecond, time.Hour, false))
	add("grpc-form", "plain", "plain|compact", "layout of readings in gRPC messages; compact gains where a request has several readings of one sensor (--batch above --sensors)", func(s string) (err error) {
		o.form, err = send.ParseForm(s)
		return err
	})
}

func (o *loadOptions) addLoad(add adder) {
	c := &o.config
	add("sensors", "1000", "N", "number of sensors", config.Count(&c.Sensors, 1, 1_000_000))
	add("interval", "5s", "DURATION", "between readings of a sensor, in event time", config.Duration(&c.Interval, time.Millisecond, 30*config.Day, false))
	add("speedup", "1", "X", "event time runs so many times faster than the clock", decimal(&c.Speedup, 0.001, 1e9))
	add("rate", "", "N|A..B", "readings a second, instead of --sensors; a range is a ramp. Sensors are as many as report each --interval at the highest rate; they are a whole number, for which the interval gives way", func(s string) (err error) {
		c.Rate, err = load.ParseRate(s)
		return err
	})
	add("steps", "0", "N", "the ramp goes in so many steps; 0: evenly", config.Count(&c.Steps, 2, 1000))
	add("batch", "1", "N", "readings in a request", config.Count(&c.Batch, 1, 100_000))
	add("duration", "30s", "DURATION", "in which readings are due (with --from: the whole file)", config.Duration(&c.Duration, 10*time.Millisecond, 100*config.Day, false))
	add("start", "", "TIME", "event time of the first reading: RFC 3339, a date, milliseconds since 1970, or back from now like -1h (default: event time ends at the newest boundary of a window)", config.Time(&c.Start))
	add("seed", "1", "N", "the same seed makes the same readings, with the same --sensor-prefix and --start", seed(&c.Seed))
}

func (o *loadOptions) addReadings(add adder) {
	f := &o.config.Fleet
	add("fields", "4", "N", "fields of a reading", config.Count(&f.Fields, 1, telemetry.MaxFields))
	add("signal", "mixed", "mixed|walk|seasonal|steps", "how values change", func(s string) (err error) {
		f.Signal, err = load.ParseSignal(s)
		return err
	})
	add("missing", "0", "SHARE", "of fields that are left out, from 0 to 1 or as 5%; one of each reading always stays", share(&f.Missing, 1))
	add("duplicates", "0", "SHARE", "of arrivals that are the sensor's reading before, once more; at most 0.99", share(&f.Duplicates, load.MaxDuplicates))
	add("late", "0", "SHARE", "of readings that were measured up to --late-by before", share(&f.Late, 1))
	add("late-by", "10m", "DURATION", "how late those are at most, in event time; at least 1ms", config.Duration(&f.LateBy, time.Millisecond, 365*config.Day, false))
	add("disorder", "0", "SHARE", "of readings that arrive after their successor", share(&f.Disorder, 1))
	add("sensor-prefix", "", "TEXT", "before the number in a sensor's id (default: one for each run, so that no bucket of an earlier one is filled further)", func(s string) error {
		if refusal := telemetry.CheckSensor([]byte(s)); refusal != nil || len(s) > 1000 {
			return fmt.Errorf("%q cannot begin a sensor's id: allowed are 1 to 1000 bytes of printable UTF-8", s)
		}
		f.SensorPrefix = s
		return nil
	})
	add("from", "", "FILE", "replay this file at its own pace times --speedup; NDJSON or line protocol, .gz too", config.Text(&o.config.From, daemon.NotEmpty))
	add("from-format", "", "ndjson|line", "what the file is (default: as its first line looks)", func(s string) (err error) {
		o.config.FromFormat, err = load.ParseFormat(s)
		return err
	})
	add("from-precision", "", "ns|us|ms|s", "what timestamps of line protocol count (default: ns, and what is then before 1971 is refused)", func(s string) (err error) {
		o.config.FromPrecision, err = load.ParsePrecision(s)
		return err
	})
}

func (o *loadOptions) addReport(cmd *cobra.Command, add adder) {
	add("report", "", "FILE", "write a page with plots", config.Text(&o.report, daemon.NotEmpty))
	add("hgrm", "", "FILE", "write the percentiles of the response time for HdrHistogram's plotter", config.Text(&o.hgrm, daemon.NotEmpty))
	add("floor", "", "FILE", "an earlier result, as JSON, of the same load against --storage memory: the noise floor", config.Text(&o.floor, daemon.NotEmpty))
	add("fail-if", "", "CONDITION", "exit with 1 if it is met, like 'p99>50ms', 'achieved<99%' or 'dropped>0'; may be repeated", func(s string) error {
		c, err := report.ParseCondition(s)
		if err == nil {
			o.failIf = append(o.failIf, c)
		}
		return err
	})
	cmd.Flags().BoolVar(&o.compare, "compare", false, "compare two results, A.json B.json, instead of a run")
	add("metrics-addr", "", "HOST:PORT", "serve the generator's own metrics while it runs", config.Address(&o.metricsAddr))
	o.output = outputFlag(cmd, "text", "json")
}

// arguments checks what is beside the flags.
func (o *loadOptions) arguments(cmd *cobra.Command, args []string) error {
	if o.compare {
		if len(args) != 2 {
			return fmt.Errorf("--compare takes two files with results, A.json B.json, and was given %d", len(args))
		}
		if *o.output == "json" {
			return errors.New("--compare prints text only")
		}
		return onlyCompares(cmd)
	}
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, and was given %q", cmd.CommandPath(), strings.Join(args, " "))
	}
	return o.exclude(cmd)
}

// exclude refuses flags that make no sense together.
func (o *loadOptions) exclude(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if given("rate") && given("sensors") {
		return errors.New("--rate and --sensors exclude each other: the rate sets the number of sensors")
	}
	for _, without := range []struct {
		why   string
		flags []string
	}{
		{"a file has its own sensors", []string{"sensors", "sensor-prefix"}},
		{"a file has its own pace; --speedup changes it", []string{"interval", "rate", "steps"}},
		{"a file has its own readings", []string{"fields", "signal", "seed", "missing", "duplicates", "late", "late-by", "disorder"}},
	} {
		for _, flag := range without.flags {
			if given("from") && given(flag) {
				return fmt.Errorf("--from and --%s exclude each other: %s", flag, without.why)
			}
		}
	}
	switch {
	case given("late-by") && !given("late"):
		return errors.New("--late-by needs --late")
	case given("grpc-form") && !strings.HasPrefix(o.target, "grpc"):
		return errors.New("--grpc-form needs a --target of grpc://host:port or grpcs://host:port")
	case given("from-precision") && (!given("from") || o.config.FromFormat == load.NDJSON):
		return errors.New("--from-precision needs --from with a file of line protocol")
	case given("steps") && (o.config.Rate == load.Rate{} || o.config.Rate.From == o.config.Rate.To):
		return errors.New("--steps needs --rate with two ends, like 500..5000")
	case given("from-format") && !given("from"):
		return errors.New("--from-format needs --from")
	}
	return nil
}

// onlyCompares refuses the flags of a run, of which a comparison makes none.
func onlyCompares(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "compare" && f.Name != "output" && cmd.InheritedFlags().Lookup(f.Name) == nil {
			err = fmt.Errorf("--compare and --%s exclude each other: two results are compared, and no load is made", f.Name)
		}
	})
	return err
}

// decimal takes a number within bounds, both allowed.
func decimal(place *float64, least, most float64) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v >= least && v <= most) {
			return fmt.Errorf("%q is not a number from %v to %v", s, least, most)
		}
		*place = v
		return nil
	}
}

// seed takes a whole number above 0.
func seed(place *uint64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is not a whole number from 1 to %d", s, uint64(math.MaxUint64))
		}
		*place = n
		return nil
	}
}

// share takes a part of 1, like 0.05 or 5%, up to most.
func share(place *float64, most float64) func(string) error {
	return func(s string) error {
		number, percent := strings.CutSuffix(s, "%")
		v, err := strconv.ParseFloat(number, 64)
		if percent {
			v /= 100
		}
		if err != nil || !(v >= 0 && v <= most) {
			return fmt.Errorf("%q is not a share from 0 to %v, like 0.05 or 5%%", s, most)
		}
		*place = v
		return nil
	}
}
