package promapi

import (
	"sync"
	"time"
)

// flights lets equal requests share an answer, for example if many people watch the same
// dashboard. A request joins an equal one that has not begun to read, so the answer has all
// readings that were acknowledged before either arrived:
//
//	A  ── waits for a slot ──┤ reads, evaluates ├─▶ answer
//	B  = A ──────────────────┘                  ├─▶ the same
//	C  = A, later: it asks for itself   └─ waits for a slot ──┤
type flights struct {
	mu      sync.Mutex
	waiting map[request]*flight // those that have not begun to read
}

// A request identifies equal requests.
type request struct {
	client
	call, label, form string
	at                time.Time // of an instant query; the form may leave it to the server
}

// A flight is the answer to equal requests.
type flight struct {
	done   chan struct{}  // closed when out is final
	out    *result        // nil: the first client went away, or there was a panic
	joined sync.WaitGroup // the other requests
}

// answer answers an exchange, or uses the answer to an equal one.
func (f *flights) answer(x *exchange, e *endpoint) (code string) {
	r := request{x.active.client, e.name, x.label, x.r.Form.Encode(), x.evaluation.start}
	for {
		one, first := f.join(r)
		if first {
			return f.lead(x, e, r, one)
		}
		select {
		case <-one.done:
		case <-x.r.Context().Done():
		}
		gone := x.r.Context().Err() != nil
		if code = codeGone; !gone && one.out != nil {
			code = x.reply(one.out)
		}
		one.joined.Done()
		if gone || one.out != nil {
			return code
		}
	}
}

// lead answers the first request of a flight, and keeps the answer until the other requests have
// sent it.
func (f *flights) lead(x *exchange, e *endpoint, r request, one *flight) (code string) {
	out := f.evaluate(x, e, r, one)
	if out.close != nil {
		defer out.close()
	}
	defer one.joined.Wait()
	return x.reply(out)
}

// evaluate evaluates a flight. If that panics, the requests that joined are evaluated again.
func (f *flights) evaluate(x *exchange, e *endpoint, r request, one *flight) *result {
	defer close(one.done)
	defer f.begin(r, one)
	out := x.answer(e, func() { f.begin(r, one) })
	if x.r.Context().Err() == nil {
		one.out = out
	}
	return out
}

// join returns the flight for a request, and whether the request is its first.
func (f *flights) join(r request) (one *flight, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one = f.waiting[r]; one != nil {
		one.joined.Add(1)
		return one, false
	}
	if f.waiting == nil {
		f.waiting = make(map[request]*flight)
	}
	one = &flight{done: make(chan struct{})}
	f.waiting[r] = one
	return one, true
}

// begin prevents further requests from joining. It may be called again.
func (f *flights) begin(r request, one *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting[r] == one {
		delete(f.waiting, r)
	}
}
