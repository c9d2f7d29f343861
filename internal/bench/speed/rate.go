package speed

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
)

const (
	mostPastDue = 10              // seconds that an update may be late
	held        = 5 * time.Minute // how long a rate is held, after as long as readings may wait
	heldSped    = 40 * time.Second
	// defaultQueue is the default of --queue-max-bytes.
	defaultQueue = 1 << 30
)

// A climb tries increasing rates of a course.
type climb struct {
	course

	rates  []int         // readings a second
	length time.Duration // of each, after as long as readings may wait
}

// climbers is a course of sensors that report every 5 s, as many as a rate needs.
func climbers() course {
	c := often()
	c.name = "sensors that report every 5 s"
	return c
}

// climbing returns the rates to try. If time is sped up, less waits in memory, so the memory
// is reduced by the same factor.
func climbing(c course, length time.Duration) climb {
	if c.speedup > 1 {
		c.flags = []string{"--queue-max-bytes", strconv.Itoa(defaultQueue / c.speedup)}
	}
	return climb{course: c, rates: []int{6_000, 12_000, 20_000, 30_000, 45_000, 60_000}, length: length}
}

// rate searches for the highest rate at which no update is late.
func (t *trial) rate(ctx context.Context, c climb) {
	highest := 0
	for _, rate := range c.rates {
		c.sensors = int(float64(rate) * c.interval.Seconds())
		t.lab.Step("rate of %d readings/s, %v", rate, c.waits()+c.length)
		ok := false
		t.on(ctx, slices.Concat(c.serve(), []string{"--stop-timeout", "1s"}), func(ctx context.Context, r *rig) { ok = r.hold(ctx, &c) })
		if !ok {
			break
		}
		highest = rate
	}
	t.lab.Add("highest", c.row(throughBrim), rateOf, float64(highest))
}

// hold puts a load on the daemon, and reports whether it keeps up.
func (r *rig) hold(ctx context.Context, c *climb) (ok bool) {
	wait := r.StartLoad(ctx, c.load(c.waits()+c.length, "--target", "grpc://"+r.GRPC, "--http", "http://"+r.HTTP)...)
	bench.Check(machine.Pause(ctx, c.waits()))
	w := r.watch(ctx)
	var result *load.Result
	spent := r.Measure(ctx, r.m, func(context.Context) (err error) {
		result, err = wait()
		return errors.Join(err, w.stop())
	})
	row := c.row(bench.PerSecond.Format(float64(c.sensors) / c.interval.Seconds()))
	first, last, growing := grows(w.pastDue)
	lost := result.Dropped + result.Failed + result.Rejected
	ok = lost == 0 && w.pastDue.Max() <= mostPastDue && !growing
	if err := r.Flush(ctx, time.Minute); errors.Is(err, launch.ErrNotInTime) {
		ok = false
	} else {
		bench.Check(err)
	}
	_, peak := r.memory()
	r.lab.Row("rates", row, result.AchievedRate, float64(lost), first, last, w.pastDue.Max(), updatesIn(&spent).Mean(),
		spent.CPU/spent.Seconds, spent.Brim/spent.Seconds, peak, w.journal.Max(), w.unseen.Max(), map[bool]float64{true: 1}[ok])
	r.addTriggers(row, &spent)
	return ok
}

func rateTables() []bench.Table {
	return []bench.Table{
		{
			Name: "rates", Title: "Rates that were tried, 100 readings a request over gRPC", Variant: "rate", Measures: ratesMeasures(),
			Note: "Late: how late the most overdue update was, in the first and the last third of the time, and at most. Held: 1 if no update was more than 10 s late, lateness did not grow, no reading was refused, and all were stored a minute later.",
		},
		{
			Name: "highest", Title: "The highest rate that was held", Variant: "sensors", Measures: bench.In(bench.PerSecond, rateOf),
			Note: "Among the rates that were tried.",
		},
	}
}

func ratesMeasures() []bench.Measure {
	return []bench.Measure{
		{Name: rateOf, Unit: bench.PerSecond}, {Name: "refused", Unit: bench.Count},
		{Name: "late, first third", Unit: bench.Seconds}, {Name: "late, last third", Unit: bench.Seconds}, {Name: "late at most", Unit: bench.Seconds},
		{Name: perUpdateOf, Unit: bench.Count}, {Name: "mongod cores", Unit: bench.Count}, {Name: "brim cores", Unit: bench.Count},
		{Name: peakOf, Unit: bench.Bytes}, {Name: "journal", Unit: bench.Bytes}, {Name: mostUnseenOf, Unit: bench.Seconds}, {Name: heldOf, Unit: bench.Count},
	}
}
