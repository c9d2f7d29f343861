package doctor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A recordedSample is one of a pair: the answers of a server, and two lines of
// its machine's /proc. Times are milliseconds since 1970.
type recordedSample struct {
	At            int64                      `json:"at"`
	ServerStatus  json.RawMessage            `json:"serverStatus"`
	Processors    float64                    `json:"processors"`
	HistoryWindow float64                    `json:"history_window_seconds"`
	CollStats     map[string]json.RawMessage `json:"collStats"`
	DiskAt        int64                      `json:"disk_at"`
	Diskstats     string                     `json:"proc_diskstats"`
	Stat          string                     `json:"proc_stat"`
}

// sample reads a recorded sample as the doctor reads a live one.
func (r recordedSample) sample(t testing.TB) sample {
	t.Helper()
	at := time.UnixMilli(r.At)
	out := sample{at: at, answered: true, cores: r.Processors, historyWindow: r.HistoryWindow, collections: make(map[string]collection)}
	out.server, out.serverWhy = parseStatus(fromJSON(t, r.ServerStatus), at)
	for name, raw := range r.CollStats {
		c := parseCollection([]bson.Raw{fromJSON(t, raw)}, false)
		c.name = name
		out.collections[name] = c
	}
	proc := t.TempDir()
	for file, line := range map[string]string{"diskstats": r.Diskstats, "stat": r.Stat} {
		require.NoError(t, os.WriteFile(filepath.Join(proc, file), []byte(line+"\n"), 0o600))
	}
	number := strings.Fields(r.Diskstats)
	major, err := strconv.ParseUint(number[0], 10, 32)
	require.NoError(t, err)
	minor, err := strconv.ParseUint(number[1], 10, 32)
	require.NoError(t, err)
	machine := linux(uint32(major), uint32(minor))
	machine.proc = proc
	machine.space = func(string) (size, free float64, err error) { return 270e9, 90e9, nil }
	out.disk = machine.sample("/data/db")
	require.Empty(t, out.disk.why)
	out.disk.at = time.UnixMilli(r.DiskAt)
	out.machine = machine.machine()
	return out
}

func fromJSON(t testing.TB, raw []byte) bson.Raw {
	t.Helper()
	var out bson.Raw
	require.NoError(t, bson.UnmarshalExtJSON(raw, false, &out))
	return out
}

// recordedSeen reads a pair of samples from testdata/recorded.
func recordedSeen(t testing.TB, name string) Seen {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "recorded", name+".json"))
	require.NoError(t, err)
	var file struct {
		Recorded string           `json:"recorded"`
		Looks    []recordedSample `json:"looks"`
	}
	require.NoError(t, json.Unmarshal(raw, &file))
	require.NotEmpty(t, file.Recorded, "it says how it was recorded")
	require.Len(t, file.Looks, 2)
	before, now := file.Looks[0].sample(t), file.Looks[1].sample(t)
	// The slowdown lasted since the server's start, so its counters have no baseline:
	// assume that updates take six times as long as usual.
	if now.path = pathOfServer(before, now, ratesBetween(before, now)); !now.path.Idle {
		now.path = WritePath{Seconds: 0.06, Baseline: 0.01}
	}
	return newSeen(before, now, nil)
}

// TestRecordedSamplesAreDiagnosed compares findings with what was made slow on purpose
// during each recording: that and its consequences are found, in this order, and
// nothing else, and not without the row. All but those of a healthy server and of a
// fragmented file were recorded on two CPUs that were busy with other work.
func TestRecordedSamplesAreDiagnosed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		found []string // what was made slow first
		class Class    // of the first finding
		says  string   // in the first finding's evidence and action
	}{
		"idle": {nil, Healthy, ""},
		"history-window-300": {[]string{foundHistory, foundProcessor}, Degrading,
			`history store 3,698 inserts/s.*minSnapshotHistoryWindowInSeconds is 300.*setParameter: 1, minSnapshotHistoryWindowInSeconds: 0`},
		"history-window-0":     {[]string{foundProcessor}, Bottleneck, `mongod uses 1 of 2 CPUs`},
		"long-reader":          {[]string{foundHostCPU, foundReaders}, Bottleneck, `CPU busy`},
		"tiny-cache":           {[]string{foundCache, foundEviction, foundProcessor}, Bottleneck, `cache dirty 17.6 %.*the cache has 16.8 MB`},
		"small-cache":          {[]string{foundHostCPU, foundCache}, Bottleneck, `CPU busy 99.5 %; mongod uses 0.95 of 2 CPUs`},
		"disk-iops":            {[]string{foundIOPS, foundHostCPU}, Bottleneck, `disk busy 92.3 %, disk latency 5.97 ms.*46.6 KiB per operation \(loop0`},
		"disk-throughput":      {[]string{foundThroughput, foundHostCPU}, Bottleneck, `disk busy 83.6 %.*disk written 10.8 MB/s; 234 KiB per operation`},
		"disk-latency":         {[]string{foundLatency}, Bottleneck, `disk busy 13.9 %, disk latency 13.5 ms`},
		"checkpoint":           {[]string{foundHostCPU, foundCheckpoint, foundFragmented}, Bottleneck, `mongod uses 0.13 of 2 CPUs`},
		"checkpoint-slow-disk": {[]string{foundThroughput, foundHostCPU, foundCheckpoint, foundFragmented}, Bottleneck, `disk latency 65.4 ms`},
		"tickets":              {[]string{foundHostCPU, foundTickets}, Bottleneck, `all processes on this host 100 %`},
		"fragmented":           {[]string{foundFragmented}, Bottleneck, `80.6 of the 121 MB of stream readings are empty.*brim compact --stream readings`},
		"dirty":                {[]string{foundHostCPU}, Bottleneck, `mongod uses 0.09 of 2 CPUs`},
		"processor":            {[]string{foundHostCPU}, Bottleneck, `CPU busy`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := recordedSeen(t, name)
			found := diagnoseWith(&seen, diagnoses)
			assert.Equal(t, c.found, namesIn(found))
			if len(c.found) == 0 {
				assert.Equal(t, Healthy, worstOf(seen.Signals))
				return
			}
			require.NotEmpty(t, found)
			assert.Equal(t, c.class, found[0].Class)
			assert.Regexp(t, c.says, found[0].Evidence+"; "+found[0].Action)
			for _, rule := range c.found {
				others := slices.DeleteFunc(slices.Clone(diagnoses), func(d diagnosis) bool { return d.name == rule })
				left := slices.DeleteFunc(slices.Clone(c.found), func(f string) bool { return f == rule })
				if len(left) == 0 {
					left = nil
				}
				assert.ElementsMatch(t, left, namesIn(diagnoseWith(&seen, others)), "without the rule of %s", rule)
			}
		})
	}
}

// TestEveryRuleHasARecordedSample: diagnoses must be proven on real servers.
func TestEveryRuleHasARecordedSample(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/recorded/*.json")
	require.NoError(t, err)
	found := make(map[string]bool)
	for _, file := range files {
		for _, name := range namesIn(Diagnose(recordedSeen(t, strings.TrimSuffix(filepath.Base(file), ".json")))) {
			found[name] = true
		}
	}
	for i := range diagnoses {
		switch diagnoses[i].name {
		case foundAway, foundDiskFull, foundDiskSpace, foundNetwork: // made on purpose in internal/faulttest
		case foundLate, foundUnsealed: // the daemon's figures, see TestLateUpdates and TestSealLag
		default:
			assert.True(t, found[diagnoses[i].name], diagnoses[i].name)
		}
	}
}
