package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/daemon"
)

const sampleConfig = `
http-addr: 127.0.0.1:9000
max-body-bytes: 1048576
line_protocol:
  sensor_tag: host
map-dots: _
streams:
  machines: {storage: timeseries, granularity: 1h, retention: 30d}
  plain: {}
`

func TestPrintedConfigurationMakesTheSameSettings(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, sampleConfig)
	printed := runBrim(t, []string{"BRIM_LANES=7", "BRIM_LOG_LEVEL=debug"}, "config", "print", "--config", path, "--bucket-max-bytes", "64KiB")
	require.NoError(t, printed.err)

	want := loadSettings(t, daemon.Sources{Flags: map[string]string{"bucket-max-bytes": "64KiB"}, Env: []string{"BRIM_LANES=7", "BRIM_LOG_LEVEL=debug"}, Path: path})
	again := loadSettings(t, daemon.Sources{Path: writeConfig(t, printed.stdout)})
	assert.Equal(t, want.Settings, again.Settings)
}

func TestPrintedConfigurationSaysWhereEachValueCameFrom(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, sampleConfig)
	got := runBrim(t, []string{"BRIM_LANES=7"}, "config", "print", "--config", path, "--bucket-max-bytes", "64KiB")
	require.NoError(t, got.err)
	for _, line := range []string{
		`(?m)^lanes: 7 +# environment BRIM_LANES$`,
		`(?m)^http-addr: 127\.0\.0\.1:9000 +# file .*brim\.yaml:2$`,
		`(?m)^bucket-max-bytes: 64KiB +# flag --bucket-max-bytes$`,
		`(?m)^database: brim +# default$`,
		`(?m)^line_protocol:\n  sensor_tag: host +# file .*brim\.yaml:5$`,
		`(?m)^  machines:\n    storage: timeseries +# file .*brim\.yaml:8\n`,
		`(?m)^  plain: \{\}$`,
	} {
		assert.Regexp(t, line, got.stdout)
	}

	got = runBrim(t, []string{"BRIM_LANES=7"}, "config", "print", "--config", path, "--output", "json")
	require.NoError(t, got.err)
	var d daemon.Described
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &d))
	assert.Contains(t, d.Settings, daemon.Shown{Name: "lanes", Value: "7", Origin: daemon.Origin{Source: daemon.FromEnv, Place: "BRIM_LANES"}})
	assert.Contains(t, d.Streams["machines"], daemon.Shown{Name: "retention", Value: "30d", Origin: daemon.Origin{Source: daemon.FromFile, Place: path + ":8"}})
	assert.Contains(t, d.Streams["plain"], daemon.Shown{Name: "retention", Value: "0", Origin: daemon.Origin{Source: daemon.FromDefault}})
}

func TestPasswordsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"text", "json"} {
		got := runBrim(t, []string{"BRIM_MONGO_URI=mongodb://user:hush@h/"}, "config", "print", "--output", output)
		require.NoError(t, got.err)
		assert.NotContains(t, got.stdout, "hush")
		assert.Contains(t, got.stdout, "mongodb://user:***@h/")
	}
	// Masked values would not work, so the file omits them.
	got := runBrim(t, []string{"BRIM_MONGO_URI=mongodb://user:hush@h/"}, "config", "print")
	assert.Regexp(t, `(?m)^# mongo-uri: .* give it in BRIM_MONGO_URI$`, got.stdout)
	assert.Empty(t, loadSettings(t, daemon.Sources{Path: writeConfig(t, got.stdout)}).MongoURI)

	// A URI without a secret is kept.
	got = runBrim(t, nil, "config", "print", "--mongo-uri", "mongodb://user@h/")
	assert.Equal(t, "mongodb://user@h/", loadSettings(t, daemon.Sources{Path: writeConfig(t, got.stdout)}).MongoURI)
}

func TestCheckTellsAllProblemsAndIgnoresTheEnvironment(t *testing.T) {
	t.Parallel()
	good := writeConfig(t, sampleConfig)
	got := runBrim(t, []string{"BRIM_LANES=none"}, "config", "check", good)
	require.NoError(t, got.err)
	assert.Equal(t, good+" is correct; streams: machines, plain, readings\n", got.stdout)

	bad := writeConfig(t, "lanes: 0\ncolor: red\n")
	got = runBrim(t, nil, "config", "check", bad)
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stdout, bad+":1: lanes: ")
	assert.Contains(t, got.stdout, bad+":2: unknown key color")

	got = runBrim(t, nil, "config", "check", bad, "--output", "json")
	assert.Equal(t, exitFailed, got.code)
	var c checked
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &c))
	assert.False(t, c.OK)
	assert.Len(t, c.Problems, 2)
}

func TestCheckTellsOfListenersThatWouldNotOpen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, place, says string }{
		{"http-addr: 0.0.0.0:8430\n", ":1: http-addr: ", "0.0.0.0:8430 would open HTTP beyond this machine"},
		{"lanes: 4\nadmin-addr: :8432\n", ":2: admin-addr: ", "an address of this machine like 127.0.0.1:8432"},
		{"grpc-addr: '[2001:db8::1]:8431'\n", ":1: grpc-addr: ", "--allow-unauthenticated on"},
		{"http-addr: '[::ffff:127.0.0.1]:8430'\ngrpc-addr: '[::1]:8431'\nadmin-addr: 127.0.0.9:8432\n", "", ""},
		{"http-addr: brim.example.org:8430\n", "", ""},
		{"http-addr: :8430\nallow-unauthenticated: on\n", "", ""},
		{"http-addr: :8430\naccess-file: /etc/brim/access.yaml\n", "", ""},
	} {
		path := writeConfig(t, c.file)
		got := runBrim(t, nil, "config", "check", path)
		if c.says == "" {
			assert.NoError(t, got.err, "%s: %s", c.file, got.stdout)
			continue
		}
		assert.Equal(t, exitFailed, got.code, c.file)
		assert.Contains(t, got.stdout, path+c.place)
		assert.Contains(t, got.stdout, c.says)
	}
}
