package transfer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/internal/transfer"
	"github.com/brim-telemetry/brim/pkg/client"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// fakeTarget keeps what is sent, once for each key. It refuses sensors called bad.
type fakeTarget struct {
	mu       sync.Mutex
	stored   []telemetry.Reading
	keys     map[string]bool
	requests int
	lose     int // the answer to this request is lost; 0: to none
}

func (d *fakeTarget) Send(ctx context.Context, r client.Request) (result client.Result, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		return result, ctx.Err()
	}
	d.requests++
	for i, one := range r.Readings {
		if one.Sensor == "bad" {
			result.Rejected++
			result.Refused = append(result.Refused, client.Refused{Index: i, Sensor: one.Sensor, Message: "it is bad"})
			continue
		}
		result.Accepted++
		if !d.keys[r.Key] {
			d.stored = append(d.stored, one)
		}
	}
	if d.keys == nil {
		d.keys = make(map[string]bool)
	}
	d.keys[r.Key] = true
	switch {
	case d.requests == d.lose:
		return client.Result{}, errAway
	case result.Rejected > 0:
		return result, &client.RefusedError{Result: result}
	}
	return result, nil
}

// counted are the values of the field n that were stored, in order.
func (d *fakeTarget) counted() (n []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.stored {
		n = append(n, r.Fields[0].Value.Int())
	}
	slices.Sort(n)
	return n
}

func upTo(n int) (all []int64) {
	for i := range n {
		all = append(all, int64(i))
	}
	return all
}

// lines are n readings as CSV.
func lines(n int) string {
	var b strings.Builder
	b.WriteString("ts,sensorId,n\n")
	for i := range n {
		fmt.Fprintf(&b, "%d,s-%d,%d\n", 1_795_000_000_000+i, i%10, i)
	}
	return b.String()
}

type heard struct {
	bad     []transfer.BadRow
	skipped []string
}

func importConfig(t *testing.T, h *heard, paths ...string) transfer.ImportConfig {
	t.Helper()
	return transfer.ImportConfig{
		Paths: paths, Stream: "readings", Daemon: "http://d", StateDir: t.TempDir(),
		Show:    func(transfer.ImportProgress) {},
		Refused: func(r transfer.BadRow) { h.bad = append(h.bad, r) },
		Skipped: func(path string, _ int64) { h.skipped = append(h.skipped, filepath.Base(path)) },
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestImportStoresNothingTwice loses the answer to one request after the other.
func TestImportStoresNothingTwice(t *testing.T) {
	t.Parallel()
	const n = 27_000 // six requests
	path := writeFile(t, "a.csv", lines(n))
	for lost := 1; lost <= 6; lost++ {
		var h heard
		d, c := &fakeTarget{lose: lost}, importConfig(t, &h, path)
		_, err := transfer.Import(t.Context(), d, c)
		require.ErrorIs(t, err, errAway)
		done, err := transfer.Import(t.Context(), d, c)
		require.NoError(t, err)
		assert.Equal(t, int64(n), done.Readings)
		require.Equal(t, upTo(n), d.counted(), "when the answer to request %d was lost", lost)

		before := d.requests
		done, err = transfer.Import(t.Context(), d, c)
		require.NoError(t, err)
		assert.Equal(t, transfer.Imported{Stream: "readings", Files: 1, Before: 1, ReadingsBefore: n}, done)
		assert.Equal(t, []string{"a.csv"}, h.skipped)
		assert.Equal(t, before, d.requests)
	}
}

// TestImportRemembersWithoutKeys: what was acknowledged is not sent again, even when the
// daemon has forgotten the keys.
func TestImportRemembersWithoutKeys(t *testing.T) {
	t.Parallel()
	const n = 27_000
	var h heard
	ctx, cancel := context.WithCancel(t.Context())
	d, c := &fakeTarget{}, importConfig(t, &h, writeFile(t, "a.csv", lines(n)))
	c.Show = func(p transfer.ImportProgress) {
		if p.Readings > 0 {
			cancel()
		}
	}
	_, err := transfer.Import(ctx, d, c)
	require.ErrorIs(t, err, context.Canceled)
	d.keys = nil
	done, err := transfer.Import(t.Context(), d, c)
	require.NoError(t, err)
	assert.True(t, done.Continued)
	assert.Equal(t, upTo(n), d.counted())

	c.Again = true
	done, err = transfer.Import(t.Context(), d, c)
	require.NoError(t, err)
	assert.Equal(t, int64(n), done.Readings)
	assert.Len(t, d.counted(), 2*n, "--again is meant")
}

// A second import of a file that is interrupted before its first answer sends the same keys again.
func TestImportAgainStoresNothingTwice(t *testing.T) {
	t.Parallel()
	const n = 100
	var h heard
	d, c := &fakeTarget{lose: 2}, importConfig(t, &h, writeFile(t, "a.csv", lines(n)))
	_, err := transfer.Import(t.Context(), d, c)
	require.NoError(t, err)
	c.Again = true
	_, err = transfer.Import(t.Context(), d, c)
	require.ErrorIs(t, err, errAway)
	_, err = transfer.Import(t.Context(), d, c)
	require.NoError(t, err)
	assert.Len(t, d.counted(), 2*n)
}

// It is the same import whether the format is given or comes from the file's name.
func TestImportWithTheFormatOfTheName(t *testing.T) {
	t.Parallel()
	var h heard
	var to fakeTarget
	cfg := importConfig(t, &h, writeFile(t, "a.csv", lines(10)))
	for _, cfg.Format = range []files.Format{"", files.CSV} {
		_, err := transfer.Import(t.Context(), &to, cfg)
		require.NoError(t, err)
	}
	assert.Equal(t, upTo(10), to.counted())
	assert.Equal(t, []string{"a.csv"}, h.skipped)
}

func TestImportReportsBadRows(t *testing.T) {
	t.Parallel()
	var h heard
	path := writeFile(t, "a.ndjson", `{"sensorId":"s","ts":0,"fields":{"n":0}}`+"\nnonsense\n"+`{"sensorId":"bad","ts":0,"fields":{"n":1}}`+"\n"+`{"sensorId":"s","ts":0,"fields":{"n":1}}`+"\n")
	d := &fakeTarget{}
	done, err := transfer.Import(t.Context(), d, importConfig(t, &h, path))
	require.NoError(t, err)
	assert.Equal(t, transfer.Imported{Stream: "readings", Files: 1, Readings: 2, Refused: 2}, done)
	assert.Equal(t, upTo(2), d.counted())
	require.Len(t, h.bad, 2)
	assert.Equal(t, int64(2), h.bad[0].Line)
	assert.Contains(t, h.bad[0].Message, "this is not a reading in JSON")
	assert.Equal(t, transfer.BadRow{Path: path, Line: 3, Message: "it is bad"}, h.bad[1])
}

func TestImportOfFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b/readings.csv": "ts,sensorId,n\n0,s,1\n", "a.ndjson": `{"sensorId":"s","ts":0,"fields":{"n":0}}`, "c.lp": "m n=2i 1000000\n",
		".hidden.csv": "nonsense", ".folder/a.csv": "nonsense", "readme.md": "nonsense",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var h heard
	d := &fakeTarget{}
	done, err := transfer.Import(t.Context(), d, importConfig(t, &h, dir))
	require.NoError(t, err)
	assert.Equal(t, 3, done.Files)
	assert.Equal(t, upTo(3), d.counted())

	named := importConfig(t, &h, os.DevNull)
	named.Format = files.CSV
	_, err = transfer.Import(t.Context(), d, named)
	require.ErrorContains(t, err, os.DevNull+" is a pipe or a device")

	for path, want := range map[string]string{
		t.TempDir():                         "has no file to import, whose name ends in .csv, ",
		filepath.Join(dir, "readme.md"):     "the end of its name does not tell its format; known are .csv, ",
		filepath.Join(dir, "missing.csv"):   "find what to import: ",
		writeFile(t, "a.csv", "a,b\n1,2\n"): "a.csv: the file has no column ts; ",
	} {
		_, err := transfer.Import(t.Context(), d, importConfig(t, &h, path))
		require.ErrorContains(t, err, want)
	}
}

// TestRoundTrip imports what was exported.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, f := range []files.Format{files.Parquet, files.CSV, files.NDJSON} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			s, dir, again := newSource(), t.TempDir(), t.TempDir()
			_, err := transfer.Export(t.Context(), s, config(dir, f))
			require.NoError(t, err)
			var h heard
			d := &fakeTarget{}
			_, err = transfer.Import(t.Context(), d, importConfig(t, &h, dir))
			require.NoError(t, err)
			assert.Empty(t, h.bad)
			copied := &fakeSource{readings: make(map[string][]telemetry.Reading), left: -2}
			for _, r := range d.stored {
				copied.readings[r.Sensor] = append(copied.readings[r.Sensor], r)
			}
			for _, all := range copied.readings {
				slices.SortFunc(all, func(a, b telemetry.Reading) int { return a.Time.Compare(b.Time) })
			}
			_, err = transfer.Export(t.Context(), copied, config(again, f))
			require.NoError(t, err)
			assert.Equal(t, readBack(t, dir, f), readBack(t, again, f))
		})
	}
}
