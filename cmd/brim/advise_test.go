package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench/advise"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/store"
)

// TestTheAdvisedConfigurationIsCorrect loads it like `brim config check` and the daemon, and
// finds the advised values in it.
func TestTheAdvisedConfigurationIsCorrect(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]*advise.Advice{
		"buckets": {
			Needs:  advise.Needs{Sensors: 1, Interval: 2777 * time.Microsecond, Fields: 1, QuerySpan: 90 * time.Minute, Retention: 30 * config.Day},
			Chosen: advise.Cost{Candidate: advise.Candidate{Storage: store.Bucket, Granularity: time.Minute, MaxReadings: 21_607, MaxBytes: 1 << 20, Compressor: store.Zstd}, Flush: 10 * time.Second, MergeReadings: 3602, Checkpoint: 2 * time.Minute},
		},
		"columns": {
			Needs:  advise.Needs{Sensors: 9, Interval: time.Minute, Fields: 4, QuerySpan: 30 * config.Day},
			Chosen: advise.Cost{Candidate: advise.Candidate{Storage: store.Bucket, Granularity: time.Hour, MaxReadings: 20_000, MaxBytes: 1 << 20, Compressor: store.Snappy, Columns: true}, Flush: time.Minute, Checkpoint: time.Minute},
		},
		"a time series, kept for ever": {
			Needs:  advise.Needs{Sensors: 9, Interval: time.Minute, Fields: 4, QuerySpan: 30 * config.Day},
			Chosen: advise.Cost{Candidate: advise.Candidate{Storage: store.TimeSeries, Granularity: time.Hour, Compressor: store.Snappy}, Flush: 300 * time.Millisecond, Checkpoint: time.Minute},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "brim.yaml")
			require.NoError(t, os.WriteFile(path, []byte(a.YAML()), 0o600))
			got := runBrim(t, nil, "config", "check", path)
			require.NoError(t, got.err, got.stdout)
			c := loadSettings(t, daemon.Sources{Path: path})
			require.Len(t, c.Streams, 1)
			s := c.Streams[0]
			assert.Equal(t, a.Chosen.Storage, s.Storage)
			assert.Equal(t, a.Chosen.Granularity, s.Granularity)
			assert.Equal(t, a.Chosen.Compressor, s.Compressor)
			assert.Equal(t, a.Chosen.Flush, s.FlushMax)
			assert.Equal(t, min(a.Chosen.Flush, time.Second), s.FlushInterval)
			assert.Equal(t, max(a.Chosen.MergeReadings, 60), s.MergeReadings)
			assert.Equal(t, a.Needs.Retention, s.Retention)
			if s.Storage == store.Bucket {
				assert.Equal(t, a.Chosen.MaxReadings, s.BucketMaxReadings)
				assert.Equal(t, a.Chosen.MaxBytes, s.BucketMaxBytes)
				assert.Equal(t, a.Chosen.Columns, s.BucketFormat == store.Columns)
			}
			flags := loadSettings(t, daemon.Sources{Flags: flagsOf(t, a.Flags())})
			assert.Equal(t, s.FlushMax, flags.Default.FlushMax)
			assert.Equal(t, s.FlushInterval, flags.Default.FlushInterval)
			assert.Equal(t, s.MergeReadings, flags.Default.MergeReadings)
			assert.Equal(t, s.Retention, flags.Default.Retention)
			assert.Equal(t, s.BucketMaxBytes, flags.Default.BucketMaxBytes)
			assert.Equal(t, s.Granularity, flags.Default.Granularity)
		})
	}
}

// flagsOf separates the names and values of flags.
func flagsOf(t *testing.T, args []string) map[string]string {
	t.Helper()
	require.Zero(t, len(args)%2)
	flags := make(map[string]string)
	for i := 0; i < len(args); i += 2 {
		flags[args[i][2:]] = args[i+1]
	}
	return flags
}

func TestInvalidAdviceFlagsAreUsageErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--sensors", "0"}, `"0" is not a whole number from 1`},
		{[]string{"--sensors", "-5"}, `"-5" is not a whole number from 1`},
		{[]string{"--interval", "0s"}, "is not a duration from 1ms to 30d"},
		{[]string{"--interval", "-5s"}, "is not a duration from 1ms to 30d"},
		{[]string{"--interval", "2777"}, "is not a duration"},
		{[]string{"--fields", "300"}, "from 1 to 256"},
		{[]string{"--retention", "30s"}, "is neither 0 nor a duration from 1m"},
		{[]string{"--retention", "10m", "--query-span", "1h"}, "query span: 1h is longer than the retention of 10m"},
		{[]string{"--interval", "1d", "--query-span", "1h"}, "query span: 1h is shorter than the interval of 1d"},
		{[]string{"--duplicates", "often"}, "allowed: never, rare"},
		{[]string{"--disk-writes", "lots"}, "is not a size"},
		{[]string{"--sensor", "5"}, "--sensor: unknown flag (did you mean --sensors?)"},
		{[]string{"--mongo-uri", ""}, "leave it out for a mongod of its own"},
		{[]string{"10000"}, `brim advise takes no arguments, and was given "10000"`},
	} {
		got := runBrim(t, nil, append([]string{"advise"}, c.args...)...)
		assert.Equal(t, exitUsage, got.code, c.args)
		require.ErrorContains(t, got.err, c.want, c.args)
		assert.Empty(t, got.stdout)
	}
}

func TestWrongPredictionFails(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkFollowed(nil))
	require.NoError(t, checkFollowed(&advise.Followed{Documents: advise.Against{Predicted: 100, Seen: 114}, Bytes: advise.Against{Predicted: 100, Seen: 86}}))
	err := checkFollowed(&advise.Followed{Documents: advise.Against{Predicted: 100, Seen: 100}, Bytes: advise.Against{Predicted: 100, Seen: 84}})
	require.ErrorContains(t, err, "the bytes that were stored differ by -16 %")
}
