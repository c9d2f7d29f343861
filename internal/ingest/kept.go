package ingest

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// The answer to a request with an Idempotency-Key is kept with its readings, as
// far as the door can know it before the journal has them:
//
//	version, accepted, rejected            three bytes where all of up to 127 were accepted
//	number of reasons, each: code, count   only where some were rejected; reasons sorted
//	number of listed errors, each: index less the one before, number of the reason, message
//
// Numbers are unsigned varints, and texts have their length in front. Numbers of
// lines are not in it: a repetition has the same lines, or it would be none.
const keptVersion = 1

var errKept = errors.New("the answer that was kept is broken")

// keep encodes the answer of a request of which accepted readings go to the
// journal.
func (a *answer) keep(accepted int) []byte {
	dst := []byte{keptVersion}
	dst = binary.AppendUvarint(dst, uint64(accepted))
	dst = binary.AppendUvarint(dst, uint64(a.Rejected))
	if a.Rejected == 0 {
		return dst
	}
	reasons := slices.Sorted(maps.Keys(a.reasons))
	dst = binary.AppendUvarint(dst, uint64(len(reasons)))
	for _, code := range reasons {
		dst = appendText(dst, string(code))
		dst = binary.AppendUvarint(dst, uint64(a.reasons[code]))
	}
	dst = binary.AppendUvarint(dst, uint64(len(a.Errors)))
	last := 0
	for _, e := range a.Errors {
		dst = binary.AppendUvarint(dst, uint64(e.Index-last))
		last = e.Index
		reason, _ := slices.BinarySearch(reasons, e.Code)
		dst = binary.AppendUvarint(dst, uint64(reason))
		dst = appendText(dst, e.Message)
	}
	return dst
}

func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// decodeKept decodes what keep made; any other bytes are an error.
func decodeKept(kept []byte) (answer, error) {
	r := keptReader{rest: kept}
	if r.number(keptVersion) != keptVersion {
		return answer{}, errKept
	}
	a := answer{Accepted: r.number(greatestReadings), Rejected: r.number(greatestReadings), Errors: []refusedReading{}}
	if a.Rejected > 0 {
		reasons := r.reasons(&a)
		r.errors(&a, reasons)
	}
	if r.broken || len(r.rest) > 0 {
		return answer{}, errKept
	}
	return a, nil
}

// A keptReader reads numbers and texts; once something is wrong it stays broken
// and reads only zeros.
type keptReader struct {
	rest   []byte
	broken bool
}

// reasons reads the reasons and their counts, which make up all rejected.
func (r *keptReader) reasons(a *answer) []telemetry.Code {
	a.reasons = make(map[telemetry.Code]int)
	var reasons []telemetry.Code
	total := 0
	for range r.number(len(r.rest)) {
		code, count := telemetry.Code(r.text()), r.number(a.Rejected)
		r.broken = r.broken || count == 0 || len(reasons) > 0 && code <= reasons[len(reasons)-1]
		if r.broken {
			return nil
		}
		reasons = append(reasons, code)
		a.reasons[code] = count
		total += count
	}
	r.broken = r.broken || total != a.Rejected
	return reasons
}

// errors reads the listed errors; every reading is listed at most once.
func (r *keptReader) errors(a *answer, reasons []telemetry.Code) {
	listed := r.number(min(maxListed, a.Rejected))
	index := 0
	for i := range listed {
		step, reason, message := r.number(greatestReadings), r.number(len(reasons)-1), r.text()
		index += step
		r.broken = r.broken || i > 0 && step == 0 || index >= a.Accepted+a.Rejected
		if r.broken {
			return
		}
		a.Errors = append(a.Errors, refusedReading{Index: index, Code: reasons[reason], Message: message})
	}
	r.broken = r.broken || listed == 0 // answers name the first one
}

// number reads a number that is not greater than most.
func (r *keptReader) number(most int) int {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || most < 0 || v > uint64(most) {
		r.rest, r.broken = nil, true
		return 0
	}
	r.rest = r.rest[n:]
	return int(v)
}

func (r *keptReader) text() string {
	n := r.number(math.MaxInt32)
	if n > len(r.rest) {
		r.rest, r.broken = nil, true
		return ""
	}
	text := string(r.rest[:n])
	r.rest = r.rest[n:]
	return text
}
