package access

import (
	"fmt"
	"hash/maphash"
	"iter"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Quota is how much an identity may request and send. For each limit, unset means the
// daemon's setting, and 0 means no limit.
type Quota struct {
	RequestsPerSecond   float64 // of any kind, and messages of streams
	ReadingsPerSecond   float64
	NewSensorsPerSecond float64 // a sensor is new if it has sent nothing for an hour
	ActiveSensors       float64 // sensors that have sent something in the last hour; a whole number
}

// unset marks a limit that the access file does not set.
const unset = -1

// NoQuota is a quota with every limit unset.
func NoQuota() Quota { return Quota{unset, unset, unset, unset} }

// The maximum limits.
const (
	MaxRate          = 1e9
	MaxActiveSensors = 1_000_000 // at some 20 bytes each
)

// over returns the quota with unset limits taken from defaults.
func (q Quota) over(defaults Quota) Quota {
	others := defaults.limits()
	for n, own := range q.limits() {
		if *own.value < 0 {
			*own.value = max(0, *others[n].value)
		}
	}
	return q
}

// A limit is one number of a quota.
type limit struct {
	key   string // in an access file
	value *float64
	most  float64
	whole bool
}

// limits of the quota, in the order of the access file.
func (q *Quota) limits() [4]limit {
	return [...]limit{
		{keyRequests, &q.RequestsPerSecond, MaxRate, false},
		{keyReadings, &q.ReadingsPerSecond, MaxRate, false},
		{keyNewSensors, &q.NewSensorsPerSecond, MaxRate, false},
		{keyActive, &q.ActiveSensors, MaxActiveSensors, true},
	}
}

// allows is false for NaN as well.
func (l *limit) allows(v float64) bool {
	return v >= 0 && v <= l.most && (!l.whole || v == math.Trunc(v))
}

func (l *limit) allowed() string {
	kind := "a number"
	if l.whole {
		kind = "a whole number"
	}
	return fmt.Sprintf("%s from 0, which is no limit, to %s", kind, plain(l.most))
}

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// usage is what an identity has used of its quota.
type usage struct {
	mu         sync.Mutex
	requests   tokenBucket
	readings   tokenBucket
	newSensors tokenBucket
	sensors    sensors
	hashes     []uint64                 // of the sensors of a request; reused
	addHash    func(sensor string) bool // to hashes; made once, because a closure allocates
}

func newUsage() *usage {
	u := &usage{}
	var before string
	u.addHash = func(sensor string) bool {
		if len(u.hashes) == 0 || sensor != before {
			u.hashes, before = append(u.hashes, maphash.String(seed, sensor)), sensor
		}
		return true
	}
	return u
}

// A tokenBucket holds the tokens of one second, at least 1, and may be overdrawn: a request
// that finds any tokens gets all it needs, and the following ones wait until the debt is
// paid. So in t seconds at most rate * (t+1) tokens are used, plus one request.
type tokenBucket struct {
	level float64
	at    time.Time // of level; zero: the bucket is full
}

func (a *tokenBucket) refill(rate float64, now time.Time) {
	burst := max(rate, 1)
	if a.at.IsZero() {
		a.level, a.at = burst, now
	}
	if passed := now.Sub(a.at); passed > 0 { // a concurrent request may have read the clock later
		a.level, a.at = a.level+rate*passed.Seconds(), now
	}
	a.level = min(a.level, burst)
}

// longestWait bounds Retry-After.
const longestWait = time.Hour

// wait refills the bucket, and returns the time until it has tokens; 0: it has some.
func (a *tokenBucket) wait(rate float64, now time.Time) time.Duration {
	if a.refill(rate, now); a.level > 0 {
		return 0
	}
	seconds := max(0.1, (0.01-a.level)/rate) // to a little above zero
	return time.Duration(min(seconds, longestWait.Seconds()) * float64(time.Second))
}

// countRequests counts requests, or returns a *telemetry.Error of kind Quota, which says
// when to retry.
func (i *Identity) countRequests(n int) error {
	rate := i.may().quota.RequestsPerSecond
	if rate == 0 {
		return nil
	}
	u := i.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	if wait := u.requests.wait(rate, i.guard.now()); wait > 0 {
		return i.exceeded(codeRequests, wait, "the quota of %s is %s requests a second, and it is used up", rate)
	}
	u.requests.level -= float64(n)
	return nil
}

// Admit counts the readings of a request, or returns a *telemetry.Error of kind Quota,
// which says when to retry; then nothing is counted. sensors yields the sensors of the
// readings, possibly several times each. It is called at most once, and only if
// sensors are limited.
func (i *Identity) Admit(readings int, sensors iter.Seq[string]) error {
	q, u := i.may().quota, i.usage
	if q == (Quota{}) {
		return nil
	}
	now := i.guard.now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if rate := q.ReadingsPerSecond; rate > 0 {
		if wait := u.readings.wait(rate, now); wait > 0 {
			return i.exceeded(codeReadings, wait, "the quota of %s is %s readings a second, and it is used up", rate)
		}
	}
	if q.NewSensorsPerSecond > 0 || q.ActiveSensors > 0 {
		u.hashes = u.hashes[:0]
		sensors(u.addHash)
		if err := i.admitSensors(&q, now); err != nil {
			return err
		}
	}
	if q.ReadingsPerSecond > 0 {
		u.readings.level -= float64(readings)
	}
	return nil
}

// admitSensors counts the sensors of a request, or none of them.
func (i *Identity) admitSensors(q *Quota, now time.Time) error {
	u := i.usage
	if n := u.sensors.countNew(u.hashes, now); n > 0 {
		if rate := q.NewSensorsPerSecond; rate > 0 {
			if wait := u.newSensors.wait(rate, now); wait > 0 {
				return i.exceeded(codeNewSensors, wait, "the quota of %s is %s new sensors a second, and it is used up; a sensor is new if it has sent nothing for an hour", rate)
			}
		}
		if most := int(q.ActiveSensors); most > 0 && len(u.sensors.last)+n > most {
			wait := longestWait
			if n <= most {
				wait = u.sensors.nextExpiry(now)
			}
			return i.exceeded(codeActive, wait, "the quota of %s is %s sensors in an hour, and this request has too many new ones; known sensors may continue", q.ActiveSensors)
		}
		if q.NewSensorsPerSecond > 0 { // otherwise nothing is refilled
			u.newSensors.level -= float64(n)
		}
	}
	u.sensors.record(u.hashes)
	return nil
}

// Refund returns readings that Admit counted and that were not stored: of a repeated
// request, or of one that the journal refused.
func (i *Identity) Refund(readings int) { i.refund(0, readings) }

// RefundRequests returns requests that Named counted, for a sender that will repeat them.
func (i *Identity) RefundRequests(n int) { i.refund(n, 0) }

func (i *Identity) refund(requests, readings int) {
	u := i.usage
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests.level += float64(requests) // the next refill limits it
	u.readings.level += float64(readings)
}

func (i *Identity) exceeded(code string, wait time.Duration, format string, limit float64) error {
	name := i.Name
	if name == "" {
		name = "all clients together"
	}
	e := i.guard.refuse(telemetry.Quota, code, format+"; nothing was stored, send the request again after the time in Retry-After", name, plain(limit))
	e.RetryAfter = wait
	return e
}

// activeMinutes is how long a sensor stays active after its last reading.
const activeMinutes = 60

// seed of the hashes of sensors. It differs in each process, so that clients cannot choose
// ids that collide. With a million sensors, the chance that two have the same hash and count
// as one is 1 in 37 million.
var seed = maphash.MakeSeed() //nolint:gochecknoglobals // it never changes

// sensors are the active sensors of an identity.
type sensors struct {
	last   map[uint64]int64 // minute of the last reading, by the hash of the sensor
	minute int64            // now; none in last is an hour older
	oldest int64            // in last, at the last sweep
	fresh  []uint64         // the hashes of new sensors in a request; reused
}

func minuteOf(t time.Time) int64 { return max(0, t.Unix()/60) }

// countNew forgets sensors that are not active any more, and returns how many of a
// request are new.
func (a *sensors) countNew(hashes []uint64, now time.Time) int {
	if a.last == nil {
		a.last = make(map[uint64]int64)
	}
	if minute := minuteOf(now); minute > a.minute { // a clock that is set back changes nothing
		a.minute, a.oldest = minute, minute
		for hash, last := range a.last { // a million take some 20 ms, once a minute
			if last <= minute-activeMinutes {
				delete(a.last, hash)
			} else {
				a.oldest = min(a.oldest, last)
			}
		}
	}
	a.fresh = a.fresh[:0]
	for _, hash := range hashes {
		if _, known := a.last[hash]; !known {
			a.fresh = append(a.fresh, hash)
		}
	}
	slices.Sort(a.fresh)
	return len(slices.Compact(a.fresh))
}

// record notes the sensors of a request. More than MaxActiveSensors are not
// remembered, and stay new.
func (a *sensors) record(hashes []uint64) {
	for _, hash := range hashes {
		if _, known := a.last[hash]; known || len(a.last) < MaxActiveSensors {
			a.last[hash] = a.minute
		}
	}
}

// nextExpiry is the time until the next sensor can stop being active.
func (a *sensors) nextExpiry(now time.Time) time.Duration {
	return max(time.Second, time.Unix((a.oldest+activeMinutes)*60, 0).Sub(now))
}
