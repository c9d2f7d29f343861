package queue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func letterOf(id string, value telemetry.Value) DeadLetter {
	return DeadLetter{
		ID: id, Stream: "readings", Reason: errors.New("poison"),
		Reading: telemetry.Reading{
			Sensor: "s", Time: time.UnixMilli(1).UTC(),
			Fields: []telemetry.Field{{Name: "v", Value: value}},
		},
	}
}

// newLetters returns a file in a folder that does not exist yet.
func newLetters(t *testing.T) *DeadLetterFile {
	t.Helper()
	return &DeadLetterFile{Path: filepath.Join(t.TempDir(), "data", DeadLettersName)}
}

func ids(letters []KeptLetter) (all []string) {
	for _, l := range letters {
		all = append(all, l.ID)
	}
	return all
}

func TestLettersAreReadBackExactly(t *testing.T) {
	t.Parallel()
	f := newLetters(t)
	require.NoError(t, f.Put(letterOf("s1-1", telemetry.IntValue(9007199254740993))))
	require.NoError(t, f.Put(letterOf("s1-2", telemetry.FloatValue(3))))
	require.NoError(t, f.Put(letterOf("s1-1", telemetry.IntValue(9007199254740993))))
	letters, broken, err := f.Read()
	require.NoError(t, err)
	assert.Empty(t, broken)
	require.Equal(t, []string{"s1-1", "s1-2"}, ids(letters), "a letter that was put twice is one")
	assert.Contains(t, string(letters[0].Reading), `"ts":"1970-01-01T00:00:00.001Z","fields":{"v":9007199254740993}`)
	assert.Contains(t, string(letters[1].Reading), `{"v":3.0}`)
	assert.Equal(t, "poison", letters[0].Reason)
	at, err := time.Parse(time.RFC3339, letters[0].At)
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), at, time.Hour)
}

func TestReadCreatesNoFiles(t *testing.T) {
	t.Parallel()
	f := newLetters(t)
	letters, broken, err := f.Read()
	require.NoError(t, err)
	assert.Empty(t, letters)
	assert.Empty(t, broken)
	require.NoError(t, f.Settle(map[string]Outcome{"a": {Gone: true}}))
	assert.NoDirExists(t, filepath.Dir(f.Path))
}

func TestABrokenLineHidesNoOther(t *testing.T) {
	t.Parallel()
	f := newLetters(t)
	require.NoError(t, f.Put(letterOf("a", telemetry.IntValue(1))))
	file, err := os.OpenFile(f.Path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString("\n{\"id\":\"x\"}\n{\"at\":\"2026-11-21T10:00:00.000Z\",\"stream\":\"old\",\"reason\":\"r\",\"reading\":{}}\n{\"id\":\"torn\",\"str")
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.NoError(t, f.Put(letterOf("b", telemetry.IntValue(2))))

	letters, broken, err := f.Read()
	require.NoError(t, err)
	require.Len(t, letters, 3)
	assert.Equal(t, "a", letters[0].ID)
	assert.Regexp(t, `^x[0-9a-f]{16}$`, letters[1].ID, "a letter without an id gets one that stays")
	assert.Equal(t, "b", letters[2].ID)
	require.Len(t, broken, 2)
	assert.Equal(t, 3, broken[0].Number)
	assert.ErrorContains(t, broken[0].Err, "no stream or no reading")
	assert.Equal(t, 5, broken[1].Number)

	require.NoError(t, f.Settle(map[string]Outcome{letters[1].ID: {Reason: "again"}, "a": {Gone: true}}))
	after, broken, err := f.Read()
	require.NoError(t, err)
	assert.Equal(t, []string{letters[1].ID, "b"}, ids(after))
	assert.Equal(t, "again", after[0].Reason)
	assert.Equal(t, letters[1].Reading, after[0].Reading)
	assert.Len(t, broken, 2, "what is no letter is kept")
}

func TestPutDuringSettleLosesNothing(t *testing.T) {
	t.Parallel()
	f := newLetters(t)
	const n = 15
	for i := range n {
		require.NoError(t, f.Put(letterOf(fmt.Sprintf("old-%d", i), telemetry.IntValue(0))))
	}
	var work sync.WaitGroup
	for w := range 2 { // each with a lock of its own, as processes have
		other := &DeadLetterFile{Path: f.Path}
		work.Go(func() {
			for i := range n {
				assert.NoError(t, other.Put(letterOf(fmt.Sprintf("new-%d-%d", w, i), telemetry.IntValue(0))))
			}
		})
	}
	settler := &DeadLetterFile{Path: f.Path}
	for i := range n {
		require.NoError(t, settler.Settle(map[string]Outcome{fmt.Sprintf("old-%d", i): {Gone: true}}))
	}
	work.Wait()
	letters, broken, err := f.Read()
	require.NoError(t, err)
	assert.Empty(t, broken)
	assert.Len(t, letters, 2*n)
	assert.NotContains(t, strings.Join(ids(letters), " "), "old")
	left, err := filepath.Glob(filepath.Join(filepath.Dir(f.Path), ".new-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestALetterThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	f := &DeadLetterFile{Path: filepath.Join(blocked, DeadLettersName)}
	assert.ErrorContains(t, f.Put(letterOf("a", telemetry.IntValue(1))), "make folder of dead letters")
	f = &DeadLetterFile{Path: t.TempDir()}
	assert.ErrorContains(t, f.Put(letterOf("a", telemetry.IntValue(1))), "write dead letter: open")
}
