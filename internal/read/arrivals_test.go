package read

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestReadingsArriveWhileTheJournalGrows(t *testing.T) {
	t.Parallel()
	var a arrivals
	begin := time.Now()
	for _, step := range []struct {
		end  uint64
		at   time.Duration
		want bool
	}{
		{100, 0, false},
		{100, 100 * time.Millisecond, false},
		{200, 200 * time.Millisecond, true},
		{200, 1100 * time.Millisecond, true},
		{200, 1300 * time.Millisecond, false},
		{300, time.Minute, false}, // may have been long ago
		{400, time.Minute + time.Millisecond, true},
	} {
		assert.Equal(t, step.want, a.seen(step.end, begin.Add(step.at)), "%+v", step)
	}
}
