package advise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dashboards are sensors every 5 s that are queried by the hour.
func dashboards(t *testing.T, change ...func(*Needs)) Needs {
	t.Helper()
	return needs(t, Needs{Sensors: 10_000, Interval: 5 * time.Second, Fields: 4, QuerySpan: time.Hour, Retention: 90 * day}, change...)
}

// meters are read once a minute, and by the month.
func meters(t *testing.T, change ...func(*Needs)) Needs {
	t.Helper()
	return needs(t, Needs{Sensors: 50_000, Interval: time.Minute, Fields: 2, QuerySpan: 30 * day, Retention: 1825 * day}, change...)
}

// signal is one fast sensor.
func signal(t *testing.T, change ...func(*Needs)) Needs {
	t.Helper()
	return needs(t, Needs{Sensors: 1, Interval: 2777 * time.Microsecond, Fields: 1, QuerySpan: 10 * time.Minute, Retention: 30 * day}, change...)
}

func needs(t *testing.T, n Needs, change ...func(*Needs)) Needs {
	t.Helper()
	for _, c := range change {
		c(&n)
	}
	n, err := n.complete()
	require.NoError(t, err)
	return n
}

func TestNeedsThatMakeNoSenseAreRefusedWithWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for what, wrong := range map[string]func(*Needs){
		"sensors: 0 is not allowed; from 1":                            func(n *Needs) { n.Sensors = 0 },
		"sensors: -3 is not allowed":                                   func(n *Needs) { n.Sensors = -3 },
		"fields: 257 is not allowed; from 1 to 256":                    func(n *Needs) { n.Fields = 257 },
		"interval: 500µs is not allowed; from 1ms to 30d":              func(n *Needs) { n.Interval = 500 * time.Microsecond },
		"interval: -1s is not allowed":                                 func(n *Needs) { n.Interval = -time.Second },
		"query span: 0s is not allowed":                                func(n *Needs) { n.QuerySpan = 0 },
		"retention: -1h is not allowed":                                func(n *Needs) { n.Retention = -time.Hour },
		"retention: 30s is shorter than the shortest bucket, of 1m":    func(n *Needs) { n.Retention = 30 * time.Second },
		"query span: 1h is longer than the retention of 30m":           func(n *Needs) { n.Retention = 30 * time.Minute },
		"query span: 1h is shorter than the interval of 2h":            func(n *Needs) { n.Interval = 2 * time.Hour },
		"longest wait: 2h is not allowed; from 1ms to 1h":              func(n *Needs) { n.MaxWait = 2 * time.Hour },
		"queries a day: -1 is not allowed":                             func(n *Needs) { n.Queries = -1 },
		"readings a day are more than one MongoDB takes":               func(n *Needs) { n.Sensors, n.Interval = MaxSensors, time.Millisecond },
		`duplicates "some" is unknown; allowed are never and rare`:     func(n *Needs) { n.Duplicates = "some" },
		"price of a core-hour: -1 is not allowed":                      func(n *Needs) { n.CoreHour = -1 },
		"bytes a day for the disk to write: -1 is not allowed; from 1": func(n *Needs) { n.DiskWrites = -1 },
	} {
		n := dashboards(t)
		wrong(&n)
		require.ErrorContains(t, n.Check(), what)
	}
}

func TestEveryReadingIsReadOnceUnlessSaidOtherwise(t *testing.T) {
	t.Parallel()
	n := dashboards(t)
	assert.InDelta(t, 240_000, n.Queries, 1e-6)
	assert.Equal(t, Never, n.Duplicates)
	assert.InDelta(t, 7, dashboards(t, func(n *Needs) { n.Queries = 7 }).Queries, 0)
	assert.Equal(t, 365*day, dashboards(t, func(n *Needs) { n.Retention = 0 }).kept())
}

func TestSpansAreWrittenAsTheConfigurationReadsThem(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{"90d": 90 * day, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "2.777ms": 2777 * time.Microsecond, "1m30s": 90 * time.Second} {
		assert.Equal(t, want, Span(d))
	}
}
