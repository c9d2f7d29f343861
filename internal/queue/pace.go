package queue

import "time"

// A pace decides how long a lane lets readings gather: the flush interval, and
// longer while writing takes much of its time. What an update costs beside its
// readings (the round trip, the guard, writing the whole document anew) is then
// shared by more of them. Waiting is safe, for who is not content with the journal,
// or has none, waits for the readings, and has a flush of his own.
type pace struct {
	least, most, interval time.Duration

	began time.Time     // of the present look
	busy  time.Duration // spent in writes since
	last  time.Time     // end of the last write
}

const (
	// A lane that writes for more than a quarter of its time gathers longer, one
	// that does for less than a tenth less long. With four lanes that is one
	// writer at work, on average.
	busyShare = 4
	idleShare = 10
	// The most is four times the flush interval, and no more than longestGather
	// where that is longer than the flush interval: so readings are in MongoDB well
	// before the alert of the lag, at 8 s.
	mostIntervals = 4
	longestGather = 4 * time.Second
	// lookEvery is how long the shares of time are measured: several flushes.
	lookEvery = 2 * time.Second
)

func newPace(flushInterval time.Duration) pace {
	return pace{least: flushInterval, most: max(flushInterval, min(mostIntervals*flushInterval, longestGather)), interval: flushInterval}
}

// wrote notes a write, and when a look is over decides anew.
func (p *pace) wrote(begin, end time.Time) {
	if p.began.IsZero() {
		p.began = begin
	}
	p.busy += end.Sub(begin)
	p.last = end
	elapsed := end.Sub(p.began)
	if elapsed < max(lookEvery, p.interval) {
		return
	}
	switch {
	case p.busy*busyShare > elapsed:
		p.interval = min(p.interval*3/2, p.most)
	case p.busy*idleShare < elapsed:
		p.interval = max(p.interval*2/3, p.least)
	}
	p.began, p.busy = end, 0
}

// rest forgets a long interval where the lane has had nothing to write for as
// long, so that what comes next does not wait for what is over.
func (p *pace) rest(now time.Time) {
	if p.interval > p.least && now.Sub(p.last) > p.interval {
		*p = newPace(p.least)
	}
}
