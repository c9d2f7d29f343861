// Package trend tells from a Prometheus that reads Brim's metrics what has
// grown over weeks, and when it will cross a threshold if it goes on. A span is
// asked for in some 250 steps, which are summed up in blocks, mostly days:
//
//	query → grid (a value a step) → blocks (medians) → line → crossings, words
package trend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// Bounds of what can be asked for.
const (
	LeastSpan = 2 * time.Hour
	MostSpan  = 3 * 366 * day
)

// Config says whom to ask for what.
type Config struct {
	// Prometheus is its address, as in http://127.0.0.1:9090, with user:password@
	// before the host where that is needed.
	Prometheus string
	// TokenFile holds a bearer token. Empty: there is none.
	TokenFile string
	// Selector names the daemons by matchers, as in job="brim". Empty: all.
	Selector string
	// Span that ends now, LeastSpan to MostSpan.
	Span time.Duration
	// Thresholds in force. nil: built in.
	Thresholds *doctor.Thresholds
	// Progress is called when some of the series have come, never twice at a time.
	// nil: nobody.
	Progress func(done, all int)
	// Now tells the time. nil: time.Now.
	Now func() time.Time
}

// Ask asks a Prometheus and judges what it says.
func Ask(ctx context.Context, config Config) (*Report, error) {
	if config.Span < LeastSpan || config.Span > MostSpan {
		return nil, fmt.Errorf("a trend is over %s to %s, not %s", model.Duration(LeastSpan), model.Duration(MostSpan), config.Span)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	c, err := newClient(config.Prometheus, config.TokenFile)
	if err != nil {
		return nil, err
	}
	defer c.close()
	a := &asking{client: c, config: config, span: rangeOf(config.Span, config.Now())}
	r := &Report{Prometheus: c.shown, Selector: config.Selector, From: a.span.Start.Add(-a.span.Step), To: a.span.End}
	there, err := a.instances(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.DiskKind, err = a.diskKind(ctx); err != nil {
		return nil, err
	}
	grids, err := a.all(ctx, r)
	if err != nil {
		return nil, err
	}
	blocks := layoutOf(there)
	for i, s := range r.Series {
		s.judge(grids[i], blocks, r.To)
	}
	r.conclude()
	return r, nil
}

// An asking is what one Ask has in hand.
type asking struct {
	client *client
	config Config
	span   prometheus.Range
}

// resolution is how often gauges are looked at within a step.
func (a *asking) resolution() time.Duration {
	const looks = 120
	return max(a.span.Step/looks, 15*time.Second).Round(time.Second)
}

func (a *asking) fill(text string) string {
	return doctor.FillPromQL(text, a.config.Selector, a.span.Step, a.resolution())
}

// instances asks which daemons were there and when.
func (a *asking) instances(ctx context.Context, r *Report) (grid, error) {
	there := newGrid(a.span)
	found, err := a.client.series(ctx, a.fill("count by (job, instance) (count_over_time(brim_mongodb_up{$s}[$w]))"), a.span)
	if err != nil {
		return there, err
	}
	if len(found) == 0 {
		return there, a.nobody(ctx)
	}
	for _, one := range found {
		r.Instances = append(r.Instances, Instance{Job: string(one.Metric["job"]), Instance: string(one.Metric["instance"])})
		for i, v := range gridOf(a.span, one.Values).values {
			if !math.IsNaN(v) {
				there.values[i] = v
			}
		}
	}
	slices.SortFunc(r.Instances, func(x, y Instance) int {
		return cmp.Or(cmp.Compare(x.Job, y.Job), cmp.Compare(x.Instance, y.Instance))
	})
	r.Seen = seenOf(there, a.config.Span)
	restarts, err := a.client.series(ctx, a.fill("sum(resets(brim_mongodb_server_status_seconds_count{$s}[$w]))"), a.span)
	for _, one := range restarts {
		for _, v := range known(gridOf(a.span, one.Values).values) {
			r.Seen.Restarts += int(v)
		}
	}
	return there, err
}

// nobody is the error for a selector that finds no daemon.
func (a *asking) nobody(ctx context.Context) error {
	// What is newer than the last whole step is in none that was asked for.
	newer, err := a.client.series(ctx, a.fill("count(brim_mongodb_up{$s})"), prometheus.Range{Start: a.span.End, End: a.config.Now(), Step: time.Minute})
	if err != nil {
		return err
	}
	if len(newer) > 0 && len(newer[0].Values) > 0 {
		return fmt.Errorf("a trend over %s is asked for in steps of %s, and Prometheus at %s has nothing of a daemon before %s UTC, where the last whole step ends; "+
			"ask for a shorter span, as in --trend %s, or later", model.Duration(a.config.Span), model.Duration(a.span.Step), a.client.shown, a.span.End.Format("15:04"), model.Duration(LeastSpan))
	}
	jobs, err := a.client.values(ctx, "job", "brim_mongodb_up", a.span)
	where := fmt.Sprintf("in the last %s Prometheus at %s has nothing of a daemon", model.Duration(a.config.Span), a.client.shown)
	switch {
	case err != nil:
		return err
	case len(jobs) == 0:
		return errors.New(where + " at all: does it scrape the admin listener, as deploy/prometheus/prometheus.yml does?")
	}
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = fmt.Sprintf("job=%q", string(j))
	}
	return fmt.Errorf("%s for the selector %s; there are %s", where, a.config.Selector, strings.Join(names, ", "))
}

// seenOf tells how much of a span there is.
func seenOf(there grid, span time.Duration) Seen {
	first, last, count := there.seen()
	s := Seen{
		From: there.at(first).Add(-there.step), To: there.at(last), Gaps: []Gap{},
		Days:   number((time.Duration(count) * there.step).Hours() / 24),
		OfDays: number(span.Hours() / 24),
	}
	for i, before := first, first; i <= last; i++ {
		if math.IsNaN(there.values[i]) {
			continue
		}
		if i > before+1 {
			s.Gaps = append(s.Gaps, Gap{From: there.at(before), To: there.at(i - 1)})
		}
		before = i
	}
	return s
}

// diskKind asks for the kind of the disk, as it was last seen.
func (a *asking) diskKind(ctx context.Context) (string, error) {
	found, err := a.client.series(ctx, a.fill("max by (kind) (last_over_time((brim_disk_info{$s} >= 0)[$w:$r]))"), a.span)
	kind, latest := "unknown", model.Time(0)
	for _, one := range found {
		if n := len(one.Values); n > 0 && one.Values[n-1].Timestamp > latest {
			kind, latest = string(one.Metric["kind"]), one.Values[n-1].Timestamp
		}
	}
	return kind, err
}

// all asks for each series, some at a time. One that cannot be asked for says
// why, and the others are there.
func (a *asking) all(ctx context.Context, r *Report) ([]grid, error) {
	const atOnce = 3
	list := allMeasures(a.config.Thresholds, r.DiskKind)
	grids := make([]grid, len(list))
	r.Series = make([]*Series, len(list))
	var group errgroup.Group
	group.SetLimit(atOnce)
	var mu sync.Mutex
	done, failed := 0, 0
	var failure error
	for i, m := range list {
		s := &Series{Name: m.name, Title: m.title, Unit: m.unit, Signal: m.text == "", Class: doctor.Unknown, Correlation: number(math.NaN()), rule: m.rule}
		if m.rule != nil {
			s.Threshold, s.Source = &m.rule.Threshold, m.rule.Source
		}
		r.Series[i], grids[i] = s, newGrid(a.span)
		group.Go(func() error {
			found, err := a.client.series(ctx, m.query(a.config.Selector, a.span.Step, a.resolution()), a.span)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				s.Why, failure = err.Error(), err
				failed++
			case len(found) > 0:
				grids[i] = gridOf(a.span, found[0].Values)
			}
			if done++; a.config.Progress != nil {
				a.config.Progress(done, len(list))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("ask Prometheus at %s: %w", a.client.shown, err)
	}
	if failed == len(list) {
		return nil, failure
	}
	return grids, nil
}
