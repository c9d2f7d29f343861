package journal_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
)

func TestInspectionBesideARunningDaemon(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir(), "first")
	j := open(t, cfg)
	mustAppend(t, j, makeBatch("readings", 0, 3))
	assertTaken(t, j, keyed("a", 1))
	mustAppend(t, j, makeBatch("events", 4, 2))
	j.Trim(follow(t, j, 0)[1].Position)
	require.NoError(t, j.Close())
	cfg.Session = "second"
	j = open(t, cfg)
	mustAppend(t, j, makeBatch("readings", 6, 4))

	report, err := journal.Inspect(cfg.Dir, nil)
	require.NoError(t, err)
	assert.True(t, report.Marked)
	assert.Equal(t, j.Oldest(), report.Applied)
	assert.Equal(t, j.End(), report.End)
	assert.Equal(t, j.Status().Bytes, report.Bytes)
	assert.Empty(t, report.Problems)
	assert.False(t, report.Damaged())
	assert.Equal(t, 1, report.Keys)
	assert.False(t, report.Oldest.IsZero())
	require.Len(t, report.Segments, 2)
	first := report.Segments[0]
	assert.Equal(t, "first", first.Session)
	assert.Equal(t, 3, first.Records)
	assert.EqualValues(t, 6, first.Readings)
	assert.EqualValues(t, 1, first.FirstSeq)
	assert.EqualValues(t, 6, first.LastSeq)
	assert.Equal(t, first.End, report.Segments[1].Base)
	assert.Equal(t, []journal.Unapplied{
		{Session: "first", Stream: "readings", Settings: streams()["readings"], Readings: 1},
		{Session: "first", Stream: "events", Settings: streams()["events"], Readings: 2},
		{Session: "second", Stream: "readings", Settings: streams()["readings"], Readings: 4},
	}, report.Unapplied)
}

func TestInspectionNamesEveryBadPlace(t *testing.T) {
	t.Parallel()
	files, records := closedJournal(t, 1)
	names := segmentsOf(files)
	files.Flip(names[0], int64(len(files.Bytes(names[0]))-1), 3)
	files.Flip(names[2], int64(len(files.Bytes(names[2]))-1), 3)
	report, err := journal.Inspect(fakeDir, files)
	require.NoError(t, err)
	assert.True(t, report.Damaged())
	require.Len(t, report.Problems, 2)
	assert.Equal(t, names[0], report.Problems[0].File)
	assert.Equal(t, records[5].Position, report.Problems[0].Position)
	assert.Equal(t, names[2], report.Problems[1].File)
	assert.Equal(t, records[17].Position, report.Problems[1].Position)
	for _, p := range report.Problems {
		assert.Contains(t, p.Wrong, "checksum")
		assert.False(t, p.Torn)
	}
	cfg := fakeConfig(files, "second", nil)
	_, err = journal.Open(cfg)
	var damage *journal.CorruptionError
	require.ErrorAs(t, err, &damage)
	assert.Equal(t, records[5].Position, damage.Position)
	assert.ErrorContains(t, err, "--journal-corruption=quarantine")

	cfg.AcceptLoss = true
	open(t, cfg)
	report, err = journal.Inspect(fakeDir, files)
	require.NoError(t, err)
	assert.False(t, report.Damaged())
	require.Len(t, report.GivenUp, 2)
	assert.Equal(t, records[5].Position, report.GivenUp[0].From)
	assert.Equal(t, records[5].Next, report.GivenUp[0].To)
	assert.True(t, strings.HasSuffix(report.GivenUp[0].Copy, ".journal.corrupt"))
}

func TestAMissingSegmentIsDamage(t *testing.T) {
	t.Parallel()
	files, _ := closedJournal(t, 1)
	for i, name := range segmentsOf(files) {
		disk := files.Clone()
		require.NoError(t, disk.Remove(name))
		_, err := journal.Open(fakeConfig(disk, "second", nil))
		var damage *journal.CorruptionError
		require.ErrorAs(t, err, &damage, "segment %d", i)
		report, err := journal.Inspect(fakeDir, disk)
		require.NoError(t, err)
		assert.True(t, report.Damaged())
		cfg := fakeConfig(disk, "second", nil)
		cfg.AcceptLoss = true
		j := open(t, cfg)
		assert.Len(t, follow(t, j, j.Oldest()), 12)
		mustAppend(t, j, makeBatch("readings", 0, 1))
		require.NoError(t, j.Close())
		j = open(t, fakeConfig(disk, "third", nil))
		assert.Len(t, follow(t, j, j.Oldest()), 13)
	}
}

func TestAMissingSegmentIsNamed(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first", nil))
	mustAppend(t, j, makeBatch("readings", 0, 3))
	end := j.End()
	require.NoError(t, j.Close())
	name := segmentsOf(files)[0]
	require.NoError(t, files.Remove(name))

	report, err := journal.Inspect(fakeDir, files)
	require.NoError(t, err)
	require.Len(t, report.Problems, 1)
	assert.Equal(t, fakeDir, report.Problems[0].File)

	cfg := fakeConfig(files, "second", nil)
	_, err = journal.Open(cfg)
	var damage *journal.CorruptionError
	require.ErrorAs(t, err, &damage)
	assert.Equal(t, fakeDir, damage.File)
	assert.Zero(t, damage.Position)
	assert.Equal(t, end, damage.Durable)
	require.ErrorContains(t, err, fmt.Sprintf("the journal in %s is damaged: the segment is missing that should hold positions 0 to %d, %s, for",
		fakeDir, end, filepath.Base(name)))
	assert.ErrorContains(t, err, "--journal-corruption=quarantine")

	cfg.AcceptLoss = true
	j = open(t, cfg)
	assert.Equal(t, end, j.Status().GivenUpBytes)
	mustAppend(t, j, makeBatch("readings", 3, 1))
	j.Trim(j.End())
	require.NoError(t, j.Close())
	for _, name := range files.Names() {
		assert.NotContains(t, name, ".corrupt")
	}

	// A segment that is missing and of which everything is at rest is no damage.
	require.NoError(t, files.Remove(segmentsOf(files)[0]))
	j = open(t, fakeConfig(files, "third", nil))
	assert.Empty(t, follow(t, j, j.Oldest()))
}

func TestAMissingLastSegmentIsNamed(t *testing.T) {
	t.Parallel()
	files, records := closedJournal(t, 1)
	names := segmentsOf(files)
	require.NoError(t, files.Remove(names[2]))
	_, err := journal.Open(fakeConfig(files, "second", nil))
	var damage *journal.CorruptionError
	require.ErrorAs(t, err, &damage)
	assert.Equal(t, names[1], damage.File)
	require.ErrorContains(t, err, fmt.Sprintf("%s behind it is missing, which should hold positions %d to %d",
		filepath.Base(names[2]), records[12].Position, records[17].Next))
}

func FuzzSegment(f *testing.F) {
	files := faulttest.NewFiles(1)
	j, err := journal.Open(fakeConfig(files, "first", nil))
	if err != nil {
		f.Fatal(err)
	}
	mustAppend(f, j, makeBatch("readings", 0, 3))
	if err := j.Close(); err != nil {
		f.Fatal(err)
	}
	name := segmentsOf(files)[0]
	whole := files.Bytes(name)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, off := range []bool{false, true} {
			disk := faulttest.NewFiles(1)
			disk.SetBytes(name, content)
			cfg := fakeConfig(disk, "second", nil)
			cfg.AcceptLoss = off
			j, err := journal.Open(cfg)
			if err != nil {
				continue
			}
			_, _ = walk(j, j.Oldest())
			mustAppend(t, j, makeBatch("readings", 0, 1))
			require.NoError(t, j.Close())
			_, err = journal.Inspect(fakeDir, disk)
			require.NoError(t, err)
		}
	})
}
