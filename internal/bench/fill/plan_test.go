package fill

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSensorsMakeThePublishedRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hour    time.Duration
		sensors int
	}{{time.Minute, 167}, {30 * time.Second, 84}, {20 * time.Second, 56}, {time.Hour, 10_000}} {
		assert.Equal(t, c.sensors, plan{hour: c.hour}.sensors(), c.hour)
	}
}

func TestPhasesEndOnABoundary(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{true, false} {
		p := newPlan(quick, 3)
		for _, w := range windows() {
			phase := p.phase(w)
			event := time.Duration(phase.Duration.Seconds() * phase.Speedup * float64(time.Second)).Round(time.Second)
			assert.Zero(t, event%w.granularity, "%s: a phase is %v of event time", w.cell, event)
			assert.Equal(t, w.granularity == time.Hour, phase.oneWindow(), w.cell)
		}
	}
}

func TestCellsThatAreComparedAreInEveryRound(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for round := range 3 {
		for n, w := range windows() {
			if (plan{repeats: 3}).inRound(round, n, w) {
				seen[w.cell]++
			}
		}
	}
	for _, w := range windows() {
		want := 1
		if w.verdict {
			want = 3
		}
		assert.Equal(t, want, seen[w.cell], w.cell)
	}
}

func TestPrefilledBucketsHaveRoomForAllThatIsWritten(t *testing.T) {
	t.Parallel()
	hour := int(time.Hour / interval)
	for _, p := range []plan{newPlan(false, 3), newPlan(false, 100), newPlan(true, 3), newPlan(true, 100), newPlan(true, 1)} {
		n := p.prefilledRepeats()
		assert.GreaterOrEqual(t, n, min(p.repeats, 3), p)
		rows := 95*hour/100 + n*(p.readingsOf(p.slot)+p.burst())
		assert.LessOrEqual(t, rows, hour, p)
	}
}

func TestPhaseFlags(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		phase phase
		flags []string
	}{
		{
			phase{Sensors: 3, Speedup: 60, Duration: time.Minute},
			[]string{"--sensors", "3", "--interval", "5s", "--duration", "1m0s", "--seed", "1", "--speedup", "60", "--batch", "10"},
		},
		{
			phase{Sensors: 3, Duration: time.Minute, Speedup: 2.5, Start: start, Prefix: "p-"},
			[]string{"--sensors", "3", "--interval", "5s", "--duration", "1m0s", "--seed", "1", "--speedup", "2.5", "--batch", "10", "--start", "2026-01-02T03:00:00Z", "--sensor-prefix", "p-"},
		},
	} {
		assert.Equal(t, c.flags, c.phase.flags(0))
	}
}

func TestReadingsWaitShorterWhereTimeIsFaster(t *testing.T) {
	t.Parallel()
	p := newPlan(false, 3)
	for _, c := range []struct {
		window
		most string
	}{{window{granularity: time.Hour}, "5s"}, {window{granularity: 5 * time.Minute}, "5s"}, {window{granularity: time.Minute}, "1s"}} {
		assert.Equal(t, []string{"--flush-max", c.most}, p.serve(c.window), c.granularity)
	}
}

func TestQuickExperimentHasTheCellsThatClaimsAreAbout(t *testing.T) {
	t.Parallel()
	var quick []string
	for _, c := range Experiment().Cells {
		if c.Slow == "" {
			quick = append(quick, c.Name)
		}
	}
	assert.Equal(t, []string{"1h-single", "1h-merged", "1h-timeseries", "5m-single", "prefilled-5", "prefilled-95"}, quick)
}
