package console

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// worked returns the file of a daemon that worked for two minutes.
func worked(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "console-history")
	d := newDaemon(t, noon)
	c := d.console(t, func(cfg *Config) { cfg.File = file })
	c.sample()
	d.rejected.WithLabelValues("ts_out_of_range").Add(5)
	d.run(c, 119)
	c.save()
	return file
}

func TestHistorySurvivesARestart(t *testing.T) {
	t.Parallel()
	file := worked(t)
	d := newDaemon(t, noon.Add(150*time.Second))
	c := d.console(t, func(cfg *Config) { cfg.File = file })
	c.sample()
	d.rejected.WithLabelValues("ts_out_of_range").Add(2)
	d.run(c, 30)
	h := c.history
	assert.Len(t, h.seconds, 120+31)
	g := c.glance("readings")
	assert.Equal(t, []count{{Name: "ts_out_of_range", Recent: 7, Total: 2}}, g.counts(metricRejected))
	writes := 0.0
	for _, tenth := range g.tenths {
		writes += tenth.Count
	}
	assert.Equal(t, updates*149.0, writes)

	_, body := get(t, c, "/console")
	assert.Contains(t, body, "Dotted vertical lines")
	entries, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing is left beside the file")
}

func TestOldHistoryIsForgotten(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon.Add(time.Hour))
	file := worked(t)
	c := d.console(t, func(cfg *Config) { cfg.File = file })
	assert.Empty(t, c.history.seconds)
	assert.Empty(t, c.history.minutes)
}

func TestDamagedHistoryIsIgnored(t *testing.T) {
	t.Parallel()
	sound, err := os.ReadFile(worked(t))
	require.NoError(t, err)
	flipped := bytes.Clone(sound)
	flipped[len(flipped)/2] ^= 1
	for name, content := range map[string][]byte{
		"empty": {}, "text": []byte("{}"), "cut off": sound[:len(sound)/2], "a bit flipped": flipped, "checksum cut off": sound[:len(sound)-4],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "history")
			require.NoError(t, os.WriteFile(file, content, 0o600))
			var log bytes.Buffer
			d := newDaemon(t, noon.Add(3*time.Minute))
			c := d.console(t, func(cfg *Config) { cfg.File, cfg.Logger = file, slog.New(slog.NewTextHandler(&log, nil)) })
			assert.Empty(t, c.history.seconds)
			assert.Contains(t, log.String(), "starts empty")
			c.sample()
			c.save()
			_, err := read(file)
			assert.NoError(t, err, "it is replaced by a sound one")
		})
	}
}

func TestHistoryOfAnotherFormatIsIgnored(t *testing.T) {
	t.Parallel()
	for _, s := range []*saved{
		{Format: fileFormat + 1},
		{Format: fileFormat, Minutes: []minute{{Writes: map[bucketFill]scrape.Histogram{{Tenth: 10}: {}}}}},
		{Format: fileFormat, Minutes: []minute{{Writes: map[bucketFill]scrape.Histogram{{Tenth: -1}: {}}}}},
	} {
		var content bytes.Buffer
		require.NoError(t, s.encode(&content))
		file := filepath.Join(t.TempDir(), "history")
		require.NoError(t, os.WriteFile(file, content.Bytes(), 0o600))
		_, err := read(file)
		assert.ErrorContains(t, err, "read the history")
	}
}

func TestUnwritableFileIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	dir := filepath.Join(t.TempDir(), "missing")
	d := newDaemon(t, noon)
	c := d.console(t, func(cfg *Config) {
		cfg.File, cfg.Logger = filepath.Join(dir, "history"), slog.New(slog.NewTextHandler(&log, nil))
	})
	c.sample()
	c.save()
	c.save()
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("cannot save")))
	require.NoError(t, os.Mkdir(dir, 0o700))
	c.save()
	assert.Contains(t, log.String(), "saved again")
}

// TestFailedSaveReplacesNothing also checks that the file left by an interrupted save is
// overwritten.
func TestFailedSaveReplacesNothing(t *testing.T) {
	t.Parallel()
	file := worked(t)
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(file+".new", 0o700)) // so that it cannot be written
	require.Error(t, replace(file, []byte("half of")))
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, before, after)
	assert.NoFileExists(t, file+".new")

	require.NoError(t, os.WriteFile(file+".new", bytes.Repeat([]byte("crash"), 1e5), 0o600))
	c := newDaemon(t, noon).console(t, func(cfg *Config) { cfg.File = file })
	c.sample()
	c.save()
	entries, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Len(t, entries, 1)
	_, err = read(file)
	assert.NoError(t, err)
}

// A full disk takes some bytes and then no more.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), f.left)
	f.left -= n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func TestFullDiskIsReported(t *testing.T) {
	t.Parallel()
	s, err := read(worked(t))
	require.NoError(t, err)
	var whole bytes.Buffer
	require.NoError(t, s.encode(&whole))
	for _, space := range []int{0, 5, whole.Len() / 2} { // not the last bytes: the length varies with the order of maps
		assert.ErrorIs(t, s.encode(&full{left: space}), io.ErrShortWrite, "%d bytes", space)
	}
}

// TestFileIsSavedEveryTenSeconds, so a crash loses no more.
func TestFileIsSavedEveryTenSeconds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "console-history")
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, noon)
		c := d.console(t, func(cfg *Config) { cfg.File, cfg.Now = file, nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); c.Run(ctx) }()
		for i := range 3 {
			<-time.After(saveInterval - time.Second/2) // by the clock of the bubble
			synctest.Wait()
			assert.NoFileExists(t, file, "round %d", i)
			<-time.After(time.Second / 2)
			synctest.Wait()
			require.NoError(t, os.Remove(file), "round %d", i)
		}
		cancel()
		<-done
		assert.FileExists(t, file, "the last sample is saved")
	})
}

func BenchmarkSave(b *testing.B) {
	d := newDaemon(b, noon)
	c := d.console(b, func(cfg *Config) { cfg.File = filepath.Join(b.TempDir(), "history") })
	d.run(c, 900)
	for b.Loop() {
		c.save()
	}
	info, err := os.Stat(c.cfg.File)
	require.NoError(b, err)
	b.ReportMetric(float64(info.Size()), "file-bytes")
}
