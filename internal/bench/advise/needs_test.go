package advise

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dashboards are sensors that report every 5 s and are queried by the hour.
func dashboards(t *testing.T, change ...func(*Needs)) Needs {
	t.Helper()
	return needs(t, Needs{Sensors: 10_000, Interval: 5 * time.Second, Fields: 4, QuerySpan: time.Hour, Retention: 90 * day}, change...)
}

// meters are read once a minute and queried by the month.
func meters(t *testing.T, change ...func(*Needs)) Needs {
	t.Helper()
	return needs(t, Needs{Sensors: 50_000, Interval: time.Minute, Fields: 2, QuerySpan: 30 * day, Retention: 1825 * day}, change...)
}

// signal is a single fast sensor.
func signal(t *testing.T, change ...func(*Needs)) Needs {
	t.Helper()
	return needs(t, Needs{Sensors: 1, Interval: 2777 * time.Microsecond, Fields: 1, QuerySpan: 10 * time.Minute, Retention: 30 * day}, change...)
}

func needs(t *testing.T, n Needs, change ...func(*Needs)) Needs {
	t.Helper()
	for _, c := range change {
		c(&n)
	}
	n.MaxWait, n.Batch, n.Duplicates = cmp.Or(n.MaxWait, DefaultMaxWait), 1, cmp.Or(n.Duplicates, Never)
	n.CoreHour, n.GBMonth, n.DiskWrites = DefaultCoreHour, DefaultGBMonth, defaultDiskWrites
	require.NoError(t, n.Check())
	return n.complete()
}

// TestContradictionsAreRefused covers contradictions; flags check the bounds of single numbers.
func TestContradictionsAreRefused(t *testing.T) {
	t.Parallel()
	for what, wrong := range map[string]func(*Needs){
		"retention: 30s is shorter than the shortest bucket, of 1m": func(n *Needs) { n.Retention = 30 * time.Second },
		"query span: 1h is longer than the retention of 30m":        func(n *Needs) { n.Retention = 30 * time.Minute },
		"query span: 1h is shorter than the interval of 2h":         func(n *Needs) { n.Interval = 2 * time.Hour },
		"readings a day are more than one MongoDB takes":            func(n *Needs) { n.Sensors, n.Interval = MaxSensors, time.Millisecond },
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
	assert.InDelta(t, 7, dashboards(t, func(n *Needs) { n.Queries = 7 }).Queries, 0)
	assert.Equal(t, 365*day, dashboards(t, func(n *Needs) { n.Retention = 0 }).kept())
}
