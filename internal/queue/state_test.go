package queue

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// table is the table of transitions, in words; "-" marks events that cannot occur.
const table = `
                   | row                | send               | probe   | stored      | partly           | fails       | stuck | due     | walk        | caught up
idle               | pending            | -                  | -       | -           | -                | -           | -     | -       | -           | -
pending            | pending            | in flight          | -       | -           | -                | -           | -     | -       | -           | -
in flight          | -                  | -                  | -       | idle        | pending          | backing off | aside | -       | -           | -
backing off        | backing off        | -                  | -       | -           | -                | -           | -     | pending | -           | -
aside              | -                  | -                  | probing | -           | -                | -           | -     | -       | -           | -
probing            | probing            | -                  | -       | joining     | joining          | aside       | aside | -       | -           | -
joining            | -                  | -                  | -       | -           | -                | -           | -     | -       | catching up | -
catching up        | catch-up pending   | -                  | -       | -           | -                | -           | -     | -       | -           | idle
catch-up pending   | catch-up pending   | catch-up in flight | -       | -           | -                | -           | -     | -       | -           | -
catch-up in flight | -                  | -                  | -       | catching up | catch-up pending | aside       | aside | -       | -           | -
`

// TestStates checks every state and event against the table: the bucket moves, and
// into the list of its new state, or the event is counted as a defect and nothing
// moves.
func TestStates(t *testing.T) {
	t.Parallel()
	rows := strings.Split(strings.TrimSpace(table), "\n")
	assert.Len(t, rows, int(states), "a row for each state, and the heading")
	cells := func(row string) []string {
		out := strings.Split(row, "|")
		for i := range out {
			out[i] = strings.TrimSpace(out[i])
		}
		return out
	}
	assert.Equal(t, eventNames[:], cells(" " + rows[0])[1:])
	m, err := newMetrics(prometheus.NewRegistry(), &Queue{})
	require.NoError(t, err)
	q := &Queue{metrics: m, cfg: Config{Logger: slog.New(slog.DiscardHandler), Lanes: 1, Streams: map[string]Stream{stream: {}}}}
	l := newLane(q, stream, 0, Stream{}, &lastWrite{})
	for i, text := range rows[1:] {
		was, row := state(i+1), cells(text)
		assert.Equal(t, was.String(), row[0])
		for e := range events {
			l.schedule, l.waiting, l.aside.waiting, l.aside.joining = newSchedule(Policy{}, 1), nil, nil, nil
			b := &bucket{state: was}
			if was.lacks() {
				l.startLacking(b)
			}
			defects := testutil.ToFloat64(q.metrics.impossible)
			l.move(b, e)
			if row[1+e] == "-" {
				assert.Equal(t, was, b.state)
				assert.Equal(t, defects+1, testutil.ToFloat64(q.metrics.impossible), "%v in %v", e, was)
			} else {
				assert.Equal(t, row[1+e], b.state.String(), "%v in %v", e, was)
				assert.Equal(t, defects, testutil.ToFloat64(q.metrics.impossible), "%v in %v", e, was)
			}
			listed := 0
			scheduled := slices.Repeat([]*bucket{b}, l.schedule.waiting())
			for in, list := range map[string][]*bucket{"pending": scheduled, "backing off": l.waiting, "aside": l.aside.waiting, "joining": l.aside.joining} {
				listed += len(list)
				if len(list) > 0 {
					assert.Equal(t, in, strings.TrimPrefix(b.state.String(), "catch-up "), "the list that a bucket is in is that of its state")
				}
			}
			moved := b.state != was
			hasList := map[state]bool{pending: true, catchUpPending: true, backingOff: true, aside: true, joining: true}[b.state]
			assert.Equal(t, moved && hasList, listed == 1, "%v in %v", e, was)
			_, lacks := l.lacking[b]
			assert.Equal(t, b.state.lacks(), lacks)
			if lacks {
				l.stopLacking(b)
			}
		}
	}
	assert.Zero(t, l.stuck.Load())
}
