package simulate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// A request is a client's, to one daemon.
type request struct {
	number  int
	what    string
	host    *host
	process *hosted
	done    atomic.Bool // the answer is there
	err     error       // of a flush
	answers []*httptest.ResponseRecorder
	whole   bool // no answer was broken off
	settle  func(r *request)
	began   int // on the clock of the run

	// Of a write.
	readings []*reading
	body     string
	key, ack string
	first    *request // that this one repeats
	code     int      // of the answer; 0: it is unknown
	accepted int
	repeated int // of the readings: how many, at the end, were sent before

	// Of a deletion.
	others map[*host]*hosted // that ran when it began

	// Of a query.
	stream, sensor string
	from, to       int64
	limit          int            // of readings on a page; 0: all are on one
	must           []*reading     // that the answer must not miss
	elsewhere      []*reading     // likewise, unless it says that it is incomplete, or is stale
	stale          bool           // there were two primaries: a majority read of the former shows nothing that other processes stored since
	reached        map[*host]bool // whose readings it shows, unless it says that it is incomplete
}

// begin sends a request.
func (w *world) begin(r *request, call func(r *request)) {
	w.requests++
	w.clock++
	r.number, r.began, r.process = w.requests, w.clock, r.host.process
	w.open = append(w.open, r)
	w.tell(clients, r.host.column, "request %d: %s", r.number, r.what)
	go func() {
		call(r)
		r.done.Store(true)
	}()
	w.tick() // two requests at one instant have no order
}

// send makes one call to the process of the request.
func (r *request) send(method, target, body string, header map[string]string) *httptest.ResponseRecorder {
	h := httptest.NewRequestWithContext(context.Background(), method, target, strings.NewReader(body))
	for k, v := range header {
		h.Header.Set(k, v)
	}
	answer, ok := r.process.call(h)
	r.answers, r.whole = append(r.answers, answer), ok
	return answer
}

// last returns the last answer.
func (r *request) last() *httptest.ResponseRecorder { return r.answers[len(r.answers)-1] }

// post writes some readings of one stream.
func (w *world) post(h *host) {
	stream := choose(w, streamNames[:])
	r := &request{host: h, stream: stream, settle: w.posted, ack: choose(w, []string{"", "", "", "stored"})}
	n := 1 + w.intN(w.moods.batch)
	sensors := w.moods.sensors
	base := w.time()
	var b strings.Builder
	names := make([]string, n)
	for i := range n {
		sensor := fmt.Sprintf("s-%d", w.intN(sensors))
		at := base.Add(time.Duration(w.intN(4)) * 100 * time.Millisecond)
		if w.chance(0.2) {
			at = w.time()
		}
		one := w.ledger.add(stream, sensor, at, w.chance(w.moods.bad), h)
		w.mayBeDeleted(one)
		one.open++
		one.poison = !one.bad && w.chance(w.moods.poison)
		r.readings = append(r.readings, one)
		b.WriteString(one.line(w.moods.filler))
		names[i] = sensor + "@" + strconv.FormatInt(one.mark.Number, 10)
	}
	w.repeatBlindly(r, &b)
	r.body = b.String()
	if w.chance(w.moods.keys) {
		r.key = fmt.Sprintf("key-%d", w.requests)
		w.keyed = append(w.keyed, r)
	}
	w.sendPost(r, strings.Join(names, " "))
}

// repeatBlindly adds readings that the client has sent already, in this request or before, where
// the rule on duplicates makes that harmless.
func (w *world) repeatBlindly(r *request, body *strings.Builder) {
	m := &w.moods
	if !m.settings.distinct || r.stream != bucketStream || m.removeFolder > 0 || w.chance(0.5) {
		return
	}
	sent := slices.DeleteFunc(w.ledger.ofSensor(r.stream, r.readings[0].sensor), func(one *reading) bool { return one.bad || one.poison || one.home != r.host })
	for range min(len(sent), 1+w.intN(3)) {
		one := choose(w, sent)
		one.open++
		r.readings, r.repeated = append(r.readings, one), r.repeated+1
		body.WriteString(one.line(m.filler))
	}
}

func (w *world) sendPost(r *request, names string) {
	entry := faulttest.Entry{Event: "attempt", Producer: r.readings[0].mark.Producer, From: r.readings[0].mark.Number, Count: len(r.readings) - r.repeated}
	for _, one := range r.readings {
		if one.bad {
			entry.Bad = append(entry.Bad, one.mark.Number)
		}
	}
	w.ledger.logs[r.stream].Note(entry)
	r.what = fmt.Sprintf("write %s %s", r.stream, names)
	if r.key != "" {
		r.what += " " + r.key
	}
	if r.ack != "" {
		r.what += " ack " + r.ack
	}
	w.begin(r, func(r *request) {
		header := map[string]string{"Content-Type": "application/x-ndjson"}
		if r.key != "" {
			header["Idempotency-Key"] = r.key
		}
		if r.ack != "" {
			header["Brim-Ack"] = r.ack
		}
		r.send(http.MethodPost, "/v1/streams/"+r.stream+"/readings", r.body, header)
	})
	for _, one := range r.readings {
		if one.sentAt == 0 {
			one.sentAt = r.began
		}
	}
}

// repeat sends a request with a key once more to its daemon.
func (w *world) repeat(h *host) {
	var of []*request
	for _, r := range w.keyed {
		if r.host == h {
			of = append(of, r)
		}
	}
	if len(of) == 0 {
		return
	}
	of = of[max(0, len(of)-6):]
	if unknown := slices.DeleteFunc(slices.Clone(of), func(r *request) bool { return r.code != http.StatusGatewayTimeout }); len(unknown) > 0 {
		of = unknown // to its daemon this is the hardest
	}
	first := choose(w, of)
	r := &request{host: h, stream: first.stream, settle: w.posted, ack: first.ack, readings: first.readings, body: first.body, key: first.key, first: first, repeated: first.repeated}
	for _, one := range r.readings {
		one.open++
	}
	w.sendPost(r, fmt.Sprintf("request %d again", first.number))
}

// answer is the answer to a write.
type answer struct {
	Accepted int    `json:"accepted"`
	Ack      string `json:"ack"`
	Code     string `json:"code"`
	Errors   []struct {
		Index int    `json:"index"`
		Code  string `json:"code"`
	} `json:"errors"`
}

// posted notes the answer to a write.
func (w *world) posted(r *request) {
	for _, one := range r.readings {
		one.open--
	}
	lost := r.process.killed || !r.whole
	code, a := 0, answer{}
	if !lost {
		code = r.last().Code
		if err := json.Unmarshal(r.last().Body.Bytes(), &a); err != nil {
			w.violate("request %d was answered with %d and no JSON: %v", r.number, code, err)
		}
	}
	r.code, r.accepted = code, a.Accepted
	w.refusals(r, &a)
	switch {
	case lost:
		w.tell(r.host.column, clients, "request %d: no answer", r.number)
	default:
		w.tell(r.host.column, clients, "request %d: %d %s%s", r.number, code, a.Ack, a.Code)
	}
	switch {
	case code == http.StatusOK || code == http.StatusAccepted || code == http.StatusMultiStatus:
		w.accepted(r, &a)
	case code == 0 || code == http.StatusGatewayTimeout:
		for _, one := range r.readings {
			one.unknown = true
		}
	case code == http.StatusServiceUnavailable:
		if strings.HasPrefix(a.Code, "journal_") && r.repeats(5) {
			w.violate("request %d is answered with %s, and request %d, which may have been accepted, had the same key", r.number, a.Code, r.first.number)
		}
	case code == http.StatusBadRequest && !slices.ContainsFunc(r.readings, func(one *reading) bool { return !one.bad && !one.poison && !w.tooOld(one) }) && (!r.repeats(2) || w.moods.poison > 0):
	case code == http.StatusRequestEntityTooLarge && w.moods.filler > 0: // half of the journal is not enough for it
	default:
		w.violate("request %d was answered with %d: %s", r.number, code, r.last().Body)
	}
	// Only an answer that waited until the readings were stored counts those that MongoDB
	// refused.
	refused := 0
	for _, one := range r.readings {
		if one.poison {
			refused++
		}
	}
	if f := r.first; f != nil && f.code/100 == 2 && code/100 == 2 && max(f.accepted, a.Accepted)-min(f.accepted, a.Accepted) > refused {
		w.violate("request %d repeats request %d, which accepted %d readings, and accepts %d", r.number, f.number, f.accepted, a.Accepted)
	}
}

// refusals notes the readings that MongoDB refuses, as an answer says that waited for it.
func (w *world) refusals(r *request, a *answer) {
	for _, e := range a.Errors {
		if one := r.readings[e.Index]; e.Code == "store_refused" && one.refusedBy == nil {
			one.refusedBy, one.refusedAt = r.process, w.clock
		}
	}
}

// repeats reports whether the request repeats one to the same process whose answer had a code
// of a hundred: 2 stands for those that accept something, 5 for an unknown outcome.
func (r *request) repeats(hundred int) bool {
	f := r.first
	return f != nil && f.process == r.process && f.code/100 == hundred && f.code != http.StatusServiceUnavailable
}

// tooOld reports whether a reading may be refused by now because of the retention.
func (w *world) tooOld(one *reading) bool {
	old := w.moods.settings.retention
	return old > 0 && one.at.Before(time.Now().Add(-old))
}

// accepted notes the readings that an answer acknowledges.
func (w *world) accepted(r *request, a *answer) {
	refused := make(map[int]string)
	for _, e := range a.Errors {
		refused[e.Index] = e.Code
	}
	entry := faulttest.Entry{Event: "answer", Producer: r.readings[0].mark.Producer, From: r.readings[0].mark.Number, Count: len(r.readings) - r.repeated, Code: r.code}
	for i, one := range r.readings {
		code, bad := refused[i]
		switch {
		case bad && !one.bad && (code != "store_refused" || !one.poison && w.moods.copyFolder == 0) && !w.tooOld(one):
			w.violate("request %d: reading %v is good and refused: %s", r.number, one.mark, code)
		case !bad && one.bad:
			w.violate("request %d: reading %v breaks a rule and is accepted", r.number, one.mark)
		case bad:
			entry.Refused = append(entry.Refused, one.mark.Number)
		default:
			one.acked = true
			if one.ackedAt == 0 {
				one.ackedAt = w.clock
			}
		}
	}
	w.ledger.logs[r.stream].Note(entry)
	if a.Ack != "stored" {
		return
	}
	w.mustBeStored(fmt.Sprintf("request %d is answered with stored", r.number), r.readings)
}

// mustBeStored checks that a majority has those of the readings that are acknowledged.
func (w *world) mustBeStored(why string, readings []*reading) {
	w.areStored(slices.DeleteFunc(slices.Clone(readings), func(one *reading) bool { return !one.due() }), why)
}

// areStored checks that a majority has readings.
func (w *world) areStored(readings []*reading, why string) {
	has := make(map[string]map[faulttest.Mark]int)
	for _, one := range readings {
		if has[one.stream] == nil {
			has[one.stream] = storedIn(slices.Concat(w.generations(one.stream)...))
		}
		if has[one.stream][one.mark] == 0 && !w.buried(one.mark) {
			w.violate("%s, and reading %s %v is not in the majority's documents", why, one.stream, one.mark)
		}
	}
}

// flushAll has a daemon store what it has.
func (w *world) flushAll(h *host) {
	r := &request{host: h, what: "flush"}
	for _, one := range w.ledger.readings {
		if one.home == h && one.due() {
			r.must = append(r.must, one)
		}
	}
	r.settle = func(r *request) {
		switch {
		case r.process.killed:
			w.tell(h.column, clients, "request %d: no answer", r.number)
		case r.err != nil:
			w.tell(h.column, clients, "request %d: not flushed", r.number)
		default:
			w.tell(h.column, clients, "request %d: flushed", r.number)
			w.mustBeStored(fmt.Sprintf("request %d has flushed", r.number), r.must)
		}
	}
	w.begin(r, func(r *request) {
		ctx, cancel := context.WithTimeout(r.process.requests, time.Minute)
		defer cancel()
		r.err = r.process.flush(ctx)
	})
}

// query asks a daemon for what it knows of a sensor.
func (w *world) query(h *host) {
	r := &request{host: h, stream: choose(w, streamNames[:]), sensor: fmt.Sprintf("s-%d", w.intN(w.moods.sensors)), to: 1 << 50}
	w.ask(r, choose(w, []string{"readings", "readings", "latest", "summary", "sensors"}), w.chance(0.3))
}

// ask sends a query; some ask for a part of the time, or for small pages.
func (w *world) ask(r *request, what string, part bool) {
	at := slices.Index([]string{"readings", "latest", "summary", "sensors"}, what)
	r.settle = []func(*request){w.gotReadings, w.gotLatest, w.gotSummary, w.gotSensors}[at]
	values := url.Values{"stream": {r.stream}}
	if of := w.ledger.acknowledged(r.stream, r.sensor); part && len(of) > 0 && (what == "readings" || what == "summary") {
		a, b := choose(w, of).at.UnixMilli(), choose(w, of).at.UnixMilli()+int64(w.intN(2))
		r.from, r.to = min(a, b), max(a, b)
		values.Set("from", strconv.FormatInt(r.from, 10))
		values.Set("to", strconv.FormatInt(r.to, 10))
	}
	if what == "readings" && w.chance(0.3) {
		r.limit = 1 + w.intN(6)
		values.Set("limit", strconv.Itoa(r.limit))
	}
	target := "/v1/sensors/" + r.sensor + "/" + what + "?" + values.Encode()
	if what == "sensors" {
		target = "/v1/sensors?" + values.Encode()
	}
	r.what = "GET " + target
	w.expect(r, what)
	w.begin(r, func(r *request) {
		for {
			got := r.send(http.MethodGet, target, "", nil)
			var page struct {
				After string `json:"after"`
			}
			if what != "readings" || !r.whole || got.Code != http.StatusOK || json.Unmarshal(got.Body.Bytes(), &page) != nil || page.After == "" {
				return
			}
			values.Set("after", page.After)
			target = "/v1/sensors/" + r.sensor + "/readings?" + values.Encode()
		}
	})
}

// expect notes what an answer must not miss.
func (w *world) expect(r *request, what string) {
	r.reached = make(map[*host]bool)
	for _, h := range w.hosts {
		r.reached[h] = w.reaches(r.host, h)
	}
	for _, one := range w.ledger.readings {
		ms := one.at.UnixMilli()
		if !one.due() || one.stream != r.stream || what != "sensors" && one.sensor != r.sensor || ms < r.from || ms >= r.to || w.buried(one.mark) {
			continue
		}
		switch {
		case r.host.process.knows(r.host, one):
			r.must = append(r.must, one)
		case r.reached[one.home]:
			r.elsewhere = append(r.elsewhere, one)
		}
	}
}

// knows reports whether the process on a host answers with a reading whichever of two primaries
// it asks. It has stored the reading, and so knows the primary that has it, or it will. One that
// starts while there are two knows only the one that it reaches, as does one that asks for
// readings of another daemon; a majority read of a former primary shows what was stored before
// the election. In a real replica set that, too, lasts for electionTimeout at most.
func (p *hosted) knows(h *host, one *reading) bool {
	return one.home == h && (!p.among || one.ackedAt > p.began)
}

// answered reports whether a query has an answer, and completes what it must have.
func (w *world) answered(r *request) bool {
	if r.process.killed || !r.whole {
		w.tell(r.host.column, clients, "request %d: no answer", r.number)
		return false
	}
	code := r.last().Code
	missing := ""
	for _, a := range r.answers {
		missing = cmp.Or(missing, a.Header().Get("Brim-Incomplete"))
	}
	w.tell(r.host.column, clients, "request %d: %d %s", r.number, code, missing)
	if missing != "" {
		r.reached = map[*host]bool{r.host: true}
	} else if !r.stale {
		r.must = append(r.must, r.elsewhere...)
	}
	// Since the query began, some may have been deleted, or refused by MongoDB.
	r.must = slices.DeleteFunc(r.must, func(one *reading) bool { return !one.due() || w.buried(one.mark) })
	switch code {
	case http.StatusOK:
	case http.StatusNotFound:
		if len(r.must) > 0 {
			w.violate("request %d is answered with 404, and reading %v was acknowledged before", r.number, r.must[0].mark)
		}
		return false
	case http.StatusServiceUnavailable:
		return false
	default:
		w.violate("request %d is answered with %d: %s", r.number, code, r.last().Body)
		return false
	}
	return true
}

// shown is a reading of an answer.
type shown struct {
	Sensor string    `json:"sensorId"`
	Time   time.Time `json:"ts"`
	Fields struct {
		Producer int64   `json:"producer"`
		Number   int64   `json:"number"`
		V        float64 `json:"v"`
	} `json:"fields"`
	Tags map[string]string `json:"tags"`
}

func (s *shown) mark() faulttest.Mark {
	return faulttest.Mark{Producer: s.Fields.Producer, Number: s.Fields.Number}
}

// check checks one reading of an answer.
func (w *world) check(r *request, s *shown) {
	one := w.ledger.of[s.mark()]
	switch {
	case one == nil || one.stream != r.stream || !one.mayShow(r, w.moods.copyFolder > 0):
		w.violate("request %d shows reading %v, which was never sent, or was refused", r.number, s.mark())
	case one.sensor != s.Sensor || !one.at.Truncate(time.Millisecond).Equal(s.Time):
		w.violate("request %d shows reading %v as of %s at %v; it was sent as of %s at %v", r.number, one.mark, s.Sensor, s.Time, one.sensor, one.at)
	case one.gone() && r.number > one.deleted:
		w.violate("request %d shows reading %v, which was deleted before", r.number, one.mark)
	case s.Fields.V != float64(one.mark.Number%17-8)+sign(one.mark.Number%17-8)*0.5:
		w.violate("request %d shows reading %v with the value %v", r.number, one.mark, s.Fields.V)
	default:
		tags := one.mark.Tags(one.sensor)
		if len(tags) != len(s.Tags) || len(tags) > 0 && s.Tags[tags[0].Name] != tags[0].Value {
			w.violate("request %d shows reading %v with tags %v, which was sent with %v", r.number, one.mark, s.Tags, tags)
		}
	}
}

// sign returns the sign with which a number and its decimals are written.
func sign(n int64) float64 {
	if n < 0 {
		return -1
	}
	return 1
}

func (w *world) gotReadings(r *request) {
	if !w.answered(r) {
		return
	}
	if r.limit > 0 && w.crowded(r) {
		return
	}
	seen := make(map[faulttest.Mark]int)
	last := int64(0)
	for _, a := range r.answers {
		var page struct {
			Readings []shown `json:"readings"`
		}
		if err := json.Unmarshal(a.Body.Bytes(), &page); err != nil {
			w.violate("request %d: %v", r.number, err)
			return
		}
		for i := range page.Readings {
			s := &page.Readings[i]
			w.check(r, s)
			ms := s.Time.UnixMilli()
			if ms < last || ms < r.from || ms >= r.to {
				w.violate("request %d shows reading %v at a time that is out of order or range", r.number, s.mark())
			}
			last = ms
			if seen[s.mark()]++; seen[s.mark()] == 2 && !w.shownTwice(r.stream) {
				w.violate("request %d shows reading %v twice", r.number, s.mark())
			}
		}
	}
	for _, one := range w.ledger.ofSensor(r.stream, r.sensor) {
		switch ms := one.at.UnixMilli(); {
		case seen[one.mark] > 0:
			one.note(sees, r.began, w.clock)
		case ms >= r.from && ms < r.to && r.reached[one.home] && (!r.stale || r.process.knows(r.host, one)):
			one.note(misses, r.began, w.clock)
		}
	}
	for _, one := range r.must {
		if seen[one.mark] == 0 {
			w.violate("request %d misses reading %v, which %s acknowledged before", r.number, one.mark, one.home.name)
			return
		}
	}
}

// crowded reports whether a millisecond has more readings than a page: those have no lasting
// order, so that pages may miss some or show them twice.
func (w *world) crowded(r *request) bool {
	at := make(map[int64]int)
	for _, one := range w.ledger.readings {
		if one.stream == r.stream && one.sensor == r.sensor {
			ms := one.at.UnixMilli()
			if at[ms]++; at[ms] > r.limit {
				return true
			}
		}
	}
	return false
}

func (w *world) gotLatest(r *request) {
	if !w.answered(r) {
		return
	}
	var s shown
	if err := json.Unmarshal(r.last().Body.Bytes(), &s); err != nil {
		w.violate("request %d: %v", r.number, err)
		return
	}
	w.check(r, &s)
	for _, one := range r.must {
		if one.at.UnixMilli() > s.Time.UnixMilli() {
			w.violate("request %d shows reading %v as the latest; %v is later and was acknowledged before", r.number, s.mark(), one.mark)
			return
		}
	}
}

func (w *world) gotSummary(r *request) {
	if !w.answered(r) {
		return
	}
	var got struct {
		Summary []struct {
			Count  int `json:"count"`
			Fields map[string]struct {
				N   int     `json:"n"`
				Min float64 `json:"min"`
				Max float64 `json:"max"`
			} `json:"fields"`
		} `json:"summary"`
	}
	if err := json.Unmarshal(r.last().Body.Bytes(), &got); err != nil || len(got.Summary) > 1 {
		w.violate("request %d: %v: %s", r.number, err, r.last().Body)
		return
	}
	most := 0
	for _, one := range w.ledger.readings {
		if ms := one.at.UnixMilli(); one.stream == r.stream && one.sensor == r.sensor && one.mayShow(r, w.moods.copyFolder > 0) && ms >= r.from && ms < r.to && (!one.gone() || r.number <= one.deleted) {
			most++
		}
	}
	count := 0
	if len(got.Summary) == 1 {
		count = got.Summary[0].Count
	}
	if count < len(r.must) || count > most && !w.shownTwice(r.stream) {
		w.violate("request %d counts %d readings; %d were acknowledged before, and %d are possible", r.number, count, len(r.must), most)
		return
	}
	for _, one := range r.must {
		f := got.Summary[0].Fields["number"]
		if n := float64(one.mark.Number); f.N != count || n < f.Min || n > f.Max {
			w.violate("request %d summarises %d numbers of %d readings from %v to %v, and misses reading %v", r.number, f.N, count, f.Min, f.Max, one.mark)
			return
		}
	}
}

func (w *world) gotSensors(r *request) {
	if !w.answered(r) {
		return
	}
	var got struct {
		Sensors []struct {
			Sensor string    `json:"sensorId"`
			Newest time.Time `json:"newest"`
		} `json:"sensors"`
	}
	if err := json.Unmarshal(r.last().Body.Bytes(), &got); err != nil {
		w.violate("request %d: %v", r.number, err)
		return
	}
	newest := make(map[string]int64)
	for _, s := range got.Sensors {
		if newest[s.Sensor] > 0 {
			w.violate("request %d lists sensor %s twice", r.number, s.Sensor)
		}
		newest[s.Sensor] = s.Newest.UnixMilli()
	}
	for _, one := range r.must {
		if newest[one.sensor] < one.at.UnixMilli() {
			w.violate("request %d misses sensor %s, or its reading %v of %v, which was acknowledged before", r.number, one.sensor, one.mark, one.at)
			return
		}
	}
}
