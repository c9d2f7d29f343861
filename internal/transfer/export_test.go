package transfer_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/internal/transfer"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("the daemon is away")

// fakeSource is a stream in memory. Its pages are small.
type fakeSource struct {
	readings map[string][]telemetry.Reading // in time order
	page     int                            // readings of a page at most; 0: 7

	mu    sync.Mutex
	left  int // calls until one fails; negative: none does
	calls int
	most  int // sensors of a page
}

func (s *fakeSource) call() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.left--
	if s.left == -1 {
		return errAway
	}
	return nil
}

func (s *fakeSource) Sensors(_ context.Context, prefix, after string, limit int) (page []telemetry.SensorSeen, next string, err error) {
	if err := s.call(); err != nil {
		return nil, "", err
	}
	for _, id := range slices.Sorted(maps.Keys(s.readings)) {
		if id <= after || !strings.HasPrefix(id, prefix) {
			continue
		}
		if len(page) == min(2, limit) {
			return page, page[len(page)-1].Sensor, nil
		}
		all := s.readings[id]
		page = append(page, telemetry.SensorSeen{Sensor: id, Newest: all[len(all)-1].Time.UnixMilli()})
		s.most = max(s.most, len(page))
	}
	return page, "", nil
}

func (s *fakeSource) Readings(_ context.Context, q transfer.PageQuery) (page transfer.Page, err error) {
	if err := s.call(); err != nil {
		return page, err
	}
	if q.Limit > 2000 {
		return page, transfer.ErrPageTooLarge
	}
	skip, _ := strconv.Atoi(cmp.Or(q.After, "0"))
	n := 0
	var all []telemetry.Reading
	for _, id := range q.Sensors {
		all = append(all, s.readings[id]...)
	}
	for _, r := range all {
		if ms := r.Time.UnixMilli(); ms < q.From || ms >= q.To {
			continue
		}
		if n++; n <= skip {
			continue
		}
		if n > skip+min(q.Limit, cmp.Or(s.page, 7)) {
			page.Next = strconv.Itoa(n - 1)
			break
		}
		page.Lines = append(r.AppendJSON(page.Lines), '\n')
	}
	return page, nil
}

var start = time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)

// newSource has five sensors over three days, of which the second has no readings.
func newSource() *fakeSource {
	s := &fakeSource{readings: make(map[string][]telemetry.Reading), left: -2}
	for sensor := range 5 {
		id := fmt.Sprintf("s-%d", sensor)
		for i := range 40 {
			r := telemetry.Reading{
				Sensor: id, Time: start.Add(time.Duration(i) * 5 * time.Minute),
				Fields: []telemetry.Field{{Name: "t", Value: telemetry.FloatValue(float64(i) / 4)}},
				Tags:   []telemetry.Tag{{Name: "site", Value: "north"}},
			}
			if i >= 20 {
				r.Time = r.Time.Add(36 * time.Hour)
			}
			if sensor == 3 && i == 39 { // a column that the first day does not have
				r.Fields = append(r.Fields, telemetry.Field{Name: "note", Value: telemetry.TextValue("last")}, telemetry.Field{Name: "n", Value: telemetry.IntValue(1)})
			}
			s.readings[id] = append(s.readings[id], r)
		}
	}
	return s
}

func config(dir string, f files.Format) transfer.ExportConfig {
	return transfer.ExportConfig{Dir: dir, Format: f, Asked: []string{"all"}, To: start.AddDate(1, 0, 0).UnixMilli()}
}

// content is what a folder has, by name.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		if !d.IsDir() {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			name, err := filepath.Rel(dir, path)
			require.NoError(t, err)
			all[name] = string(text)
		}
		return nil
	}))
	return all
}

// readBack returns the readings of an export.
func readBack(t *testing.T, dir string, f files.Format) (all []telemetry.Reading) {
	t.Helper()
	found := content(t, dir)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if strings.HasPrefix(name, ".") {
			continue
		}
		o := files.Options{}
		if f == files.CSV {
			o.Tags = []string{"site"}
		}
		for row, err := range files.Read(f, strings.NewReader(found[name]), int64(len(found[name])), o) {
			require.NoError(t, err)
			require.NoError(t, row.Err)
			slices.SortFunc(row.Reading.Fields, func(a, b telemetry.Field) int { return cmp.Compare(a.Name, b.Name) })
			all = append(all, row.Reading)
		}
	}
	return all
}

func TestExport(t *testing.T) {
	t.Parallel()
	for _, f := range []files.Format{files.Parquet, files.CSV, files.NDJSON} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			s, dir := newSource(), t.TempDir()
			done, err := transfer.Export(t.Context(), s, config(dir, f))
			require.NoError(t, err)
			done.Bytes = 0
			last := s.readings["s-3"][39].Time
			assert.Equal(t, transfer.Exported{
				Folder: dir, Format: f, From: "2026-11-20", To: "2026-11-22", Files: 2, Readings: 200,
				Begin: time.UnixMilli(start.UnixMilli()), End: time.UnixMilli(last.UnixMilli() + 1),
			}, done)
			found := content(t, dir)
			names := slices.Sorted(maps.Keys(found))
			assert.Equal(t, []string{".brim-export.json", "day=2026-11-20/readings." + string(f), "day=2026-11-22/readings." + string(f)}, names)
			want := make([]telemetry.Reading, 0, done.Readings)
			for _, later := range []bool{false, true} {
				for _, id := range slices.Sorted(maps.Keys(s.readings)) {
					for _, r := range s.readings[id] {
						if r.Time.After(start.Add(12*time.Hour)) == later {
							slices.SortFunc(r.Fields, func(a, b telemetry.Field) int { return cmp.Compare(a.Name, b.Name) })
							want = append(want, r)
						}
					}
				}
			}
			assert.Equal(t, want, readBack(t, dir, f))
			if f == files.CSV {
				first, _, _ := strings.Cut(found[names[1]], "\n")
				assert.Equal(t, "ts,sensorId,site,n,note,t", first, "all files have the columns of all days")
			}
			before := s.calls
			again, err := transfer.Export(t.Context(), s, config(dir, f))
			require.NoError(t, err)
			assert.True(t, again.Continued)
			assert.Equal(t, int64(200), again.Readings)
			assert.True(t, again.AlreadyComplete)
			assert.Equal(t, before, s.calls, "a complete export asks for nothing")

			file := filepath.Join(dir, names[2])
			require.NoError(t, os.Truncate(file, 1))
			_, err = transfer.Export(t.Context(), s, config(dir, f))
			require.ErrorContains(t, err, file+" has 1 bytes, and had ")
			require.NoError(t, os.Remove(file))
			_, err = transfer.Export(t.Context(), s, config(dir, f))
			require.ErrorContains(t, err, file+" is missing")
		})
	}
}

// TestExportContinues ends a run at every third request of the daemon.
func TestExportContinues(t *testing.T) {
	t.Parallel()
	for _, f := range []files.Format{files.Parquet, files.NDJSON} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			s, whole := newSource(), t.TempDir()
			_, err := transfer.Export(t.Context(), s, config(whole, f))
			require.NoError(t, err)
			want := readBack(t, whole, f)
			for failing := 0; failing < s.calls; failing += 3 {
				s, dir := newSource(), t.TempDir()
				s.left = failing
				_, err := transfer.Export(t.Context(), s, config(dir, f))
				require.ErrorIs(t, err, errAway)
				_, err = transfer.Export(t.Context(), s, config(dir, f))
				require.NoError(t, err)
				require.Equal(t, want, readBack(t, dir, f), "when call %d failed", failing)
			}
		})
	}
}

// TestExportIsInterruptedWhileFilesAreWritten cancels at each progress that is shown.
func TestExportIsInterruptedWhileFilesAreWritten(t *testing.T) {
	t.Parallel()
	s := newSource()
	s.page = 1000 // each page looks at all readings

	for i := range 30_000 { // files are shown to be written every 10,000 readings
		r := s.readings["s-0"][0]
		r.Time = start.Add(-time.Hour + time.Duration(i)*time.Millisecond)
		s.readings["s-4"] = slices.Insert(s.readings["s-4"], i, r)
	}
	dir := t.TempDir()
	c := config(dir, files.CSV)
	ctx, cancel := context.WithCancel(t.Context())
	writing := 0
	c.Show = func(p transfer.ExportProgress) {
		if p.Writing {
			if writing++; writing == 2 {
				cancel()
			}
		}
	}
	_, err := transfer.Export(ctx, s, c)
	require.ErrorIs(t, err, context.Canceled)
	before := s.calls
	done, err := transfer.Export(t.Context(), s, c)
	require.NoError(t, err)
	assert.Equal(t, int64(30_200), done.Readings)
	assert.Len(t, readBack(t, dir, files.CSV), 30_200)
	assert.Equal(t, before, s.calls, "all was read")
	for name := range content(t, dir) {
		assert.False(t, strings.HasPrefix(name, ".brim-export/"), name)
	}
}

func TestExportOfSomeSensorsAndTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := config(dir, files.NDJSON)
	c.Sensors, c.From, c.To = []string{"s-3", "s-1", "s-3"}, start.Add(10*time.Minute).UnixMilli(), start.Add(20*time.Minute).UnixMilli()
	s := newSource()
	s.readings["s-10"] = s.readings["s-1"]
	done, err := transfer.Export(t.Context(), s, c)
	require.NoError(t, err)
	assert.Equal(t, int64(4), done.Readings)
	assert.Equal(t, 1, s.most, "s-10 is not listed")
	var ids []string
	for _, r := range readBack(t, dir, files.NDJSON) {
		ids = append(ids, r.Sensor)
	}
	assert.Equal(t, []string{"s-1", "s-1", "s-3", "s-3"}, ids)

	late := t.TempDir() // begins with a day that has none
	c = config(late, files.NDJSON)
	c.From = start.AddDate(-20, 0, 0).UnixMilli()
	s = newSource()
	done, err = transfer.Export(t.Context(), s, c)
	require.NoError(t, err)
	assert.Equal(t, int64(200), done.Readings)
	assert.Less(t, s.calls, 200, "twenty years are not asked for day by day")

	none := t.TempDir()
	c = config(none, files.Parquet)
	c.From = start.AddDate(0, 6, 0).UnixMilli()
	done, err = transfer.Export(t.Context(), newSource(), c)
	require.NoError(t, err)
	assert.Equal(t, transfer.Exported{Folder: none, Format: files.Parquet}, done)

	c = config(t.TempDir(), files.CSV)
	c.Sensors = []string{"s"}
	_, err = transfer.Export(t.Context(), newSource(), c)
	assert.ErrorContains(t, err, `the stream has no sensor "s"`)
}

func TestExportRefusesFoldersOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := transfer.Export(t.Context(), newSource(), config(dir, files.CSV))
	require.NoError(t, err)
	other := config(dir, files.CSV)
	other.Asked = []string{"another"}
	_, err = transfer.Export(t.Context(), newSource(), other)
	require.ErrorContains(t, err, dir+" already contains a different export: all; this one is: another")

	taken := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(taken, "letter.txt"), nil, 0o600))
	_, err = transfer.Export(t.Context(), newSource(), config(taken, files.CSV))
	require.ErrorContains(t, err, taken+" is not empty")
	left, err := os.ReadDir(taken)
	require.NoError(t, err)
	assert.Len(t, left, 1, "nothing is added to a folder that is refused")

	require.NoError(t, os.WriteFile(filepath.Join(dir, ".brim-export.json"), bytes.Repeat([]byte("x"), 10), 0o600))
	_, err = transfer.Export(t.Context(), newSource(), config(dir, files.CSV))
	require.ErrorContains(t, err, "read what an earlier run left")
}
