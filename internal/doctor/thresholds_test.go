package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThresholdsOfAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ours.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`# ours
disk_busy: {degrading: 60, bottleneck: 90}
disk_await:
  nvme: {degrading: 1, bottleneck: 4}
write_tickets:
  degrading: 10
  bottleneck: 1.5
`), 0o600))
	own, err := LoadThresholds(path)
	require.NoError(t, err)
	before, now := twoSamples()
	work(&now, 5.5, 1000, 8192, 0.7)
	of := func(t *Thresholds) Seen { return newSeen(before, now, t) }
	builtIn, ours := of(nil), of(own)
	assert.Equal(t, Degrading, builtIn.Signal(diskBusy).Class)
	assert.Equal(t, Degrading, builtIn.Signal(diskAwait).Class)
	assert.Equal(t, Healthy, ours.Signal(diskBusy).Class)
	assert.Equal(t, Healthy, ours.Signal(diskAwait).Class)
	assert.Empty(t, Diagnose(ours))
	assert.Equal(t, path+":2", ours.Signal(diskBusy).Source)
	assert.Equal(t, path+":4", ours.Signal(diskAwait).Source)
	assert.Equal(t, Threshold{Degrading: 10, Bottleneck: 1.5, Below: true}, ours.Signal(writeTickets).Threshold)
	assert.Equal(t, builtIn.Signal(readTickets), ours.Signal(readTickets), "what the file does not name is as it was")

	for _, s := range own.unmeasured("ssd") {
		if s.Name == diskAwait {
			assert.Equal(t, published+", for an SSD", s.Source, "the file is about NVMe alone")
		}
	}
	assert.Equal(t, awaits[diskUnknown].threshold, (*Thresholds)(nil).unmeasured("floppy")[1].Threshold)
}

func TestThresholdsOfAMonitorChange(t *testing.T) {
	t.Parallel()
	own, err := parseThresholds("ours.yaml", []byte("disk_busy: {degrading: 60, bottleneck: 90}\n"))
	require.NoError(t, err)
	m, err := New(Config{Database: nowhere(t).Database("brim"), Thresholds: own})
	require.NoError(t, err)
	before, now := twoSamples()
	source := func() string {
		seen := m.view(now, view{last: before}).Seen
		return seen.Signal(diskBusy).Source
	}
	assert.Equal(t, "ours.yaml:1", source())
	m.SetThresholds(nil)
	assert.Equal(t, published, source())
}

func TestInvalidThresholdsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, problem string }{
		"an unknown signal":        {"disk_buzy: {degrading: 1, bottleneck: 2}", `f.yaml:1: unknown key disk_buzy (did you mean disk_busy?); allowed: disk_busy, disk_await, disk_free, processor,`},
		"an unknown half":          {"disk_busy: {degrading: 1, fatal: 2}", `f.yaml:1: unknown key disk_busy.fatal; allowed: degrading, bottleneck`},
		"a half that is missing":   {"\n\ndisk_busy:\n  degrading: 60", "f.yaml:3: disk_busy: bottleneck is missing; both are needed, as in {degrading: 50, bottleneck: 80}"},
		"the other half":           {"cache_used: {bottleneck: 99}", "f.yaml:1: cache_used: degrading is missing"},
		"the wrong order":          {"disk_busy: {degrading: 90, bottleneck: 60}", "f.yaml:1: disk_busy: bottleneck must not be less than degrading; it is 60, and degrading is 90"},
		"the wrong order of small": {"read_tickets: {degrading: 5, bottleneck: 20}", "f.yaml:1: read_tickets: lower values are worse"},
		"an unknown kind of disk":  {"disk_await:\n  tape: {degrading: 1, bottleneck: 2}", `f.yaml:2: unknown key disk_await.tape; allowed: nvme, ssd, hdd, unknown`},
		"no kind of disk":          {"disk_await: {degrading: 1, bottleneck: 2}", `f.yaml:1: unknown key disk_await.degrading; allowed: nvme, ssd, hdd, unknown`},
		"no number":                {"disk_busy: {degrading: much, bottleneck: 2}", `f.yaml:1: disk_busy.degrading: "much" is not a number of at least 0, in %`},
		"more than any number":     {"disk_busy: {degrading: 1, bottleneck: .inf}", `".inf" is not a number of at least 0`},
		"less than nothing":        {"history_store: {degrading: -1, bottleneck: 120}", `"-1" is not a number of at least 0, in inserts/s`},
		"not a number":             {"history_store: {degrading: .nan, bottleneck: 120}", `".nan" is not a number`},
		"no halves":                {"disk_busy: 60", "f.yaml:1: disk_busy must hold keys with values; allowed: degrading, bottleneck"},
		"a signal without":         {"disk_busy:", "f.yaml:1: disk_busy: degrading is missing"},
		"a list":                   {"- disk_busy", "f.yaml:1: the file must hold keys with values; allowed: disk_busy, disk_await,"},
		"a name twice":             {"disk_busy: {degrading: 1, bottleneck: 2}\ndisk_busy: {degrading: 1, bottleneck: 3}", `f.yaml:2: mapping key "disk_busy" already defined at line 1`},
		"no YAML":                  {"disk_busy: {", "f.yaml:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseThresholds("f.yaml", []byte(c.content))
			require.ErrorContains(t, err, c.problem)
		})
	}
	_, err := parseThresholds("f.yaml", []byte("disk_busy: 60\ncache: 3\n"))
	require.ErrorContains(t, err, "f.yaml:1:")
	require.ErrorContains(t, err, "f.yaml:2:", "all that is wrong is told")
	_, err = LoadThresholds(filepath.Join(t.TempDir(), "gone.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
	none, err := parseThresholds("f.yaml", []byte("# nothing\n"))
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprint((*Thresholds)(nil).unmeasured("ssd")), fmt.Sprint(none.unmeasured("ssd")))
}

// FuzzThresholds: a file is either refused by name, or all of its thresholds
// are in order.
func FuzzThresholds(f *testing.F) {
	for _, seed := range []string{
		"disk_busy: {degrading: 60, bottleneck: 90}", "disk_await: {nvme: {degrading: 1, bottleneck: 2}}", "a: &a {degrading: 1, bottleneck: 2}\ndisk_busy: *a",
		"disk_busy: &b {degrading: *b}", "read_tickets: {degrading: 1e1, bottleneck: 0x1}", "? [x]\n: y",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		own, err := parseThresholds("f.yaml", []byte(content))
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "f.yaml:"), err)
			return
		}
		for _, s := range own.unmeasured("hdd") {
			worse := s.Threshold.Bottleneck - s.Threshold.Degrading
			if s.Threshold.Below {
				worse = -worse
			}
			require.GreaterOrEqual(t, worse, 0.0, s.Name)
		}
	})
}
