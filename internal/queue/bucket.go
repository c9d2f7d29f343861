package queue

import (
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// bucketKey tells apart what must not be merged: a session's guard stands for
// its own sequences only, and what an earlier process took in stays in the
// windows that it was taken in for.
type bucketKey struct {
	sensor      string
	start       int64 // of the window, milliseconds since the epoch
	granularity time.Duration
	session     string
}

// bucket is what a lane remembers of a bucket: its share, with whatever the
// store keeps in it, its state, and how its writes went.
type bucket struct {
	key       bucketKey
	series    *batch.Series // that it was last found by, see bucketOf
	share     batch.Share
	state     state     // changed by lane.move
	since     time.Time // arrival of the oldest row
	lastSeq   uint64    // of the newest row ever added
	attempts  int       // writes in a row that have to be retried
	unsent    int       // the same, of those that did not come to it; it only backs off for them
	alone     int       // of attempts, how many failed while others were written
	failed    time.Time // when the last one did
	notBefore time.Time // of the next write; of an idle bucket: since when it is idle

	// The rows that a bucket lacks are only in the journal, from this position on:
	// those whose sequences were dropped, in ascending order, and all after
	// lastSeq. Those in between are stored; a store may leave gaps.
	from      uint64
	dropped   []uint64
	recovered bool // as the rows came; a bucket that was set aside may have sent some
}

// contains reports whether a time lies in the bucket's window.
func (b *bucket) contains(ms int64) bool {
	return ms >= b.key.start && ms-b.key.start < b.key.granularity.Milliseconds()
}

// mayHaveSent notes that the next row may have been sent before. Beside rows that
// are there already the store's memory stays: it has looked for those, or will,
// and may be searching for one that MongoDB refuses.
func (b *bucket) mayHaveSent() {
	b.share.Recovered = true
	if len(b.share.Rows) == 0 {
		b.share.State = nil
	}
}

// waiting is a heap of buckets, the soonest first.
type waiting []*bucket

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, j int) bool { return w[i].notBefore.Before(w[j].notBefore) }
func (w waiting) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }

// Push implements heap.Interface.
func (w *waiting) Push(x any) {
	if b, ok := x.(*bucket); ok {
		*w = append(*w, b)
	}
}

// Pop implements heap.Interface.
func (w *waiting) Pop() any {
	old := *w
	b := old[len(old)-1]
	old[len(old)-1] = nil
	*w = old[:len(old)-1]
	return b
}
