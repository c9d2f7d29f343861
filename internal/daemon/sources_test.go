package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// origins returns where each setting's value came from.
func (c *Config) origins() map[string]string {
	out := make(map[string]string)
	for _, e := range c.effective {
		out[e.Name] = e.origin.Source
	}
	return out
}

func TestFlagOverEnvironmentOverFileOverDefault(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "flush-interval: 4s\nstored-timeout: 4s\nmax-future: 4s\n")
	c := loadSettings(t, Sources{
		Flags: map[string]string{"flush-interval": "2s"},
		Env:   []string{"BRIM_FLUSH_INTERVAL=3s", "BRIM_STORED_TIMEOUT=3s", "HOME=/root"},
		Path:  path,
	})
	assert.Equal(t, 2*time.Second, c.Default.FlushInterval)
	assert.Equal(t, 3*time.Second, c.StoredTimeout)
	assert.Equal(t, 4*time.Second, c.MaxFuture)
	assert.Equal(t, 15*time.Second, c.StopTimeout)

	origins := c.origins()
	assert.Equal(t, fromFlag, origins["flush-interval"])
	assert.Equal(t, FromEnv, origins["stored-timeout"])
	assert.Equal(t, FromFile, origins["max-future"])
	assert.Equal(t, FromDefault, origins["stop-timeout"])
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c := loadSettings(t, Sources{})
	want := Stream{
		Name: "readings", Storage: store.Bucket, Granularity: 5 * time.Minute,
		BucketFormat: store.Documents, BucketMaxReadings: 1000, BucketMaxBytes: 256 << 10, FlushInterval: time.Second, FlushMax: 5 * time.Minute, FlushBudget: 0.02, MergeReadings: 60, Compressor: store.Snappy, OtherFields: refuseReading, View: On, Duplicates: store.Keep,
	}
	assert.Equal(t, want, c.Default)
	assert.Equal(t, []Stream{want}, c.Streams)
	assert.Equal(t, "brim", c.Database)
	assert.Equal(t, []string{"127.0.0.1:8430", "127.0.0.1:8431", "127.0.0.1:8432"}, []string{c.HTTPAddr, c.GRPCAddr, c.AdminAddr})
	assert.Equal(t, int64(8<<20), c.MaxBodyBytes)
	assert.Equal(t, int64(64<<20), c.MaxInflatedBytes)
	assert.Equal(t, 10_000, c.MaxReadingsPerRequest)
	for name, source := range c.origins() {
		assert.Equal(t, FromDefault, source, name)
	}
}

// TestEverySettingFromEverySource sets each setting to its default value, to
// reveal misspelt variables and keys.
func TestEverySettingFromEverySource(t *testing.T) {
	t.Parallel()
	for _, s := range (&Settings{}).All() {
		assert.NotEmpty(t, s.Usage, s.Name)
		assert.NotEmpty(t, s.Kind, s.Name)
		c := loadSettings(t, Sources{Flags: map[string]string{s.Name: s.Initial}})
		assert.Equal(t, fromFlag, c.origins()[s.Name], s.Name)
		c = loadSettings(t, Sources{Env: []string{s.Variable() + "=" + s.Initial}})
		assert.Equal(t, FromEnv, c.origins()[s.Name], s.Name)
		key := s.path() + ": " + quoteYAML(s.Initial)
		if s.key != "" {
			key = "line_protocol:\n  sensor_tag: " + quoteYAML(s.Initial)
		}
		c = loadSettings(t, Sources{Path: writeConfig(t, key)})
		assert.Equal(t, FromFile, c.origins()[s.Name], s.Name)
	}
}

func TestFileNamedInEnvironment(t *testing.T) {
	t.Parallel()
	one, two := writeConfig(t, "lanes: 11"), writeConfig(t, "lanes: 22")
	assert.Equal(t, 11, loadSettings(t, Sources{Env: []string{"BRIM_CONFIG=" + one}}).Lanes)
	assert.Equal(t, 22, loadSettings(t, Sources{Env: []string{"BRIM_CONFIG=" + one}, Path: two}).Lanes)
}

func TestUnknownVariablesAreErrors(t *testing.T) {
	t.Parallel()
	_, err := Sources{Env: []string{"BRIM_MONGO_URL=mongodb://h/"}}.Load()
	require.ErrorContains(t, err, "BRIM_MONGO_URL (did you mean BRIM_MONGO_URI?); each flag that `brim serve --help` lists has a variable")
	var misused config.UsageError
	require.ErrorAs(t, err, &misused)

	loadSettings(t, Sources{Env: []string{
		"BRIM_URL=http://h/", "BRIMFUL=1",
		"BRIM_SERVICE_HOST=10.0.0.1", "BRIM_SERVICE_PORT=8430", "BRIM_SERVICE_PORT_HTTP=8430", "BRIM_PORT=tcp://10.0.0.1:8430",
		"BRIM_PORT_8430_TCP=tcp://10.0.0.1:8430", "BRIM_PORT_8430_TCP_ADDR=10.0.0.1", "BRIM_MONGO_SERVICE_HOST=10.0.0.2",
	}})
}

func TestEveryProblemIsReportedWithItsPlace(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "granularity: 7m\nlanes: many\n")
	_, err := Sources{
		Flags: map[string]string{"storage": "files", "ack": "jurnaled"},
		Env:   []string{"BRIM_RETENTION=-1h"},
		Path:  path,
	}.Load()
	for _, want := range []string{
		path + ":1: granularity: ", path + `:2: lanes: "many" is not a whole number from 1 to 256`,
		`--storage: "files" is unknown; allowed: bucket, timeseries, memory`,
		`--ack: ack "jurnaled" is unknown; allowed: journaled and stored`,
		`BRIM_RETENTION: "-1h" is neither 0 nor a duration from 1m to 24000d`,
	} {
		assert.ErrorContains(t, err, want)
	}
}

func TestSettingsAreCheckedTogether(t *testing.T) {
	t.Parallel()
	_, err := Sources{Flags: map[string]string{"max-body-bytes": "8MiB", "max-inflated-bytes": "1MiB"}}.Load()
	assert.ErrorContains(t, err, "max-inflated-bytes 1MiB is less than max-body-bytes 8MiB")
}

func TestStreamsInheritFromTopLevel(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, `
granularity: 10m
compressor: zstd
streams:
  machines:
    storage: timeseries
    retention: 30d
  quick: {granularity: 1m, flush-budget: 0.5%, flush-max: 30s}
  plain:
`)
	c := loadSettings(t, Sources{Flags: map[string]string{"bucket-max-readings": "77"}, Path: path})
	byName := make(map[string]Stream)
	for _, s := range c.Streams {
		byName[s.Name] = s
	}
	base := Stream{Granularity: 10 * time.Minute, Storage: store.Bucket, BucketFormat: store.Documents, BucketMaxReadings: 77, BucketMaxBytes: 256 << 10, FlushInterval: time.Second, FlushMax: 5 * time.Minute, FlushBudget: 0.02, MergeReadings: 60, Compressor: store.Zstd, OtherFields: refuseReading, View: On, Duplicates: store.Keep}
	want := make(map[string]Stream)
	for name, change := range map[string]func(*Stream){
		"readings": func(*Stream) {},
		"plain":    func(*Stream) {},
		"quick":    func(s *Stream) { s.Granularity, s.FlushBudget, s.FlushMax = time.Minute, 0.005, 30*time.Second },
		"machines": func(s *Stream) { s.Storage, s.Retention = store.TimeSeries, 30*config.Day },
	} {
		s := base
		s.Name = name
		change(&s)
		want[name] = s
	}
	assert.Equal(t, want, byName)
}

func TestDefaultStreamInFile(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "stream: main\nstreams:\n  main: {granularity: 1h}\n")
	c := loadSettings(t, Sources{Path: path})
	require.Len(t, c.Streams, 1)
	assert.Equal(t, time.Hour, c.Default.Granularity)
	assert.Equal(t, c.Default, c.Streams[0])
}

func TestMemoryStreamsNeedNoMongoDB(t *testing.T) {
	t.Parallel()
	assert.False(t, loadSettings(t, Sources{Flags: map[string]string{"storage": "memory"}}).needsMongoDB())
	path := writeConfig(t, "storage: memory\nstreams:\n  kept: {storage: bucket}\n")
	assert.True(t, loadSettings(t, Sources{Path: path}).needsMongoDB())
}

func TestAckWithoutJournal(t *testing.T) {
	t.Parallel()
	assert.Equal(t, telemetry.Journaled, loadSettings(t, Sources{}).Ack)
	c := loadSettings(t, Sources{Flags: map[string]string{"journal": "off"}})
	assert.Equal(t, telemetry.Stored, c.Ack, "without a journal there is no other")
	_, err := Sources{Flags: map[string]string{"journal": "off", "ack": "journaled"}}.Load()
	assert.ErrorContains(t, err, "ack journaled needs a journal, and journal is off; allowed: stored")
}

func TestInvalidStreamNamesAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"readings", "a", "plant-2_hall", strings.Repeat("x", 64)} {
		assert.NoError(t, checkStreamName(name))
	}
	for _, name := range []string{"", "Readings", "system.users", "system", "a.b", "a b", "a$", "ä", "a/b", strings.Repeat("x", 65)} {
		assert.Error(t, checkStreamName(name), name)
	}
	assert.NoError(t, checkDatabase("brim_2-x"))
	for _, name := range []string{"", "admin", "local", "config", "a.b", "a b", "a$b", `a"`, strings.Repeat("x", 64)} {
		assert.Error(t, checkDatabase(name), name)
	}
	for text, ok := range map[string]bool{"": true, "_": true, "-": true, ".": false, "$": false, "__": false, " ": false, "ä": false, "\x00": false} {
		assert.Equal(t, ok, checkMapDots(text) == nil, "%q", text)
	}
}

func TestFormatOfBucketsHasItsOwnDefaults(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "bucket-format: columns\nstreams:\n  a: {bucket-max-readings: 50}\n  b: {bucket-format: documents}\n")
	c, err := Sources{Path: path}.Load()
	require.NoError(t, err)
	type defaults struct {
		readings, bytes int
		seal            time.Duration
	}
	for name, want := range map[string]defaults{
		"readings": {20_000, 2 << 20, 2 * time.Hour}, "a": {50, 2 << 20, 2 * time.Hour}, "b": {1000, 256 << 10, 0},
	} {
		s := c.stream(name)
		assert.Equal(t, want, defaults{s.BucketMaxReadings, s.BucketMaxBytes, s.SealAfter}, name)
	}
	_, err = Sources{Flags: map[string]string{"seal-after": "9m"}}.Load()
	assert.ErrorContains(t, err, "seal-after 9m is less than twice the 5m")
}

func TestRollupsNeedSealedBuckets(t *testing.T) {
	t.Parallel()
	for want, flags := range map[string]map[string]string{
		"":                                          {"rollup": "1h", "seal-after": "2h", "rollup-retention": "3650d", "retention": "7d"},
		"rollup needs seal-after":                   {"rollup": "1h"},
		"rollup 7m does not divide a day":           {"rollup": "7m", "seal-after": "2h"},
		"rollup needs --storage bucket":             {"rollup": "1h", "seal-after": "2h", "storage": "timeseries"},
		"rollup-retention needs rollup":             {"rollup-retention": "30d"},
		"rollup-retention 3d is shorter":            {"rollup": "1h", "seal-after": "2h", "rollup-retention": "3d", "retention": "7d"},
		"rollup-retention 30d is shorter":           {"rollup": "1h", "seal-after": "2h", "rollup-retention": "30d"},
		"is neither 0 nor a duration from 1m to 1d": {"rollup": "30s", "seal-after": "2h"},
		"is neither 0 nor a duration from 1d to":    {"rollup": "1h", "seal-after": "2h", "rollup-retention": "1h"},
	} {
		c, err := Sources{Flags: flags}.Load()
		if want == "" {
			require.NoError(t, err)
			assert.Equal(t, []time.Duration{time.Hour, 3650 * 24 * time.Hour}, []time.Duration{c.Default.Rollup, c.Default.RollupRetention})
			continue
		}
		assert.ErrorContains(t, err, want)
	}
	_, err := Sources{Flags: map[string]string{"rollup": "1h"}, Path: writeConfig(t, "bucket-format: columns\n")}.Load()
	assert.NoError(t, err, "columns are sealed by default")
}
