package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"

	"github.com/brim-telemetry/brim/internal/store"
)

// writeConfig returns the path of a configuration file.
func writeConfig(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// origins returns where each setting's value came from.
func (c *configuration) origins() map[string]string {
	out := make(map[string]string)
	for _, e := range c.effective {
		out[e.name] = e.origin.Source
	}
	return out
}

func TestFlagWinsOverEnvironmentOverFileOverDefault(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "flush-interval: 4s\nstored-timeout: 4s\nmax-future: 4s\n")
	c := loadSettings(t, sources{
		flags: map[string]string{"flush-interval": "2s"},
		env:   []string{"BRIM_FLUSH_INTERVAL=3s", "BRIM_STORED_TIMEOUT=3s", "HOME=/root"},
		path:  path,
	})
	assert.Equal(t, 2*time.Second, c.FlushInterval)
	assert.Equal(t, 3*time.Second, c.StoredTimeout)
	assert.Equal(t, 4*time.Second, c.MaxFuture)
	assert.Equal(t, 15*time.Second, c.StopTimeout)

	origins := c.origins()
	assert.Equal(t, fromFlag, origins["flush-interval"])
	assert.Equal(t, fromEnv, origins["stored-timeout"])
	assert.Equal(t, fromFile, origins["max-future"])
	assert.Equal(t, fromDefault, origins["stop-timeout"])
}

func TestDefaultsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	c := loadSettings(t, sources{})
	want := stream{
		Name: "readings", Storage: store.Bucket, Granularity: 5 * time.Minute,
		BucketMaxReadings: 1000, BucketMaxBytes: 256 << 10, Compressor: store.Snappy, OtherFields: refuseReading, View: on,
	}
	assert.Equal(t, want, c.Default)
	assert.Equal(t, []stream{want}, c.Streams)
	assert.Equal(t, "brim", c.Database)
	assert.Equal(t, []string{"127.0.0.1:8430", "127.0.0.1:8431", "127.0.0.1:8432"}, []string{c.HTTPAddr, c.GRPCAddr, c.AdminAddr})
	assert.Equal(t, int64(8<<20), c.MaxBodyBytes)
	assert.Equal(t, int64(64<<20), c.MaxInflatedBytes)
	assert.Equal(t, 10_000, c.MaxReadingsPerRequest)
	for name, source := range c.origins() {
		assert.Equal(t, fromDefault, source, name)
	}
}

// TestEverySettingCanComeFromEverySource sets each one alone, to its default
// value, so that a misspelt variable or key would show.
func TestEverySettingCanComeFromEverySource(t *testing.T) {
	t.Parallel()
	for _, s := range (&settings{}).all() {
		assert.NotEmpty(t, s.usage, s.name)
		assert.NotEmpty(t, s.kind, s.name)
		c := loadSettings(t, sources{flags: map[string]string{s.name: s.initial}})
		assert.Equal(t, fromFlag, c.origins()[s.name], s.name)
		c = loadSettings(t, sources{env: []string{s.variable() + "=" + s.initial}})
		assert.Equal(t, fromEnv, c.origins()[s.name], s.name)
		key := s.path() + ": " + quoteYAML(s.initial)
		if s.key != "" {
			key = "line_protocol:\n  sensor_tag: " + quoteYAML(s.initial)
		}
		c = loadSettings(t, sources{path: writeConfig(t, key)})
		assert.Equal(t, fromFile, c.origins()[s.name], s.name)
	}
}

func TestTheFileCanBeNamedInTheEnvironment(t *testing.T) {
	t.Parallel()
	one, two := writeConfig(t, "lanes: 11"), writeConfig(t, "lanes: 22")
	assert.Equal(t, 11, loadSettings(t, sources{env: []string{"BRIM_CONFIG=" + one}}).Lanes)
	assert.Equal(t, 22, loadSettings(t, sources{env: []string{"BRIM_CONFIG=" + one}, path: two}).Lanes)
}

func TestUnknownVariablesAreErrorsButServiceLinksAreNot(t *testing.T) {
	t.Parallel()
	_, err := sources{env: []string{"BRIM_MONGO_URL=mongodb://h/"}}.load()
	require.ErrorContains(t, err, "BRIM_MONGO_URL (did you mean BRIM_MONGO_URI?); each flag that `brim serve --help` lists has a variable")
	assert.Equal(t, exitUsage, exitCode(err))

	loadSettings(t, sources{env: []string{
		"BRIM_URL=http://h/", "BRIMFUL=1",
		"BRIM_SERVICE_HOST=10.0.0.1", "BRIM_SERVICE_PORT=8430", "BRIM_SERVICE_PORT_HTTP=8430", "BRIM_PORT=tcp://10.0.0.1:8430",
		"BRIM_PORT_8430_TCP=tcp://10.0.0.1:8430", "BRIM_PORT_8430_TCP_ADDR=10.0.0.1", "BRIM_MONGO_SERVICE_HOST=10.0.0.2",
	}})
}

func TestEveryProblemIsToldWithItsPlace(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "granularity: 7m\nlanes: many\n")
	_, err := sources{
		flags: map[string]string{"storage": "files", "ack": "jurnaled"},
		env:   []string{"BRIM_RETENTION=-1h"},
		path:  path,
	}.load()
	for _, want := range []string{
		path + ":1: granularity: ", path + `:2: lanes: "many" is not a whole number from 1 to 256`,
		`--storage: "files" is unknown; allowed are bucket, timeseries, memory`,
		`--ack: ack "jurnaled" is unknown; allowed are journaled and stored`,
		`BRIM_RETENTION: "-1h" is not a duration of 0, or 1m to 24000d`,
	} {
		assert.ErrorContains(t, err, want)
	}
}

func TestRangesThatDependOnEachOther(t *testing.T) {
	t.Parallel()
	_, err := sources{flags: map[string]string{"max-body-bytes": "8MiB", "max-inflated-bytes": "1MiB"}}.load()
	assert.ErrorContains(t, err, "max-inflated-bytes 1MiB is less than max-body-bytes 8MiB")
}

func TestStreamsInheritWhatTheyDoNotSet(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, `
granularity: 10m
compressor: zstd
streams:
  machines:
    storage: timeseries
    retention: 30d
  quick: {granularity: 1m}
  plain:
`)
	c := loadSettings(t, sources{flags: map[string]string{"bucket-max-readings": "77"}, path: path})
	byName := make(map[string]stream)
	for _, s := range c.Streams {
		byName[s.Name] = s
	}
	base := stream{Granularity: 10 * time.Minute, Storage: store.Bucket, BucketMaxReadings: 77, BucketMaxBytes: 256 << 10, Compressor: store.Zstd, OtherFields: refuseReading, View: on}
	want := make(map[string]stream)
	for name, change := range map[string]func(*stream){
		"readings": func(*stream) {},
		"plain":    func(*stream) {},
		"quick":    func(s *stream) { s.Granularity = time.Minute },
		"machines": func(s *stream) { s.Storage, s.Retention = store.TimeSeries, 30*day },
	} {
		s := base
		s.Name = name
		change(&s)
		want[name] = s
	}
	assert.Equal(t, want, byName)
}

func TestTheDefaultStreamCanBeDescribedInTheFile(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "stream: main\nstreams:\n  main: {granularity: 1h}\n")
	c := loadSettings(t, sources{path: path})
	require.Len(t, c.Streams, 1)
	assert.Equal(t, time.Hour, c.Default.Granularity)
	assert.Equal(t, c.Default, c.Streams[0])
}

func TestOnlyStreamsInMemoryNeedNoMongoDB(t *testing.T) {
	t.Parallel()
	assert.False(t, loadSettings(t, sources{flags: map[string]string{"storage": "memory"}}).needsMongoDB())
	path := writeConfig(t, "storage: memory\nstreams:\n  kept: {storage: bucket}\n")
	assert.True(t, loadSettings(t, sources{path: path}).needsMongoDB())
}

func TestAckIsWhatTheJournalAllows(t *testing.T) {
	t.Parallel()
	assert.Equal(t, telemetry.Journaled, loadSettings(t, sources{}).Ack)
	c := loadSettings(t, sources{flags: map[string]string{"journal": "off"}})
	assert.Equal(t, telemetry.Stored, c.Ack, "without a journal there is no other")
	_, err := sources{flags: map[string]string{"journal": "off", "ack": "journaled"}}.load()
	assert.ErrorContains(t, err, "ack journaled needs a journal, and journal is off; allowed is stored")
}
