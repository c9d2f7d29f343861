package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/queue"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/generation"
)

// moods are the settings of a run, drawn from its seed. Weights are relative; 0: never.
type moods struct {
	steps   int
	batch   int // readings in a request at most
	sensors int // of each stream
	keys    float64
	bad     float64
	filler  int // bytes of a text in each reading; 0: none

	post, query, flush, repeat, remove  float64
	kill, power, stop                   float64
	late, cutOff, refuse                float64 // of commands: executed and not answered, disconnected, refused
	replicate, stepDown, pause          float64
	calm, instant, moment, while        float64 // everything is carried out; time passes
	gated                               float64 // part of the operations of disks that wait
	failSync, failWrite, fill, crashing float64 // of those that wait
	cutPeers                            float64
	drop, refuseSensor, copyFolder      float64
	land                                float64       // commands whose connection broke: they are executed after all
	removeFolder                        float64       // of a journal
	poison                              float64       // part of the readings that are too large for a document
	rot                                 bool          // a disk may flip a bit while no process runs
	lock                                bool          // in the end, a transaction locks documents
	ahead                               time.Duration // how far the clock of a host is ahead until its first restart
	dropLate                            bool          // commands of killed processes are never executed
	hold                                bool          // commands whose connection broke are executed after an election, or never
	regrain                             bool          // a restart may change the granularity
	restore                             bool          // a restart may change the storage and the compressor of streams
	settings                            settings
}

// drawMoods draws the settings of a run, each by its name: a further one leaves the others as
// they are.
func drawMoods(seed uint64) moods {
	pick := func(name string, n int) int { return int(chance(seed, 0, name) * float64(n)) }
	some := func(name string, base float64) float64 { return base * []float64{0, 0.3, 1, 3}[pick(name, 4)] }
	oneOf := func(name string, of ...float64) float64 { return of[pick(name, len(of))] }
	duration := func(name string, of ...time.Duration) time.Duration { return of[pick(name, len(of))] }
	number := func(name string, of ...int) int { return of[pick(name, len(of))] }
	m := moods{
		steps: number("steps", 60, 120, 200, 300), batch: number("batch", 1, 3, 8, 20), sensors: number("sensors", 1, 2, 4), keys: oneOf("keys", 0, 0.5, 1), bad: oneOf("bad", 0, 0, 0.1),
		post: 8, query: some("query", 2), flush: some("flush", 0.7), repeat: some("repeat", 2), remove: some("remove", 0.3),
		kill: some("kill", 0.15), power: some("power", 0.12), stop: some("stop", 0.08),
		late: some("late", 2), cutOff: some("cutOff", 1), refuse: some("refuse", 1),
		replicate: some("replicate", 4), stepDown: some("stepDown", 0.3), pause: some("pause", 0.3),
		calm: oneOf("calm", 3, 10, 30), instant: 6, moment: some("moment", 6), while: some("while", 1),
		gated: oneOf("gated", 0, 0, 0.1, 0.5), failSync: some("failSync", 0.2), failWrite: some("failWrite", 0.2), crashing: some("crashing", 1), cutPeers: some("cutPeers", 0.2),
		dropLate: pick("dropLate", 2) == 0, hold: pick("hold", 4) == 0, regrain: pick("regrain", 4) == 0, restore: pick("restore", 3) == 0,
	}
	switch pick("rare", 10) {
	case 0: // after a deletion, numbers of parts say nothing, so that half of the runs have none
		m.drop, m.remove = 0.3, oneOf("drop remove", 0, m.remove)
	case 1:
		m.refuseSensor = 0.3
	case 2:
		m.copyFolder = 0.3
	}
	if pick("large", 8) == 0 {
		m.filler, m.fill = number("filler", 1000, 8000, 20000), some("fill", 0.3)
	}
	m.settings = settings{
		granularity: duration("granularity", time.Minute, 5*time.Minute, time.Hour), maxReadings: number("maxReadings", 3, 8, 30, 1000), maxBytes: number("maxBytes", 1<<10, 4<<10, 1<<20), maxPerUpdate: number("maxPerUpdate", 0, 0, 1, 5),
		policy: queue.Policy{
			Interval: duration("Interval", time.Millisecond, 100*time.Millisecond, time.Second), Readings: number("Readings", 1, 4, 60),
			Max: duration("Max", 50*time.Millisecond, 5*time.Second, time.Minute, 5*time.Minute), Budget: oneOf("Budget", -1, 0, 1),
		},
		queueBytes: 1 << 20, journalBytes: 1 << 20, segmentBytes: int64(number("segmentBytes", 4<<10, 16<<10, 64<<10)), tailBytes: int64(number("tailBytes", 1, 8<<10, 8<<20)),
		lanes: number("lanes", 1, 2, 4), heartbeat: duration("heartbeat", 1009*time.Millisecond, 10007*time.Millisecond, 10007*time.Millisecond), pings: pick("pings", 8) == 0,
		columns: pick("columns", 2) == 0, seal: duration("seal", 0, time.Second, time.Minute), distinct: pick("distinct", 6) == 0,
		remembered: number("remembered", 0, 8), retention: duration("retention", 0, 0, 0, time.Hour),
	}
	if m.settings.distinct { // what is sent again after a deletion would be new
		m.remove, m.drop, m.settings.retention = 0, 0, 0
	}
	m.restore = m.restore && m.drop == 0 // only the first collection is dropped
	m.land = oneOf("land", 2, 2, 0.1)
	switch pick("rarer", 12) {
	case 0:
		m.rot, m.keys = true, 0 // a key may rot unnoticed once its readings are stored
	case 1:
		m.lock = true
	case 2, 3:
		m.ahead, m.settings.retention = 2*time.Hour, 0
	case 4:
		m.removeFolder = 0.3
	case 5:
		m.poison, m.filler = 0.1, 1000
	}
	if m.refuseSensor > 0 {
		m.settings.journalBytes = 4 << 20 // more than a query searches
	}
	return m
}

// host is the place of a daemon: its disk and its address, and the process that runs.
type host struct {
	name, address string
	column        column
	files         *faulttest.Files
	letters       *letters
	process       *hosted // nil: none runs
	starts        int
	granularity   time.Duration
	cut           bool // other daemons cannot reach it
	full          bool // its disk
	failed        bool // its disk has failed a sync since the last start
	rotten        *rotten
}

// hosted is a process with what the simulation knows about it.
type hosted struct {
	process

	began    int  // on the clock of the run
	among    bool // when it started, there were two primaries
	killed   bool
	stopping bool
}

// A world is the simulation of one run.
type world struct {
	seed    uint64
	random  *rand.Rand // of the current step
	moods   moods
	mongo   *MongoDB
	hosts   []*host
	ledger  *ledger
	story   *story
	stop    bool // MongoDB is stopped
	flushes bool // once all faults have ended, clients flush what waits
	healing bool // all faults have ended
	verbose bool // the trace describes commands

	ended    []*hosted // processes that run no more, or soon
	open     []*request
	keyed    []*request
	requests int
	clock    int             // rises with each request and each answer
	deletes  bool            // a sensor was deleted
	returned map[string]bool // streams of which deleted readings may have been stored again
	steps    int
	ticks    int
	violated string
	// gap: a delayed insert into the time series was executed whose process was killed. Then
	// readings may be stored twice, see docs/durability.md.
	gap     map[string]bool // by stream
	refused string          // the sensor whose documents MongoDB refuses
	locked  string          // the sensor whose documents a transaction has locked

	mu    sync.Mutex
	ops   []*diskOp
	count map[string]uint64 // of operations of the same kind
}

func newWorld(seed uint64) *world {
	w := &world{
		seed: seed, random: rand.New(rand.NewPCG(seed, 0)), ledger: newLedger(), count: make(map[string]uint64), returned: make(map[string]bool), gap: make(map[string]bool),
	}
	w.moods = drawMoods(seed)
	w.mongo = NewMongoDB([]string{"m1:27017", "m2:27017"}[:1+w.intN(2)]...)
	if w.moods.poison > 0 {
		w.mongo.MaxDocument = maxDocumentOfPoison
	}
	time.Sleep(time.Until(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))) //nolint:forbidigo // fake time
	w.story = &story{began: time.Now()}
	w.addHost("A", faulttest.NewFiles(w.random.Uint64()))
	if w.chance(0.5) && w.moods.copyFolder == 0 {
		w.addHost("B", faulttest.NewFiles(w.random.Uint64()))
	}
	return w
}

func (w *world) intN(n int) int           { return w.random.IntN(n) }
func (w *world) chance(part float64) bool { return w.random.Float64() < part }
func choose[T any](w *world, of []T) T    { return of[w.random.IntN(len(of))] }

// twiceAllowed reports whether readings of a stream may be stored twice.
func (w *world) twiceAllowed(stream string) bool {
	return w.moods.settings.distinct && stream == bucketStream || w.moreThanOnce(stream)
}

// moreThanOnce reports whether they may be, and no rule on duplicates hides that.
func (w *world) moreThanOnce(stream string) bool {
	return w.gap[stream] || w.returned[stream]
}

// shownTwice reports whether answers may show readings of a stream twice: a daemon on a copied
// journal answers queries until it is refused, and both daemons have the same readings.
func (w *world) shownTwice(stream string) bool {
	return w.moreThanOnce(stream) || w.moods.copyFolder > 0
}

func (w *world) tell(from, to column, format string, args ...any) {
	w.story.tell(from, to, format, args...)
}

// violate notes the first thing that goes wrong.
func (w *world) violate(format string, args ...any) {
	if w.violated == "" {
		w.violated = fmt.Sprintf(format, args...)
		w.tell(clients, clients, "VIOLATED: %s", w.violated)
	}
}

// time draws when a reading was taken.
func (w *world) time() time.Time {
	now := time.Now().Truncate(time.Millisecond)
	edge := now.Truncate(w.moods.settings.granularity)
	if old := w.moods.settings.retention; old > 0 && w.chance(0.3) { // too old soon
		return now.Add(-old + time.Duration(w.intN(20_000))*time.Millisecond)
	}
	switch w.intN(10) {
	case 0:
		return edge
	case 1:
		return edge.Add(-time.Millisecond)
	case 2:
		return now.Add(-time.Duration(w.intN(7200)) * time.Second)
	case 3:
		return now.Add(time.Duration(w.intN(500)) * time.Second)
	}
	return now
}

// buried reports whether a reading is among the dead letters.
func (w *world) buried(m faulttest.Mark) bool {
	found := false
	w.letters(func(of faulttest.Mark, _ error) { found = found || of == m })
	return found
}

// letters calls visit for each dead letter.
func (w *world) letters(visit func(m faulttest.Mark, why error)) {
	for _, h := range w.hosts {
		h.letters.mu.Lock()
		for _, l := range h.letters.all {
			var of faulttest.Mark
			for _, f := range l.Reading.Fields {
				switch f.Name {
				case "producer":
					of.Producer = f.Value.Int()
				case "number":
					of.Number = f.Value.Int()
				}
			}
			visit(of, l.Reason)
		}
		h.letters.mu.Unlock()
	}
}

// A diskOp is an operation of a disk that waits for the scheduler.
type diskOp struct {
	host     *host
	files    *faulttest.Files
	op, name string
	decided  chan verdict
	ended    chan struct{} // after a verdict of crash
}

type verdict int

const (
	proceed  verdict = iota
	fail             // the operation fails
	crashing         // the operation is carried out, and the process is killed before it knows
)

// adopt gives a host a disk.
func (h *host) adopt(w *world, files *faulttest.Files) {
	w.mu.Lock()
	h.files = files
	w.mu.Unlock()
	files.Around(func(op, name string, do func() error) error {
		if !strings.Contains(name, ".journal") {
			return do()
		}
		o := &diskOp{host: h, files: files, op: op, name: name, decided: make(chan verdict, 1), ended: make(chan struct{})}
		w.mu.Lock()
		waits := !w.healing && h.files == files && w.gates(o)
		if waits {
			w.ops = append(w.ops, o)
		}
		w.mu.Unlock()
		if !waits {
			return do()
		}
		switch <-o.decided {
		case fail:
			if op == faulttest.Sync {
				files.FailSync(syscall.EIO, 1)
			} else {
				files.FailWrite(syscall.EIO, 1)
			}
			return do()
		case crashing:
			_ = do() // its outcome is unknown
			<-o.ended
			return faulttest.ErrPower
		}
		return do()
	})
}

// gates reports whether an operation waits for the scheduler. It does not depend on the
// order in which operations come at one instant.
func (w *world) gates(o *diskOp) bool {
	like := o.host.name + o.op + o.name
	w.count[like]++
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, like, w.count[like]) // never fails
	return rand.New(rand.NewPCG(h.Sum64(), 0)).Float64() < w.moods.gated
}

// waiting returns the operations of disks that wait, in an order that does not depend on
// goroutines.
func (w *world) waiting() []*diskOp {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.ops, func(a, b *diskOp) int {
		return cmp.Or(cmp.Compare(a.host.name, b.host.name), cmp.Compare(a.op, b.op), cmp.Compare(a.name, b.name))
	})
	return slices.Clone(w.ops)
}

func (w *world) decide(o *diskOp, v verdict) {
	w.mu.Lock()
	w.ops = slices.DeleteFunc(w.ops, func(one *diskOp) bool { return one == o })
	w.mu.Unlock()
	o.decided <- v
}

// start starts the next process of a host.
func (w *world) start(h *host) {
	h.starts++
	name := fmt.Sprintf("%s%d", h.name, h.starts)
	if h.starts > 1 && w.moods.regrain && w.chance(0.5) {
		granularities := []time.Duration{time.Minute, 5 * time.Minute, time.Hour}
		if w.moods.settings.columns {
			granularities = append(granularities, 2*time.Hour, 24*time.Hour)
		}
		h.granularity = choose(w, granularities)
	}
	kinds := map[string]generation.Target{
		bucketStream: {Storage: store.Bucket, Compressor: store.Zstd}, seriesStream: {Storage: store.TimeSeries, Compressor: store.Zstd},
	}
	if h.starts > 1 && w.moods.restore {
		for _, stream := range streamNames {
			kinds[stream] = generation.Target{
				Storage: choose(w, []store.Storage{store.Bucket, store.TimeSeries}), Compressor: choose(w, []store.Compressor{store.Zstd, store.Snappy}),
			}
		}
	}
	p := &hosted{process: process{
		name: name, session: "s" + strings.ToLower(name), settings: w.moods.settings, files: h.files, letters: h.letters,
		log: slog.New(slog.DiscardHandler),
	}}
	p.settings.granularity, p.settings.kinds = h.granularity, kinds
	if p.now = time.Now; h.starts == 1 && w.moods.ahead > 0 {
		p.now = func() time.Time { return time.Now().Add(w.moods.ahead).Round(0) }
	}
	p.began, p.among = w.clock, w.mongo.TwoPrimaries()
	h.process, h.failed = p, false
	w.tell(h.column, h.column, "%s starts, granularity %v, %s, %s", name, h.granularity, kinds[bucketStream], kinds[seriesStream])
	start(context.Background(), &p.process, outside{
		address: h.address, uri: w.mongo.URI(), dialer: w.mongo.Dialer(name), transport: &between{w, h},
	})
}

// kill ends a process at once; with power, what its disk had not synced may be lost.
func (w *world) kill(h *host, power bool) {
	p := h.process
	p.killed = true
	var left *faulttest.Files
	if power {
		left = h.files.PowerCut()
		w.tell(h.column, h.column, "power cut of %s", p.name)
	} else {
		left = h.files.Kill()
		w.tell(h.column, h.column, "kill -9 of %s", p.name)
	}
	w.mongo.Kill(p.name)
	old := h.files
	h.adopt(w, left)
	w.rots(h)
	for _, o := range w.waiting() {
		if o.files == old {
			w.decide(o, proceed) // and learns that the disk is gone
		}
	}
	p.cut()
	p.end()
	w.ended, h.process = append(w.ended, p), nil
}

// between carries requests of one daemon to others.
type between struct {
	world *world
	from  *host
}

// RoundTrip implements http.RoundTripper.
func (b *between) RoundTrip(r *http.Request) (*http.Response, error) {
	for _, h := range b.world.hosts {
		p := h.process
		if h.address != r.URL.Host || p == nil || !p.serving.Load() || h.cut || b.from.cut {
			continue
		}
		answer, ok := p.call(r)
		if !ok || p.killed {
			return nil, errors.New("the connection was broken off")
		}
		return answer.Result(), nil
	}
	return nil, errors.New("connection refused")
}

// run is the scheduler.
func (w *world) run() {
	for _, h := range w.hosts {
		w.start(h)
	}
	for w.steps = range w.moods.steps {
		w.rest()
		if w.violated != "" {
			break
		}
		w.step()
	}
	w.random = rand.New(rand.NewPCG(w.seed, math.MaxUint64))
	w.heal()
	if w.violated == "" {
		w.judge()
	}
	if w.violated == "" {
		w.linearizable()
	}
	w.end()
}

// tick lets some nanoseconds pass, each time another number of them: what begins at two
// steps and takes equally long must not end at one instant, for then the runtime chooses what
// comes first.
func (w *world) tick() {
	w.ticks++
	time.Sleep(time.Duration(10_000 + w.ticks*7919%9973)) //nolint:forbidigo // fake time
	synctest.Wait()
}

// rest waits until nothing can go on without the scheduler, and looks at what happened.
func (w *world) rest() {
	w.tick()
	for _, h := range w.hosts {
		if p := h.process; p != nil {
			select {
			case <-p.closed:
				w.endedByItself(h)
			default:
			}
		}
	}
	open, two := w.open, w.mongo.TwoPrimaries()
	if w.mongo.Overdue() {
		w.learn()
	}
	w.open = nil
	for _, r := range open {
		r.stale = r.stale || two
		if r.done.Load() || r.process.killed {
			w.clock++
			r.settle(r)
			continue
		}
		w.open = append(w.open, r)
	}
	w.bounded()
}

// endedByItself looks at why a process has ended.
func (w *world) endedByItself(h *host) {
	p := h.process
	h.process = nil
	var damaged *journal.CorruptionError
	switch {
	case p.err == nil:
		w.tell(h.column, h.column, "%s has ended", p.name)
	case errors.As(p.err, &damaged) && h.rotten != nil:
		w.restore(h)
	case errors.As(p.err, &damaged):
		w.violate("%s does not start: %v", p.name, p.err)
	default:
		w.tell(h.column, h.column, "%s has ended: %v", p.name, p.err)
	}
}

// bounded checks what must never grow beyond its limit.
func (w *world) bounded() {
	for _, h := range w.hosts {
		p := h.process
		if p == nil || !p.serving.Load() {
			continue
		}
		if s := p.journal.Status(); s.Bytes > s.MaxBytes+s.MaxBytes/2 {
			w.violate("the journal of %s has %d bytes; it may have %d", h.name, s.Bytes, s.MaxBytes)
		}
	}
}

// step does one of the things that may happen next. Each draws when it would come, by its
// name and the number of the step, and the first one does: where a run differs from another
// of its seed, or the simulation knows another event, most steps remain the same.
func (w *world) step() {
	w.random = rand.New(rand.NewPCG(w.seed, uint64(w.steps+1)))
	var first func()
	soonest := math.Inf(1)
	w.actions(func(name string, weight float64, do func()) {
		if weight == 0 {
			return
		}
		if at := -math.Log(1-w.stepChance(name)) / weight; at < soonest {
			first, soonest = do, at
		}
	})
	first()
}

// stepChance draws a number from 0 to 1 for a name and the current step.
func (w *world) stepChance(name string) float64 { return chance(w.seed, uint64(w.steps+1), name) }

// chance draws a number from 0 to 1.
func chance(seed, step uint64, name string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return rand.New(rand.NewPCG(seed^h.Sum64(), step)).Float64()
}

// soonest chooses one of several as step does.
func soonest[T any](w *world, of []T, name func(T) string) (first T) {
	soonest := math.Inf(1)
	for _, one := range of {
		if at := w.stepChance(name(one)); at < soonest {
			first, soonest = one, at
		}
	}
	return first
}

// can adds something that may happen, with its weight. The name says what it is, and whom it
// concerns.
type can func(name string, weight float64, do func())

// of returns a can whose names begin with what they concern.
func (c can) of(prefix string) can {
	return func(name string, weight float64, do func()) { c(prefix+" "+name, weight, do) }
}

func (w *world) actions(can can) {
	for _, h := range w.hosts {
		w.hostActions(h, can.of(h.name))
	}
	w.diskActions(can)
	w.commandActions(can)
	w.timeActions(can)
}

func (w *world) hostActions(h *host, can can) {
	m, p := &w.moods, h.process
	if p == nil {
		can("start", 2, func() { w.start(h) })
		return
	}
	can("kill", m.kill, func() { w.kill(h, false) })
	can("power", m.power, func() { w.kill(h, true) })
	can("cut", m.cutPeers, func() {
		h.cut = !h.cut
		w.tell(h.column, h.column, "other daemons reach %s: %t", h.name, !h.cut)
	})
	if m.fill > 0 {
		can("fill", m.fill, func() {
			h.full = !h.full
			capacity := int64(0)
			if h.full {
				capacity = int64(300<<10 + w.intN(1<<20))
			}
			h.files.SetCapacity(capacity)
			w.tell(h.column, disk, "the disk of %s has %d bytes (0: no limit)", h.name, capacity)
		})
	}
	if !p.serving.Load() {
		return
	}
	if !p.stopping {
		can("stop", m.stop, func() {
			p.stopping = true
			w.tell(h.column, h.column, "%s is told to stop", p.name)
			p.end()
		})
		if p.journal.Err() != nil && h.failed {
			can("restart", 2, func() { w.kill(h, false) })
			can("repeat unknown", 2, func() { w.repeat(h) }) // of which it does not know whether they were accepted
		}
	}
	if len(w.open) > 30 {
		return
	}
	can("write", m.post, func() { w.post(h) })
	can("query", m.query, func() { w.query(h) })
	can("flush", m.flush, func() { w.flushAll(h) })
	can("repeat", m.repeat, func() { w.repeat(h) })
	if m.copyFolder == 0 { // a copied journal would store deleted readings again
		can("remove", m.remove, func() { w.remove(h) })
	}
}

func (w *world) diskActions(can can) {
	m := &w.moods
	ops := w.waiting()
	if len(ops) == 0 {
		return
	}
	o := soonest(w, ops, func(o *diskOp) string { return o.host.name + o.op + o.name })
	can("proceed", 10, func() { w.decide(o, proceed) })
	can("crash", m.crashing, func() {
		w.tell(o.host.column, disk, "%s %s", o.op, o.name)
		w.decide(o, crashing)
		synctest.Wait()
		power := w.chance(0.5)
		w.kill(o.host, power)
		close(o.ended)
	})
	switch o.op {
	case faulttest.Sync:
		can("fail", m.failSync, func() { w.failOp(o) })
	case faulttest.Write:
		can("fail", m.failWrite, func() { w.failOp(o) })
	}
}

func (w *world) learn() {
	w.tell(server, server, "the former primary learns of the election")
	w.mongo.Notice()
}

func (w *world) failOp(o *diskOp) {
	o.host.failed = true
	w.tell(o.host.column, disk, "%s %s fails", o.op, o.name)
	w.decide(o, fail)
}

func (w *world) commandActions(can can) {
	m := &w.moods
	can("replicate", m.replicate, func() {
		w.mongo.Replicate(1 + w.intN(3))
	})
	can("elect", m.stepDown, func() {
		survive := w.intN(1 + w.mongo.Unreplicated())
		switch w.intN(4) {
		case 0:
			w.tell(server, server, "another primary is elected; %d of %d entries survive; the former does not know", survive, w.mongo.Unreplicated())
			w.mongo.Elect(survive)
		case 1:
			w.learn()
		case 2:
			w.tell(server, server, "the primary crashes; %d of %d entries survive", survive, w.mongo.Unreplicated())
			w.mongo.Crash(survive)
			w.stop = false
		default:
			w.tell(server, server, "the primary steps down; %d of %d entries survive", survive, w.mongo.Unreplicated())
			w.mongo.StepDown(survive)
		}
	})
	if m.copyFolder > 0 && len(w.hosts) == 1 {
		can("copy", m.copyFolder, w.copyFolder)
	}
	can("drop", m.drop, func() { w.drop(choose(w, streamNames[:])) })
	can("remove", m.removeFolder, w.removeFolder)
	can("refuse sensor", m.refuseSensor, func() {
		if w.refused == "" {
			w.refuseSensor("s-0")
		} else {
			w.refuseSensor("")
		}
	})
	if w.stop {
		can("continue", max(m.pause, 0.3), func() {
			w.stop = false
			w.tell(server, server, "MongoDB continues")
			w.mongo.Continue()
		})
		return
	}
	can("pause", m.pause, func() {
		w.stop = true
		w.tell(server, server, "MongoDB is stopped")
		w.mongo.Stop()
	})
	commands := slices.DeleteFunc(w.mongo.Waiting(), w.holds)
	if len(commands) == 0 {
		return
	}
	c := soonest(w, commands, func(c *Command) string { return string(c.order) })
	can = can.of(c.Client + c.Name + c.Collection)
	switch {
	case c.Gone():
		can("land", m.land, func() { w.landLate(c) })
	case c.Executed():
		if c.Answerable() {
			can("answer", 10, func() { w.reply(c) })
		} else {
			can("refuse", m.refuse/2, func() { w.refuse(c, 64) })
		}
		can("disconnect", m.cutOff, func() { w.disconnect(c) })
	default:
		can("carry out", 10, func() { w.carryOut(c) })
		can("execute", m.late, func() { w.execute(c) })
		can("disconnect", m.cutOff, func() { w.disconnect(c) })
		can("refuse", m.refuse, func() { w.refuse(c, choose(w, []int32{91, 189, 11600, 50})) })
	}
}

// columnOf returns the column of the daemon that sent a command.
func columnOf(c *Command) column {
	if strings.HasPrefix(c.Client, "B") {
		return daemonB
	}
	return daemonA
}

func (w *world) tellCommand(c *Command, what string) {
	w.tell(columnOf(c), server, "%s", w.command(c)+what)
}

// command is a command in the trace.
func (w *world) command(c *Command) string {
	text := fmt.Sprintf("%s: %s %s", c.Client, c.Name, c.Collection)
	if w.verbose {
		text += " " + describe(c)
	}
	return text
}

func (w *world) execute(c *Command) {
	w.tellCommand(c, "")
	c.Execute()
}

func (w *world) reply(c *Command) {
	w.tell(server, columnOf(c), "%s: answer to %s %s", c.Client, c.Name, c.Collection)
	c.Answer()
}

// carryOut executes a command, and answers it once a majority has what it did.
func (w *world) carryOut(c *Command) {
	c.Execute()
	w.mongo.Replicate(w.mongo.Unreplicated())
	w.confirm(c)
}

// confirm answers a command that was executed just now, if its write concern is met.
func (w *world) confirm(c *Command) {
	if !c.Answerable() {
		w.tellCommand(c, "")
		return
	}
	w.story.exchange(columnOf(c), c.isRoutine(), w.command(c))
	c.Answer()
}

// isRoutine reports whether a command that is answered says nothing to readers of a trace.
func (c *Command) isRoutine() bool {
	return c.Collection == "brim_sessions" || slices.Contains([]string{"buildInfo", "listCollections", "listIndexes", "replSetGetConfig"}, c.Name)
}

func (w *world) refuse(c *Command, code int32) {
	w.tell(server, columnOf(c), "%s: error %d to %s %s", c.Client, code, c.Name, c.Collection)
	c.Refuse(code)
}

func (w *world) disconnect(c *Command) {
	w.tell(server, columnOf(c), "%s: connection of %s %s breaks", c.Client, c.Name, c.Collection)
	c.Disconnect()
}

// holds reports whether a command whose connection broke is still on its way.
func (w *world) holds(c *Command) bool {
	return w.moods.hold && c.Gone() && !c.Executed() && !c.Overtaken()
}

// landLate executes a command whose connection broke before, or drops it.
func (w *world) landLate(c *Command) {
	killed := !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.process != nil && h.process.name == c.Client })
	if killed && w.moods.dropLate || w.chance(0.3) {
		c.Forget()
		return
	}
	if kind, _ := w.mongo.Collection(database, c.Collection); c.Name == "insert" && kind == "timeseries" && killed {
		w.gap[streamOf(c.Collection)] = true
	}
	w.tellCommand(c, ", late")
	w.landed(c)
	c.Execute()
}

func (w *world) timeActions(can can) {
	m := &w.moods
	sleep := func(least, most int, unit time.Duration) func() {
		return func() { time.Sleep(time.Duration(least+w.intN(most-least)) * unit) } //nolint:forbidigo // fake time
	}
	can("calm", m.calm, w.carryOutAll)
	can("instant", m.instant, sleep(1, 21, time.Millisecond))
	can("moment", m.moment, sleep(100, 1000, time.Millisecond))
	can("while", m.while, sleep(2, 12, time.Second))
}

// carryOutAll does all that waits, in order.
func (w *world) carryOutAll() {
	m := &w.moods
	for _, o := range w.waiting() {
		w.decide(o, proceed)
		w.tick()
	}
	if w.stop {
		return
	}
	now := make(map[*Command]bool) // that are executed now
	for _, c := range w.mongo.Waiting() {
		if !c.Executed() && !c.Gone() && !w.isLocked(c) {
			now[c] = true
			c.Execute()
		}
	}
	w.mongo.Replicate(w.mongo.Unreplicated())
	for _, c := range w.mongo.Waiting() {
		switch {
		case now[c] && c.Answerable() && !c.Gone():
			w.confirm(c)
		case c.Answerable() && !c.Gone():
			w.reply(c)
		case c.Executed() && !c.Gone(): // by a primary that was deposed
			w.refuse(c, 189)
		case w.healing && c.Gone() && !c.Executed() && !w.isLocked(c) && !w.holds(c) && w.chance(min(1, m.land)):
			w.landLate(c)
		}
		w.tick()
	}
}

// longestRest is how long it may take until everything is at rest after the last fault.
const longestRest = 5 * time.Minute

// heal ends all faults, and waits until everything is stored.
func (w *world) heal() {
	w.tell(clients, clients, "all faults end")
	w.mu.Lock()
	w.stop, w.healing = false, true
	w.mu.Unlock()
	w.mongo.Continue()
	w.mongo.Notice()
	for _, h := range w.hosts {
		h.cut = false
		h.files.SetCapacity(0)
	}
	if w.moods.refuseSensor > 0 {
		w.refuseSensor("") // also if it did before: that may have been rolled back
	}
	if w.moods.copyFolder == 0 {
		w.drains()
		for _, check := range []func(*host){w.gathers, w.others, w.divides} {
			w.settleAll(w.hosts)
			if w.violated == "" {
				check(w.hosts[0])
			}
		}
		w.settleAll(w.hosts)
		w.lands()
		w.forgets()
		return
	}
	for _, h := range append(slices.Clone(w.hosts), w.hosts[0]) { // one after the other: they may have the same sessions
		for _, other := range w.hosts {
			if p := other.process; p != nil && other != h {
				w.tell(other.column, other.column, "%s is told to stop", p.name)
				p.stopping = true
				p.end()
				for other.process != nil && w.violated == "" {
					w.pass(100 * time.Millisecond)
				}
			}
		}
		w.settleAll([]*host{h})
	}
}

// settleAll waits until everything that hosts have is stored. It restarts what has ended,
// and what its disk has failed.
func (w *world) settleAll(hosts []*host) {
	w.flushes = true
	w.await(hosts, longestRest)
}

// await waits until nothing is left to do.
func (w *world) await(hosts []*host, most time.Duration) {
	until := time.Now().Add(most)
	for w.violated == "" {
		why := w.unrest(hosts)
		if why == "" {
			return
		}
		if time.Now().After(until) {
			w.violate("%v after the last fault: %s", most, why)
		}
		w.pass(50 * time.Millisecond)
		w.rest()
	}
}

// unrest returns what is left to do, empty if there is nothing, and begins it.
func (w *world) unrest(hosts []*host) string {
	for _, h := range hosts {
		p := h.process
		switch {
		case p == nil:
			w.start(h)
			return h.name + " is not running"
		case p.stopping || !p.serving.Load():
			return h.name + " is starting or stopping"
		}
		if err := p.journal.Err(); err != nil && h.failed {
			w.kill(h, false)
			return h.name + " has a failed journal"
		}
		if p.claims.Err() != nil { // as its log tells the operator
			w.kill(h, false)
			return h.name + " has lost a session"
		}
	}
	if len(w.open) > 0 {
		return fmt.Sprintf("request %d is not answered", w.open[0].number)
	}
	for _, h := range hosts {
		if s := h.process.queue.Status(); s.Readings > 0 {
			if w.flushes {
				w.flushAll(h)
			}
			return fmt.Sprintf("%d readings wait in %s", s.Readings, h.name)
		}
	}
	return ""
}

// judge checks what is stored in the end.
func (w *world) judge() {
	w.letters(func(m faulttest.Mark, why error) {
		if one := w.ledger.of[m]; (one == nil || !one.poison) && w.moods.copyFolder == 0 {
			w.violate("reading %v is a dead letter, and MongoDB has not refused it: %v", m, why)
		}
	})
	for _, stream := range streamNames {
		log := w.ledger.logs[stream]
		collections := w.generations(stream)
		var documents []iter.Seq[bson.Raw]
		for _, of := range collections {
			documents = append(documents, slices.Values(of))
		}
		r := faulttest.CheckDocuments(faulttest.CheckConfig{
			Log: log, Stream: stream, MaxReadings: w.moods.settings.maxReadings, MaxBytes: w.moods.settings.maxBytes,
		}, documents...)
		r.Lost = slices.DeleteFunc(r.Lost, func(m faulttest.Mark) bool { return w.buried(m) || !w.ledger.of[m].due() })
		if w.deletes { // a daemon goes on with the part that it wrote last
			r.BadDocuments = slices.DeleteFunc(r.BadDocuments, func(why string) bool {
				return strings.Contains(why, "should have number") || strings.HasSuffix(why, "is open, and not the last")
			})
		}
		w.stands(stream)
		if w.twiceAllowed(stream) {
			r.Twice = nil
		}
		if r.Wrong() > 0 {
			w.violate("stream %s: %s", stream, r.Report())
		}
		w.clock++
		w.stored(stream, storedIn(slices.Concat(collections...)))
	}
	for _, h := range w.hosts {
		if h.process == nil || len(w.hosts) > 1 && w.chance(0.5) {
			continue
		}
		for _, stream := range streamNames {
			for n := range w.moods.sensors {
				for _, what := range []string{"readings", "latest", "summary"} {
					w.ask(&request{host: h, stream: stream, sensor: fmt.Sprintf("s-%d", n), to: 1 << 50}, what, false)
				}
			}
			w.ask(&request{host: h, stream: stream, to: 1 << 50}, "sensors", false)
		}
	}
	for range 10_000 { // pages may be of two readings
		w.rest()
		if len(w.open) == 0 || w.violated != "" {
			return
		}
		w.carryOutAll()
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // fake time, for queries that wait for a slot
	}
	w.violate("request %d is not answered", w.open[0].number)
}

// generations returns what a majority holds of the collections of a stream.
func (w *world) generations(stream string) (out [][]bson.Raw) {
	for _, name := range append([]string{stream}, laterGenerations(stream)...) {
		out = append(out, w.mongo.Documents(database, name))
	}
	return out
}

// laterGenerations are names that collections of a stream can get.
func laterGenerations(stream string) (names []string) {
	for n := 2; n <= 6; n++ { // one for each storage and compressor
		names = append(names, fmt.Sprintf("%s.g%d", stream, n))
	}
	return names
}

// streamOf returns the stream that a collection belongs to.
func streamOf(collection string) string {
	stream, _, _ := strings.Cut(collection, ".g")
	return stream
}

// stored checks what is stored against what clients know.
func (w *world) stored(stream string, has map[faulttest.Mark]int) {
	for _, one := range w.ledger.readings {
		switch n := has[one.mark]; {
		case one.stream != stream:
		case n == 0:
			one.note(misses, w.clock, w.clock)
		case !one.possible():
			w.violate("stream %s: reading %v is stored %d times, and was refused", stream, one.mark, n)
		case one.gone():
			w.violate("stream %s: reading %v is stored, and was deleted", stream, one.mark)
		default:
			one.note(sees, w.clock, w.clock)
		}
	}
}

// end ends everything that runs.
func (w *world) end() {
	for _, h := range w.hosts {
		if p := h.process; p != nil {
			w.kill(h, false)
		}
	}
	for _, p := range w.ended {
		<-p.closed
	}
	w.mongo.Close()
	synctest.Wait()
}
