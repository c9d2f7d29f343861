package read

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An answer is a ResponseWriter that records its state.
type answer struct {
	http.ResponseWriter

	head     bool     // of a HEAD request: no body is sent
	waiting  bool     // the answer is to unstored=only
	missing  []string // daemons that could not be asked; only their stored readings are included
	code     int
	begun    bool      // the header was written
	deadline time.Time // for the whole answer; zero: none
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	a.code, a.begun = code, true
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.begun = true
	defer a.startPiece()()
	for n := 0; ; a.startPiece() {
		m, err := a.ResponseWriter.Write(b[n:min(len(b), n+nextPiece)])
		if n += m; err != nil {
			return n, errors.Join(errClientGone, err)
		}
		if n == len(b) {
			return n, nil
		}
	}
}

// A client that reads slowly loses its slot: when it does not read a piece in time, and
// when it has not read the answer soon after the query's timeout.
const (
	pieceTimeout  = 5 * time.Second // for a piece
	deadlineGrace = 5 * time.Second // beyond the timeout
)

// setDeadline sets the deadline of the whole answer. reset removes it, for the next answer
// on the connection.
func (a *answer) setDeadline(within time.Duration) (reset func()) {
	control, deadline := http.NewResponseController(a.ResponseWriter), time.Now().Add(within)
	if control.SetWriteDeadline(deadline) != nil {
		return func() {} // not a connection with deadlines
	}
	a.deadline = deadline
	return func() { _ = control.SetWriteDeadline(time.Time{}) } // it could be set before
}

// startPiece sets the deadline for one piece. end must be called when the piece is written,
// because over HTTP/2 a deadline also aborts an answer that has nothing to write.
func (a *answer) startPiece() (end func()) {
	if a.deadline.IsZero() {
		return func() {}
	}
	control := http.NewResponseController(a.ResponseWriter)
	if first := time.Now().Add(pieceTimeout); first.Before(a.deadline) {
		_ = control.SetWriteDeadline(first) // as in setDeadline
	}
	return func() { _ = control.SetWriteDeadline(a.deadline) } // likewise
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) status() int { return cmp.Or(a.code, http.StatusOK) }

// How much NDJSON is buffered before the header is sent, so that most errors can still
// have their own status, and then before each piece.
const (
	firstPiece = telemetry.LongAnswer
	nextPiece  = 64 << 10
)

// A writer writes a list of items: as one JSON object, which is sent completely or not at
// all, or as NDJSON.
type writer struct {
	answer *answer
	lines  bool
	body   []byte
	opened int // length of the text before the list
	marked int // length of body at mark; -1: rollback is impossible
}

// mostSpare is the size of a buffer that is kept for a later answer: a day of readings takes
// megabytes.
const mostSpare = 4 << 20

// newWriter returns a writer, whose buffer is used again after the session.
func (q *query) newWriter(open string) *writer {
	out := &writer{answer: q.w, lines: q.params.lines, marked: -1}
	if spare := q.reader.spare.Swap(nil); spare != nil {
		out.body = (*spare)[:0]
	}
	q.end = append(q.end, func() {
		if buffer := out.body; cap(buffer) <= mostSpare {
			q.reader.spare.Store(&buffer) // not &out.body, which would keep the whole answer
		}
	})
	if !out.lines {
		out.body = append(out.body, open...)
	}
	out.opened = len(out.body)
	return out
}

// next begins an item.
func (o *writer) next() {
	if !o.lines && len(o.body) > o.opened {
		o.body = append(o.body, ",\n"...)
	}
}

// full reports whether the rest should be on the next page.
func (o *writer) full() bool { return !o.lines && len(o.body) > maxPageBytes }

// mark implements page.
func (o *writer) mark() { o.marked = len(o.body) }

// rollback implements page.
func (o *writer) rollback() bool {
	if o.marked < 0 {
		return false
	}
	o.body = o.body[:o.marked]
	return true
}

// flush ends an item.
func (o *writer) flush() error {
	if !o.lines {
		return nil
	}
	o.body = append(o.body, '\n')
	if len(o.body)-o.marked > maxPageBytes {
		o.marked = -1 // too much to keep
	}
	ready := o.ready()
	if ready < nextPiece || !o.answer.begun && ready < firstPiece {
		return nil
	}
	if !o.answer.begun {
		o.answer.Header().Set("Content-Type", typeLines)
		o.answer.Header().Set("Trailer", telemetry.AfterHeader)
	}
	return o.send()
}

// ready returns how many bytes can be sent.
func (o *writer) ready() int {
	if o.marked < 0 {
		return len(o.body)
	}
	return o.marked
}

// send sends what is ready.
func (o *writer) send() error {
	sent := o.body[:o.ready()]
	rest := o.body[len(sent):]
	o.marked = min(o.marked, 0)
	if o.answer.head {
		o.body = append(o.body[:0], rest...)
		return nil // HEAD has no body
	}
	if _, err := o.answer.Write(sent); err != nil {
		return err
	}
	o.body = append(o.body[:0], rest...)
	defer o.answer.startPiece()()
	if err := http.NewResponseController(o.answer).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errors.Join(errClientGone, err)
	}
	return nil
}

// end ends the list. after is the cursor of the next page; empty: there is none.
func (o *writer) end(after string) error {
	h := o.answer.Header()
	if !o.lines {
		h.Set("Content-Type", typeJSON)
		o.body = append(o.body, ']')
		if after != "" {
			o.body = append(append(o.body, `,"after":`...), quoted(after)...)
		}
		if len(o.answer.missing) > 0 {
			list, _ := json.Marshal(o.answer.missing) // strings can always be encoded
			o.body = append(append(o.body, `,"incomplete":`...), list...)
		}
		_, err := o.answer.Write(append(o.body, "}\n"...))
		return err
	}
	if !o.answer.begun {
		h.Set("Content-Type", typeLines)
	}
	if after != "" && !o.answer.begun {
		h.Set("Trailer", telemetry.AfterHeader)
		h.Set(telemetry.AfterHeader, headerText(after))
		o.answer.WriteHeader(http.StatusOK)
	}
	if o.answer.begun {
		h.Set(telemetry.AfterHeader, headerText(after)) // the trailer
	}
	_, err := o.answer.Write(o.body)
	return err
}

// abort ends an incomplete answer with a line that says why.
func (r *Reader) abort(w *answer, err error) {
	code, message := "internal", "an internal error occurred; see the daemon's log"
	var known *telemetry.Error
	if errors.As(err, &known) {
		code, message = known.Code, known.Message
	}
	r.cfg.Logger.Warn("aborted an answer", "code", code, "err", err)
	if _, err := fmt.Fprintf(w, `{"error":{"code":%s,"message":%s}}`+"\n", quoted(code), quoted(message)); err == nil {
		_ = http.NewResponseController(w).Flush() // the connection ends here in any case
	}
}

// headerText percent-encodes a cursor for a header, because sensor ids may contain any
// printable character.
func headerText(s string) string {
	var out []byte
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != '%' {
			out = append(out, c)
			continue
		}
		out = append(out, '%', "0123456789ABCDEF"[s[i]>>4], "0123456789ABCDEF"[s[i]&15])
	}
	return string(out)
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // strings can always be encoded
	return b
}

func appendTime(dst []byte, ms int64) []byte {
	return append(append(append(dst, '"'), telemetry.FormatMillis(ms)...), '"')
}

// appendSummary appends a step with its fields in the order of their names.
func appendSummary(dst []byte, s telemetry.Summary) []byte {
	dst = appendTime(append(dst, `{"start":`...), s.Start)
	dst = strconv.AppendInt(append(dst, `,"count":`...), s.Count, 10)
	dst = append(dst, `,"fields":{`...)
	slices.SortFunc(s.Fields, func(a, b telemetry.FieldSummary) int { return cmp.Compare(a.Name, b.Name) })
	for i, f := range s.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, quoted(f.Name)...), `:{"n":`...)
		dst = strconv.AppendInt(dst, f.N, 10)
		dst = f.Min.AppendJSON(append(dst, `,"min":`...))
		dst = f.Max.AppendJSON(append(dst, `,"max":`...))
		dst = append(dst, `,"mean":`...)
		if mean := f.Mean(); math.IsNaN(mean) || math.IsInf(mean, 0) {
			dst = append(dst, "null"...) // the sum does not fit a double
		} else {
			dst = telemetry.FloatValue(mean).AppendJSON(dst)
		}
		dst = append(dst, '}')
	}
	return append(dst, "}}"...)
}
