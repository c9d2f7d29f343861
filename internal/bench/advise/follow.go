package advise

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// Followed is what came when the advice was followed: a daemon with these
// settings, and `brim load`.
type Followed struct {
	Serve []string `json:"serve"` // flags of the daemon
	Load  []string `json:"load"`  // of the load
	Trial
	Documents Against `json:"documents_per_day"`
	Bytes     Against `json:"bytes_per_day"`
}

// Against holds what was predicted against what was seen.
type Against struct {
	Predicted float64 `json:"predicted"`
	Seen      float64 `json:"seen"`
}

// Off is the part by which it differs from what was predicted.
func (a Against) Off() float64 { return a.Seen/a.Predicted - 1 }

// A Trial is a load that goes through much event time in a short one.
type Trial struct {
	Sensors int           `json:"sensors"`
	Event   time.Duration `json:"event_time_ns"`
	Time    time.Duration `json:"time_ns"`
}

const (
	trialDocuments = 20 // of each sensor, or more
	trialBatch     = 1000
	// longestTrial keeps what is measured rarely within the times that a reading may
	// have, which begin in 1970.
	longestTrial = 20 * 365 * day
)

// trial chooses the load: whole windows, within the retention.
func (a *Advice) trial(readings int, within time.Duration) Trial {
	n, c := a.Needs, a.Chosen
	each := min(max(trialDocuments*int(c.PerDocument), readings/n.Sensors), readings, int(longestTrial/n.Interval))
	t := Trial{Sensors: min(max(readings/each, 1), n.Sensors), Time: within}
	whole := c.Granularity
	if c.Storage == store.TimeSeries {
		whole = min(whole, time.Minute)
	}
	t.Event = time.Duration(min(readings/t.Sensors, int(longestTrial/n.Interval))) * n.Interval
	if n.Retention > 0 {
		t.Event = min(t.Event, n.Retention/10*9)
	}
	t.Event = max(t.Event.Truncate(whole), whole)
	return t
}

// Flags are those of `brim serve` that the advice comes to.
func (a *Advice) Flags() []string {
	c := a.Chosen
	flags := []string{"--storage", string(c.Storage), "--compressor", string(c.Compressor), "--flush-interval", Span(c.Flush), "--granularity", Span(c.Granularity)}
	if c.Storage == store.Bucket {
		flags = append(flags, "--bucket-max-readings", strconv.Itoa(c.MaxReadings), "--bucket-max-bytes", strconv.Itoa(c.MaxBytes))
	}
	if a.Needs.Retention > 0 {
		flags = append(flags, "--retention", a.Needs.Retention.String())
	}
	return flags
}

// LoadFlags are those of `brim load` that make the trial.
func (a *Advice) LoadFlags(t Trial) []string {
	flags := []string{
		"--sensors", strconv.Itoa(t.Sensors), "--interval", a.Needs.Interval.String(), "--fields", strconv.Itoa(a.Needs.Fields),
		"--speedup", strconv.FormatFloat(t.Event.Seconds()/t.Time.Seconds(), 'g', 10, 64), "--duration", t.Time.String(), "--batch", strconv.Itoa(trialBatch),
	}
	if a.Chosen.Storage == store.TimeSeries {
		// Where event time runs fast, requests that overtake each other would be
		// minutes apart, and the server begins a bucket for each that comes late.
		flags = append(flags, "--connections", "1")
	}
	return flags
}

// errLost says that a prediction cannot be held against a load of which not all
// arrived.
var errLost = errors.New("not all readings of the load were taken: try again on a machine that is less busy")

// follow starts a daemon as advised, puts the trial's load on it and looks at
// what is stored, whose amount for a day of all sensors is held against the
// prediction.
func (s *session) follow(ctx context.Context, a *Advice) (_ *Followed, err error) {
	t := a.trial(s.followReadings, s.followTime)
	out := &Followed{Serve: a.Flags(), Load: a.LoadFlags(t), Trial: t}
	s.lab.Step("following it: %d sensors, %s in %s", t.Sensors, Span(t.Event), Span(t.Time))
	d, err := s.lab.Daemon(ctx, s.m, out.Serve...)
	if err != nil {
		return nil, fmt.Errorf("follow the advice with %s: %w", strings.Join(out.Serve, " "), err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	r, err := d.Load(ctx, out.Load...)
	if err != nil {
		return nil, fmt.Errorf("follow the advice: %w", err)
	}
	if r.Failed > 0 || r.Dropped > 0 || r.Acked == 0 {
		return nil, fmt.Errorf("follow the advice: %d failed, %d dropped: %w", r.Failed, r.Dropped, errLost)
	}
	const patience = time.Minute
	if err := d.Flush(ctx, patience); err != nil {
		return nil, fmt.Errorf("follow the advice: %w", err)
	}
	if err := s.m.Checkpoint(ctx); err != nil {
		return nil, err
	}
	size, err := shape.SizeOf(ctx, s.m.Database(), "readings", a.Chosen.Storage == store.TimeSeries)
	if err != nil {
		return nil, err
	}
	share := a.Needs.perDay() / float64(r.Acked)
	out.Documents = Against{a.Chosen.Documents, float64(size.Documents) * share}
	out.Bytes = Against{a.Chosen.Bytes(), float64(size.Data()+size.Index()) * share}
	return out, nil
}
