package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/doctor/trend"
)

// trendFlags say which Prometheus is to be asked for what.
type trendFlags struct {
	flags      *pflag.FlagSet
	span       time.Duration
	spanText   string
	prometheus string
	tokenFile  string
	selector   string
}

// addTrendFlags adds the flags of brim doctor --trend.
func addTrendFlags(flags *pflag.FlagSet) *trendFlags {
	t := &trendFlags{flags: flags}
	flags.Var(&flagText{text: &t.spanText, kind: "span", set: t.setSpan}, "trend", "ask a Prometheus what grew over this span, as in 3w or 10d, instead of looking at MongoDB")
	flags.StringVar(&t.prometheus, "prometheus", "", "with --trend: the `URL` of Prometheus, with user:password@ where it wants them; also "+daemon.EnvPrometheus)
	flags.StringVar(&t.tokenFile, "prometheus-token-file", "", "with --trend: `FILE` with a bearer token for Prometheus")
	flags.StringVar(&t.selector, "selector", `job="brim"`, "with --trend: matchers of the daemons' metrics")
	return t
}

func (t *trendFlags) setSpan(s string) error {
	d, err := model.ParseDuration(s)
	if err != nil || time.Duration(d) < trend.LeastSpan || time.Duration(d) > trend.MostSpan {
		return fmt.Errorf("%q is not a span of %s to %s, written like 3w, 10d or 12h", s, model.Duration(trend.LeastSpan), model.Duration(trend.MostSpan))
	}
	t.spanText, t.span = s, time.Duration(d)
	return nil
}

// check reports whether a trend is asked for. An error is one of usage.
func (t *trendFlags) check(env []string) (asked bool, err error) {
	if t.span == 0 {
		for _, name := range []string{"prometheus", "prometheus-token-file", "selector"} {
			if t.flags.Changed(name) {
				return false, fmt.Errorf("--%s is for --trend; say over which span, as in --trend 3w", name)
			}
		}
		return false, nil
	}
	if t.prometheus == "" {
		for _, entry := range env {
			if value, ok := strings.CutPrefix(entry, daemon.EnvPrometheus+"="); ok {
				t.prometheus = value
			}
		}
	}
	if t.prometheus == "" {
		return true, errors.New("--trend asks a Prometheus, and none is named; give --prometheus http://HOST:PORT (" + daemon.EnvPrometheus + ")")
	}
	if err := trend.Check(t.prometheus, t.tokenFile); err != nil {
		return true, fmt.Errorf("--prometheus: %w", err)
	}
	return true, nil
}

// doctorTrend prints what grew and what will come of it. The class is the worst
// of the signals at the end of the span.
func (p *process) doctorTrend(ctx context.Context, t *trendFlags, thresholds *doctor.Thresholds, output string) (doctor.Class, error) {
	line := newStatusLine(p.stderr)
	show := func(done, all int) {
		if line.terminal {
			line.set(fmt.Sprintf("asks Prometheus: %d of %d series", done, all))
		}
	}
	report, err := trend.Ask(ctx, trend.Config{
		Prometheus: t.prometheus, TokenFile: t.tokenFile, Selector: t.selector, Span: t.span, Thresholds: thresholds, Progress: show,
	})
	line.end()
	if err != nil {
		return doctor.Unknown, fmt.Errorf("tell the trend: %w", err)
	}
	if output == "json" {
		return report.Class, printJSON(p.stdout, struct {
			Class doctor.Class  `json:"class"`
			Trend *trend.Report `json:"trend"`
		}{report.Class, report})
	}
	return report.Class, report.Write(p.stdout)
}
