package queue

import (
	"fmt"
	"time"
)

// A Policy says when updates are sent. An update takes MongoDB about 300 µs, and each
// reading in it about 5 µs more. Readings that wait are safe in the journal, so they
// gather until one of these happens:
//
//	                ┌─ a request, a flush or a retry waits ─▶ urgent ─▶ sent at once
//	row ─▶ gathering ─ there are Readings ─▶ full ─▶ sent once they gathered for Interval
//	  oldest first  ├─ memory is full ─▶ sent at once
//	                ├─ the journal is nearly full ─▶ sent once they gathered for Interval
//	                ├─ Max is near ─▶ sent before it, evenly spread
//	                └─ Budget allows it ─▶ sent, some every Interval
type Policy struct {
	// Interval is the minimum time that readings gather, unless a client waits for them; 0:
	// 1 s. It grows up to fourfold while a lane is busy writing, see pace.
	Interval time.Duration
	// Readings is how many readings of a bucket make an update worth sending; 0: 60.
	Readings int
	// Max is the maximum time that a reading gathers; 0: 5 min. The bucket's window also limits
	// it.
	Max time.Duration
	// Budget is what updates with no other trigger may cost MongoDB, in CPU seconds per
	// second; 0: 0.02; negative: none are sent.
	Budget float64
}

// The largest values of a Policy.
const (
	MaxMerge  = 1_000_000
	MaxGather = time.Hour
)

func (p *Policy) setDefaults() error {
	if p.Interval == 0 {
		p.Interval = time.Second
	}
	if p.Readings == 0 {
		p.Readings = 60
	}
	if p.Max == 0 {
		p.Max = 5 * time.Minute
	}
	if p.Budget == 0 {
		p.Budget = 0.02
	}
	switch {
	case p.Interval < time.Millisecond || p.Interval > time.Hour:
		return fmt.Errorf("flush-interval %v is out of range; allowed: 1ms to 1h", p.Interval)
	case p.Readings < 1 || p.Readings > MaxMerge:
		return fmt.Errorf("merge-readings %d is out of range; allowed: 1 to %d", p.Readings, MaxMerge)
	case p.Max < time.Millisecond || p.Max > MaxGather:
		return fmt.Errorf("flush-max %v is out of range; allowed: 1ms to 1h", p.Max)
	}
	return nil
}

// CPU time that an update, and a reading in it, take in MongoDB: mongod 6.0.5, four
// fields, journaled, replica set of one. See docs/benchmarks.md.
const (
	updateCost  = 300 * time.Microsecond
	readingCost = 5 * time.Microsecond
	// savedFor is how long unused budget accumulates, and how long an exceeded budget
	// takes to recover.
	savedFor = 10 * time.Second
	// spreadPart: updates are spread over the last quarter of Max. Otherwise buckets of sensors
	// that send at the same time would all be sent together.
	spreadPart = 4
)

// A trigger is why an update is sent.
type trigger uint8

const (
	byNothing  trigger = iota
	byRequest          // a request waits until its readings are stored
	byFlush            // a flush waits
	byReadings         // Policy.Readings
	byAge              // Policy.Max
	byBudget           // Policy.Budget
	byMemory           // the lane has no room for more
	byJournal          // the journal is nearly full
	byRetry            // a write failed, or left readings over
	triggers
)

var triggerNames = [triggers]string{"nothing", "request", "flush", "readings", "age", "budget", "memory", "journal", "retry"}

// String returns the trigger's label in metrics.
func (t trigger) String() string { return triggerNames[t] }

// A fifo holds buckets in the order in which they were added. A bucket is in at most one.
type fifo struct {
	first, last *bucket
	n           int
}

func (l *fifo) push(b *bucket) {
	b.in, b.prev, b.next = l, l.last, nil
	if l.last == nil {
		l.first = b
	} else {
		l.last.next = b
	}
	l.last = b
	l.n++
}

// leave removes the bucket from its fifo.
func (b *bucket) leave() {
	l := b.in
	if l == nil {
		return
	}
	if b.prev == nil {
		l.first = b.next
	} else {
		b.prev.next = b.next
	}
	if b.next == nil {
		l.last = b.prev
	} else {
		b.next.prev = b.prev
	}
	b.in, b.prev, b.next = nil, nil, nil
	l.n--
}

// A schedule decides which of a lane's buckets are sent, and when.
type schedule struct {
	policy Policy
	pace   pace
	// gathering holds buckets by the time of their oldest row; full those with
	// Policy.Readings rows; urgent those that are sent at once.
	gathering, full, urgent fifo

	tick     time.Time     // when updates for Max and Budget are sent next
	rate     float64       // this lane's part of Policy.Budget
	saved    time.Duration // budget that is available
	share    int           // updates for Max that remain to be sent in this tick
	owed     float64       // fraction of an update carried over from earlier ticks
	refilled time.Time     // when saved was computed
}

func newSchedule(p Policy, lanes int) schedule {
	s := schedule{refilled: time.Now()}
	s.change(p, lanes)
	s.saved = s.mostSaved()
	return s
}

// change sets the policy, also for buckets that already wait.
func (s *schedule) change(p Policy, lanes int) {
	s.policy, s.pace, s.rate, s.tick = p, newPace(p.Interval), max(0, p.Budget)/float64(lanes), time.Time{}
	for b := s.gathering.first; b != nil; {
		next := b.next
		s.grew(b)
		b = next
	}
}

func (s *schedule) mostSaved() time.Duration { return time.Duration(s.rate * float64(savedFor)) }

// waiting returns how many buckets wait to be sent.
func (s *schedule) waiting() int { return s.gathering.n + s.full.n + s.urgent.n }

// add schedules a bucket after its first row.
func (s *schedule) add(b *bucket) {
	b.why = byNothing
	s.gathering.push(b)
	s.grew(b)
}

// grew is called after another row. A full bucket is due as soon as it has gathered for the
// interval.
func (s *schedule) grew(b *bucket) {
	if b.in == &s.gathering && b.pendingCount() >= s.policy.Readings {
		b.leave()
		b.setDue(latest(time.Now(), b.since.Add(s.pace.interval)))
		s.full.push(b)
	}
}

// makeUrgent schedules a bucket to be sent immediately.
func (s *schedule) makeUrgent(b *bucket, why trigger, now time.Time) {
	if b.in == &s.urgent {
		return
	}
	b.leave()
	b.why = why
	b.setDue(now)
	s.urgent.push(b)
}

// makeAllUrgent is makeUrgent for all buckets.
func (s *schedule) makeAllUrgent(why trigger, now time.Time) {
	for _, l := range []*fifo{&s.full, &s.gathering} {
		for l.first != nil {
			s.makeUrgent(l.first, why, now)
		}
	}
}

// setDue sets the time after which the bucket is late, unless an earlier one is set.
func (b *bucket) setDue(at time.Time) {
	if ns := at.UnixNano(); b.due == 0 || ns < b.due {
		b.due = ns
	}
}

// untilDue returns the time until something must be sent. short is why everything must be sent,
// or byNothing.
func (s *schedule) untilDue(now time.Time, short trigger) time.Duration {
	wait := forgetAfter
	switch {
	case s.waiting() == 0:
		return wait
	case s.urgent.n > 0 || s.share > 0 || short == byMemory:
		return 0
	}
	if b := s.full.first; b != nil {
		wait = min(wait, b.since.Add(s.pace.interval).Sub(now))
	}
	if b := s.gathering.first; b != nil {
		at := b.since.Add(s.pace.interval)
		if short == byNothing && s.tick.After(at) {
			at = s.tick
		}
		wait = min(wait, at.Sub(now))
	}
	return wait
}

// choose removes the buckets for one write from the lists, at most maxFlushBuckets, and not many
// more rows than maxFlushRows and bytes to unpack than maxFlushBytes. most is how long readings
// of the stream may gather.
func (s *schedule) choose(now time.Time, short trigger, most time.Duration) []*bucket {
	var chosen []*bucket
	rows, bytes := 0, 0
	room := func(part int) bool {
		return len(chosen) < maxFlushBuckets/part && rows < maxFlushRows/part && bytes < maxFlushBytes/part
	}
	pick := func(b *bucket, why trigger) {
		b.leave()
		if b.why == byNothing {
			b.why = why
		}
		if why == byAge {
			b.setDue(b.since.Add(most))
		}
		rows += b.ready()
		chosen = append(chosen, b)
	}
	// take picks the first buckets of a list while they are ready, up to a part of a write.
	take := func(from *fifo, part int, why trigger, ready func(*bucket) bool) {
		for b := from.first; b != nil && room(part) && ready(b); b = from.first {
			pick(b, why)
		}
	}
	gathered := now.Add(s.pace.interval / dueTogether) // what is due soon is written along with it
	isReady := func(b *bucket) bool { return short == byMemory || !b.since.Add(s.pace.interval).After(gathered) }
	olderThan := func(age time.Duration) func(*bucket) bool {
		return func(b *bucket) bool { return now.Sub(b.since) >= age }
	}
	// There may always be urgent buckets, so those that have waited too long go first.
	take(&s.gathering, 4, byAge, olderThan(most+s.pace.interval))
	take(&s.full, 2, byReadings, olderThan(2*s.pace.interval))
	take(&s.urgent, 1, byRequest, func(*bucket) bool { return true })
	take(&s.full, 1, byReadings, isReady)
	if short != byNothing {
		take(&s.gathering, 1, short, isReady)
	}
	switch {
	case !now.Before(s.tick):
		s.tick = now.Add(s.pace.interval)
		s.refill(now)
		s.share = s.evenly(now, most)
	case s.share == 0:
		return chosen
	}
	saved := s.saved
	for b := s.gathering.first; b != nil && room(1) && isReady(b); b = s.gathering.first {
		switch {
		case s.share > 0 && now.Sub(b.since) >= spreadAfter(most):
			s.share--
			pick(b, byAge)
		case saved > 0:
			saved -= costOf(1, b.ready())
			pick(b, byBudget)
		default:
			s.share = 0
			return chosen
		}
	}
	if room(1) {
		s.share = 0
	}
	return chosen
}

// spreadAfter returns the age after which updates are spread evenly.
func spreadAfter(most time.Duration) time.Duration { return most - most/spreadPart }

// evenly returns how many buckets to send now, so that each is sent in time and never many at
// once: the smallest number that, if sent in every interval, meets the deadlines of all buckets
// in the last part of Max.
func (s *schedule) evenly(now time.Time, most time.Duration) int {
	share, before := 0.0, 0
	for b := s.gathering.first; b != nil; b = b.next {
		left := most - now.Sub(b.since)
		if left > most/spreadPart {
			break
		}
		before++
		share = max(share, float64(before)*float64(s.pace.interval)/float64(max(left, s.pace.interval)))
	}
	s.owed += share
	whole := int(s.owed)
	s.owed -= float64(whole)
	return whole
}

func costOf(updates, rows int) time.Duration {
	return time.Duration(updates)*updateCost + time.Duration(rows)*readingCost
}

func (s *schedule) refill(now time.Time) {
	s.saved = min(s.saved+time.Duration(s.rate*float64(now.Sub(s.refilled))), s.mostSaved())
	s.refilled = now
}

// spend charges stored updates to the budget.
func (s *schedule) spend(updates, rows int) {
	s.saved = max(s.saved-costOf(updates, rows), -s.mostSaved())
}

// overdue returns when the first bucket on the lists was or will be due; zero: there is
// none.
func (s *schedule) overdue(most time.Duration) (at time.Time) {
	earliest := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if b := s.urgent.first; b != nil {
		earliest(timeOf(b.due))
	}
	if b := s.full.first; b != nil {
		earliest(timeOf(b.due))
	}
	if b := s.gathering.first; b != nil {
		earliest(b.since.Add(most))
	}
	return at
}

// A pace decides the minimum time that readings gather in a lane: the flush interval, and longer
// while the lane is busy writing. More readings then share the fixed cost of an update (round
// trip, guard, rewriting the document). This delays no request, since a request that waits
// until its readings are stored triggers an update immediately.
type pace struct {
	least, most, interval time.Duration

	began time.Time     // of the current measurement
	busy  time.Duration // time spent in writes since then
	last  time.Time     // end of the last write
}

const (
	// A lane that writes for more than a quarter of its time gathers longer, and one that
	// writes for less than a tenth gathers for a shorter time. With four lanes, one of them
	// is writing on average.
	busyShare = 4
	idleShare = 10
	// The most is four times the flush interval, and no more than longestGather unless
	// the flush interval is longer.
	mostIntervals = 4
	longestGather = 4 * time.Second
	// measureFor is how long the busy time is measured: several flushes.
	measureFor = 2 * time.Second
)

func newPace(flushInterval time.Duration) pace {
	return pace{least: flushInterval, most: max(flushInterval, min(mostIntervals*flushInterval, longestGather)), interval: flushInterval}
}

// wrote notes a write, and adapts the interval when a measurement is over.
func (p *pace) wrote(begin, end time.Time) {
	if p.began.IsZero() {
		p.began = begin
	}
	p.busy += end.Sub(begin)
	p.last = end
	elapsed := end.Sub(p.began)
	if elapsed < max(measureFor, p.interval) {
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

// rest resets a long interval after the lane had nothing to write for that long, so that the
// next readings do not wait because of a load that is over.
func (p *pace) rest(now time.Time) {
	if p.interval > p.least && now.Sub(p.last) > p.interval {
		*p = newPace(p.least)
	}
}
