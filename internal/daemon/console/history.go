package console

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/scrape"
)

const (
	// span is how far the page looks back.
	span = 15 * time.Minute
	// checkpointInterval is how exactly "the last 15 minutes" begin where sums
	// and distributions are told.
	checkpointInterval = time.Minute
	// maxStreams bounds what is kept: 900 seconds of a stream that is written in
	// each of them take 18 KB, so that this is less than 5 MB. What is written to
	// more is part of all streams' figures and has none of its own.
	maxStreams = 256
)

// A second is what happened between two looks, which are usually one apart.
// What is not known is NaN. Small floats: the eighth digit cannot be seen.
type second struct {
	At    int64 // of the later look, Unix milliseconds
	First bool  // of a process: nothing is known but gauges

	Restarted bool // the embedded mongod died and was started again

	In      float32 // readings acknowledged, per second
	Stored  float32 // readings stored, per second
	Updates float32 // buckets written, per second
	LagP50  float32 // seconds
	LagP99  float32 // seconds
	Journal float32 // bytes
	Oldest  float32 // age of the oldest reading that is not stored, seconds
	Queue   float32 // readings taken and not stored

	Writes []writes // of those streams that were written, by their place; the first is that of all
}

// writes are those of one stream in a second.
type writes struct {
	Place int32   // of the stream in history.names
	Rate  float32 // buckets written, per second
	P50   float32 // seconds
	P99   float32 // seconds
	Fill  float32 // 0 to 1: the mean of the buckets written
}

// A checkpoint is what the families said that are told as sums.
type checkpoint struct {
	at   int64 // Unix milliseconds
	run  int   // which process
	look scrape.Look
}

// A history is the last quarter of an hour. Its owner locks it.
type history struct {
	most        int      // seconds kept
	names       []string // of streams; the first is empty and stands for all
	placed      int      // histograms of writes whose streams have places
	seconds     []second
	checkpoints []checkpoint
	run         int // of this process; earlier ones are less

	last   scrape.Look // nil before the first look
	lastAt time.Time
}

func newHistory(interval time.Duration) *history {
	return &history{most: int(span / interval), names: []string{""}}
}

// add notes a look.
func (h *history) add(now time.Time, look scrape.Look) {
	s := h.measure(now, look)
	h.seconds = append(h.seconds, s)
	h.last, h.lastAt = look, now
	if n := len(h.checkpoints); n == 0 || h.checkpoints[n-1].run != h.run || s.At-h.checkpoints[n-1].at >= checkpointInterval.Milliseconds() {
		h.checkpoints = append(h.checkpoints, checkpoint{at: s.At, run: h.run, look: summed(look)})
	}
	h.forget(now)
}

// forget drops what is older than the span, and what a clock that was set back
// left in the future.
func (h *history) forget(now time.Time) {
	from, to := now.Add(-span).UnixMilli(), now.UnixMilli()
	seconds := slices.DeleteFunc(h.seconds, func(s second) bool { return s.At <= from || s.At > to })
	if len(seconds) > h.most {
		seconds = slices.Delete(seconds, 0, len(seconds)-h.most)
	}
	h.seconds = seconds
	h.checkpoints = slices.DeleteFunc(h.checkpoints, func(c checkpoint) bool { return c.at <= from || c.at > to })
}

// stream returns the index of a stream in names, -1 if there is none.
func (h *history) stream(name string) int { return slices.Index(h.names, name) }

// recent returns the latest second, if it was measured at all.
func (h *history) recent() (second, bool) {
	if len(h.seconds) == 0 {
		return second{}, false
	}
	return h.seconds[len(h.seconds)-1], true
}

// of returns the writes of a stream in a second. Of a stream without a place
// nothing is known, nor of any in the first second of a process.
func (s *second) of(place int) writes {
	i, found := slices.BinarySearchFunc(s.Writes, int32(place), func(w writes, place int32) int { return cmp.Compare(w.Place, place) })
	nan := float32(math.NaN())
	switch {
	case found:
		return s.Writes[i]
	case place < 0 || s.First:
		return writes{Rate: nan, P50: nan, P99: nan, Fill: nan}
	default:
		return writes{Place: int32(place), Rate: 0, P50: nan, P99: nan, Fill: nan}
	}
}

// prune gives up the places of streams that no second has, as those of earlier
// configurations, and moves the others up. Renderings under way have the
// seconds as they were.
func (h *history) prune() {
	used := make([]bool, len(h.names))
	used[0] = true
	for _, s := range h.seconds {
		for _, w := range s.Writes {
			used[w.Place] = true
		}
	}
	if !slices.Contains(used, false) {
		return
	}
	moved, names := make([]int32, len(h.names)), make([]string, 0, len(h.names))
	for i, name := range h.names {
		if moved[i] = int32(len(names)); used[i] {
			names = append(names, name)
		}
	}
	h.names = names
	for i := range h.seconds {
		list := slices.Clone(h.seconds[i].Writes)
		for j := range list {
			list[j].Place = moved[list[j].Place]
		}
		h.seconds[i].Writes = list
	}
}
