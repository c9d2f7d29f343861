package access

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"sync"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Quota is how much an identity may ask and send. Of each number, Unset is as
// the daemon's settings, and 0 is no limit.
type Quota struct {
	RequestsPerSecond   float64 // of every kind, and messages of streams
	ReadingsPerSecond   float64
	NewSensorsPerSecond float64 // a sensor is new when it was not heard of for an hour
	ActiveSensors       float64 // sensors that were heard of in the last hour; a whole number
}

// Unset stands for a number that a file does not give.
const Unset = -1

// NoQuota is a quota of which nothing is given.
func NoQuota() Quota { return Quota{Unset, Unset, Unset, Unset} }

// The most that a quota can be: what no daemon takes in a second, and what is
// remembered of sensors at most.
const (
	MaxRate          = 1e9
	MaxActiveSensors = maxRemembered
)

// over returns the quota where what is not given is as in defaults.
func (q Quota) over(defaults Quota) Quota {
	others := defaults.limits()
	for n, own := range q.limits() {
		if *own.place < 0 {
			*own.place = max(0, *others[n].place)
		}
	}
	return q
}

// A limit is one number of a quota.
type limit struct {
	key   string // in an access file
	place *float64
	most  float64
	whole bool
}

// limits are the numbers of the quota, in the order in which files have them.
func (q *Quota) limits() [4]limit {
	return [...]limit{
		{keyRequests, &q.RequestsPerSecond, MaxRate, false},
		{keyReadings, &q.ReadingsPerSecond, MaxRate, false},
		{keyNewSensors, &q.NewSensorsPerSecond, MaxRate, false},
		{keyActive, &q.ActiveSensors, MaxActiveSensors, true},
	}
}

func (q Quota) check() error {
	var problems []error
	for _, l := range q.limits() {
		if err := checkLimit(*l.place, l.most, l.whole); err != nil && *l.place != Unset {
			problems = append(problems, fmt.Errorf("%s: %w", l.key, err))
		}
	}
	return errors.Join(problems...)
}

// checkLimit holds a number to what a quota can be.
func checkLimit(v, most float64, whole bool) error {
	if v >= 0 && v <= most && (!whole || v == math.Trunc(v)) { // and no NaN
		return nil
	}
	return fmt.Errorf("%s is not %s", plain(v), allowedLimit(most, whole))
}

func allowedLimit(most float64, whole bool) string {
	kind := "a number"
	if whole {
		kind = "a whole number"
	}
	return fmt.Sprintf("%s from 0, which is no limit, to %s", kind, plain(most))
}

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func (f *accessFile) quota(q *Quota, n *yaml.Node) {
	var keys []string
	byKey := make(map[string]limit)
	for _, l := range q.limits() {
		keys, byKey[l.key] = append(keys, l.key), l
	}
	f.each(n, keyQuota, keys, func(key, value *yaml.Node) {
		l := byKey[key.Value]
		v, err := number(value, l.most, l.whole)
		if err != nil {
			f.wrong(value, "%s.%s: %s", keyQuota, key.Value, err)
			return
		}
		*l.place = v
	})
}

// A usage is what an identity has used of its quota.
type usage struct {
	mu       sync.Mutex
	requests allowance
	readings allowance
	fresh    allowance // of new sensors
	sensors  sensors
}

// An allowance refills at a rate, up to what one second brings and to 1 at
// least, and may be overdrawn: who has any left takes all that he needs, and
// waits until the debt is paid. So one large request passes as soon as many small
// ones would, and the mean is the rate: in t seconds no more than rate * (t+1) is
// taken, and one request.
type allowance struct {
	level float64
	at    time.Time // of level; zero: it is full
}

// refill brings the level to now.
func (a *allowance) refill(rate float64, now time.Time) {
	burst := max(rate, 1)
	if a.at.IsZero() {
		a.level, a.at = burst, now
	}
	if passed := now.Sub(a.at); passed > 0 { // another request may have looked at the clock later, and been faster
		a.level, a.at = a.level+rate*passed.Seconds(), now
	}
	a.level = min(a.level, burst)
}

// wait is how long it takes until something is left; 0: something is.
func (a *allowance) wait(rate float64) time.Duration {
	if a.level > 0 {
		return 0
	}
	// A hundredth above zero, and a tenth of a second at least.
	seconds := max(0.1, (0.01-a.level)/rate)
	return time.Duration(min(seconds, longestWait.Seconds()) * float64(time.Second))
}

// longestWait bounds what a client is told: what no one can wait for, one hour.
const longestWait = time.Hour

// ask takes one request out of the identity's quota, or returns a *telemetry.Error
// of kind Quota, which says when to come back.
func (i *Identity) ask(now time.Time) error {
	r := i.rights()
	if r == nil || r.quota.RequestsPerSecond == 0 {
		return nil
	}
	rate, u := r.quota.RequestsPerSecond, i.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests.refill(rate, now)
	if wait := u.requests.wait(rate); wait > 0 {
		return i.beyond(codeRequests, wait, "the quota of %s is %s requests a second, and it is used up", rate)
	}
	u.requests.level--
	return nil
}

// Admit takes a request's readings out of the identity's quota, or returns a
// *telemetry.Error of kind Quota, which says when to come back: then nothing was
// taken out. Sensors yields the sensors of the readings; one may come several
// times. It is called once at most, and only where sensors are limited.
func (i *Identity) Admit(readings int, sensors iter.Seq[string]) error {
	r := i.rights()
	if r == nil || r.quota == (Quota{}) {
		return nil
	}
	q, u := &r.quota, i.usage
	var s *scratch
	if q.NewSensorsPerSecond > 0 || q.ActiveSensors > 0 {
		s = borrow()
		defer s.giveBack()
		sensors(s.add)
	}
	now := i.guard.now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if rate := q.ReadingsPerSecond; rate > 0 {
		u.readings.refill(rate, now)
		if wait := u.readings.wait(rate); wait > 0 {
			return i.beyond(codeReadings, wait, "the quota of %s is %s readings a second, and it is used up", rate)
		}
	}
	if s != nil {
		if err := i.admitSensors(q, s, now); err != nil {
			return err
		}
	}
	if q.ReadingsPerSecond > 0 {
		u.readings.level -= float64(readings)
	}
	return nil
}

// Refund gives readings back that Admit took out, where none of them was kept: a
// repeated request, or one that the journal had no room for.
func (i *Identity) Refund(readings int) {
	r := i.rights()
	if r == nil || r.quota.ReadingsPerSecond == 0 {
		return
	}
	i.usage.mu.Lock()
	defer i.usage.mu.Unlock()
	i.usage.readings.level += float64(readings) // the next refill cuts it to the burst
}

// admitSensors takes the sensors, or none of them.
func (i *Identity) admitSensors(q *Quota, s *scratch, now time.Time) error {
	u := i.usage
	u.sensors.sort(s, minuteOf(now))
	if len(s.fresh) > 0 {
		if rate := q.NewSensorsPerSecond; rate > 0 {
			u.fresh.refill(rate, now)
			if wait := u.fresh.wait(rate); wait > 0 {
				return i.beyond(codeNewSensors, wait, "the quota of %s is %s new sensors a second, and it is used up; a sensor is new when nothing came from it for an hour", rate)
			}
		}
		if most := q.ActiveSensors; most > 0 {
			if beyond := u.sensors.active + len(s.fresh) - int(most); beyond > 0 {
				return i.beyond(codeActive, u.sensors.leave(beyond, now), "the quota of %s is %s sensors in an hour, and with those of this request there are more; those before them may go on", most)
			}
		}
		if q.NewSensorsPerSecond > 0 {
			u.fresh.level -= float64(len(s.fresh))
		}
	}
	u.sensors.note(s)
	return nil
}

// beyond is a refusal for a quota.
func (i *Identity) beyond(code string, wait time.Duration, format string, limit float64) error {
	who := i.Name
	if who == "" {
		who = "all clients together"
	}
	e := i.guard.refuse(telemetry.Quota, code, format+"; nothing was taken, send the request again after the time in Retry-After", who, plain(limit))
	e.RetryAfter = wait
	return e
}
