//go:build fault

package crash

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/brim-telemetry/brim/internal/journal"
)

// counted returns a point, and how often the process would have ended at it.
func counted(t *testing.T, text string) (p *point, ended *int) {
	t.Helper()
	p, err := parse(text)
	require.NoError(t, err)
	ended = new(int)
	p.crash = func(at string) {
		assert.Equal(t, p.name, at)
		*ended++
	}
	return p, ended
}

func TestPointsOfSegments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int{ // ends after each step
		"write.before": {1, 1, 1, 1}, "write.after:2": {0, 1, 1, 1}, "write.after:3": {0, 0, 0, 0},
		"sync.before": {0, 0, 1, 1}, "sync.after": {0, 0, 1, 1}, "remove.before": {0, 0, 0, 1}, "remove.after": {0, 0, 0, 1}, "": {0, 0, 0, 0},
	} {
		p, ended := counted(t, text)
		fs := files{journal.Disk(), p}
		for _, name := range []string{"mark", "00000000000000000000" + segmentSuffix} {
			f, err := fs.Create(filepath.Join(t.TempDir(), name))
			require.NoError(t, err)
			path := f.(file).name
			var got []int
			for _, step := range []func() error{
				func() error { _, err := f.WriteAt([]byte("a"), 0); return err },
				func() error { _, err := f.WriteAt([]byte("b"), 1); return err },
				f.Sync,
				func() error { return fs.Remove(path) },
			} {
				require.NoError(t, step())
				got = append(got, *ended)
			}
			require.NoError(t, f.Close())
			if name == "mark" {
				assert.Equal(t, []int{0, 0, 0, 0}, got, "%s, of another file", text)
			} else {
				assert.Equal(t, want, got, text)
			}
		}
	}
}

func TestPointsOfCommands(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int{ // ends after each step
		"update.before": {1, 1, 1, 1, 1}, "update.after": {0, 1, 1, 1, 1}, "update.before:2": {0, 0, 1, 1, 1}, "update.after:2": {0, 0, 0, 0, 0},
		"update@readings.before": {1, 1, 1, 1, 1}, "update@other.before": {0, 0, 1, 1, 1}, "update@other.after": {0, 0, 0, 0, 0},
		"renameCollection@readings.new.before": {0, 0, 0, 0, 1}, "insert.before": {0, 0, 0, 0, 0}, "": {0, 0, 0, 0, 0},
	} {
		p, ended := counted(t, text)
		m := monitor(p)
		started := func(id int64, name string, command bson.D) {
			raw, err := bson.Marshal(command)
			require.NoError(t, err)
			m.Started(t.Context(), &event.CommandStartedEvent{Command: raw, DatabaseName: "brim", CommandName: name, RequestID: id})
		}
		finished := func(id int64, name string) event.CommandFinishedEvent {
			return event.CommandFinishedEvent{CommandName: name, RequestID: id}
		}
		var got []int
		for _, step := range []func(){
			func() { started(1, "update", bson.D{{Key: "update", Value: "readings"}}) },
			func() {
				m.Succeeded(t.Context(), &event.CommandSucceededEvent{CommandFinishedEvent: finished(1, "update")})
			},
			func() { started(2, "update", bson.D{{Key: "update", Value: "other"}}) },
			func() { m.Failed(t.Context(), &event.CommandFailedEvent{CommandFinishedEvent: finished(2, "update")}) },
			func() { started(3, "renameCollection", bson.D{{Key: "renameCollection", Value: "brim.readings.new"}}) },
		} {
			step()
			got = append(got, *ended)
		}
		assert.Equal(t, want, got, text)
	}
}

func TestBadPointIsRefused(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"write.after:0": `"0" is not a number of arrivals from 1`,
		"write":         "allowed: POINT or POINT:N",
		"write.during":  "allowed: POINT or POINT:N",
		".before":       "allowed: POINT or POINT:N",
	} {
		_, err := parse(text)
		assert.ErrorContains(t, err, says, text)
	}
}
