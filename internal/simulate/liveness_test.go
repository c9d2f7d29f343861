package simulate

import (
	"cmp"
	"fmt"
	"net/http"
	"time"
)

// This file has what must happen soon once all faults have ended.

// drains checks that everything is stored without a flush, soon after flush-max. Elections,
// restarts and the longest pauses between attempts take some time.
func (w *world) drains() {
	if w.moods.settings.policy.Max <= 5*time.Second {
		w.await(w.hosts, 2*time.Minute)
	}
}

// lands lets commands arrive that were held until an election. What they would write is stored
// by now, and they must change nothing.
func (w *world) lands() {
	if !w.moods.hold {
		return
	}
	for range w.mongo.Members() {
		w.tell(server, server, "the primary steps down")
		w.mongo.StepDown(w.mongo.Unreplicated())
		w.pass(time.Second)
	}
	w.settleAll(w.hosts)
}

// forgets checks that lanes remember only as many buckets as they may when nothing waits.
func (w *world) forgets() {
	most, lanes := w.moods.settings.remembered, len(streamNames)*w.moods.settings.lanes
	if most == 0 || w.violated != "" {
		return
	}
	most = max(1, most/lanes) * lanes
	for _, h := range w.hosts {
		if s := h.process.queue.Status(); s.Buckets > most {
			w.violate("the queue of %s remembers %d buckets; it may remember %d", h.name, s.Buckets, most)
		}
	}
}

// gathers checks how long readings wait: new ones of a sensor must not delay the first.
func (w *world) gathers(h *host) {
	p := &w.moods.settings.policy
	within := min(p.Max, h.granularity) + 4*p.Interval + 5*time.Second
	if p.Max > 5*time.Second || w.moods.filler > 0 {
		return
	}
	var first *reading
	for until := time.Now().Add(within); time.Now().Before(until) && w.violated == ""; {
		r := w.send(h, sending{each: 1}, "gathering")
		if first == nil {
			first = r.readings[0]
		}
		w.pass(400 * time.Millisecond)
	}
	w.mustBeStored(fmt.Sprintf("%v after it was acknowledged, with a flush-max of %v", within, p.Max), []*reading{first})
}

// A sending is what send writes.
type sending struct {
	ack     string
	each    int // readings of each sensor
	buckets int // of each sensor at most; 0: three
	filler  int // bytes of text in each reading
}

// send writes readings of some sensors to a host.
func (w *world) send(h *host, s sending, sensors ...string) *request {
	r := &request{host: h, stream: bucketStream, settle: w.posted, ack: s.ack}
	now := time.Now().Truncate(time.Millisecond)
	for _, sensor := range sensors {
		for n := range s.each {
			one := w.ledger.add(bucketStream, sensor, now.Add(-time.Duration(n%cmp.Or(s.buckets, 3))*h.granularity), false, h)
			one.open++
			r.readings = append(r.readings, one)
			r.body += one.line(s.filler)
		}
	}
	w.sendPost(r, fmt.Sprintf("%v ×%d", sensors, s.each))
	return r
}

// isStored checks that a request, for other sensors than the one whose documents cannot be
// written, is answered soon.
func (w *world) isStored(r *request, within time.Duration, why string) {
	w.serve(within, r.done.Load)
	w.rest()
	if !r.done.Load() || r.code == http.StatusAccepted {
		w.violate("request %d, for other sensors than the one %s, is not stored within %v", r.number, why, within)
	}
}

var beside = []string{"beside-0", "beside-1", "beside-2", "beside-3"}

// others checks that readings of a sensor whose documents MongoDB refuses hold up neither
// those of other sensors nor queries for them, even if they fill the memory of their lane, and
// more of the journal than a query searches.
func (w *world) others(h *host) {
	if w.moods.refuseSensor == 0 {
		return
	}
	w.send(h, sending{ack: "stored", each: 1}, beside...) // so that there is a collection
	w.settleAll(w.hosts)
	w.refuseSensor("s-0")
	defer w.refuseSensor("")
	alone := w.chance(0.5) // the lane is full before it sees anything else
	for range 7 {
		w.send(h, sending{each: 10, buckets: choose(w, []int{1, 3, 10}), filler: 20_000}, w.refused)
		if !alone {
			w.send(h, sending{each: 3}, beside...)
		}
		w.pass(200 * time.Millisecond)
	}
	w.serve(3*time.Second, func() bool { return false })
	r := w.send(h, sending{ack: "stored", each: 1, filler: 20_000}, beside...)
	if alone { // what is stored out of turn is acknowledged later
		w.serve(8*time.Second, func() bool { return false })
		w.areStored(r.readings, "8s after they were sent")
	} else {
		w.isStored(r, 8*time.Second, "whose documents MongoDB refuses")
	}
	if w.violated != "" || r.code != http.StatusOK {
		return
	}
	for _, sensor := range beside {
		q := &request{host: h, stream: bucketStream, sensor: sensor, to: 1 << 50}
		w.ask(q, "readings", false)
		for w.pass(0); !q.done.Load() && w.violated == ""; {
			w.pass(100 * time.Millisecond)
		}
		if q.whole && q.last().Code != http.StatusOK {
			w.violate("request %d, for another sensor than the one whose documents MongoDB refuses, is answered with %d: %s", q.number, q.last().Code, q.last().Body)
		}
	}
}

// divides checks that a write that hangs, since another program has locked its document, does
// not hold up others.
func (w *world) divides(h *host) {
	if !w.moods.lock {
		return
	}
	w.kill(h, false) // the next process has not seen slow commands
	w.settleAll(w.hosts)
	w.locked = "locked"
	for n := 0; n < 5 && w.violated == ""; n++ {
		w.send(h, sending{each: 1}, w.locked)
		w.isStored(w.send(h, sending{ack: "stored", each: 1}, beside...), 5*time.Second, "whose document is locked")
	}
	w.locked = ""
}
