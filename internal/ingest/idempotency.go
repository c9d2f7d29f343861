package ingest

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A request with an Idempotency-Key is taken once, however often it is sent. The
// journal keeps the key with the readings; the Server says what the key stands for
// (its scope, and a hash that tells another body) and what a repetition is
// answered with.

const (
	headerAck      = "Brim-Ack"
	headerKey      = "Idempotency-Key"
	headerReplayed = "Idempotent-Replayed" // of an answer that was given before
	metadataKey    = "idempotency-key"     // of a gRPC call

	maxKeyBytes = 128
)

// idempotencyKey returns the key of a request from all values of its header; an
// empty one where there is none.
func idempotencyKey(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		if isKey(values[0]) {
			return values[0], nil
		}
		return "", telemetry.Errorf(telemetry.Invalid, codeKey,
			"the idempotency key %s cannot be used; a key is 1 to %d bytes of printable UTF-8", telemetry.Quote([]byte(values[0])), maxKeyBytes)
	}
	return "", telemetry.Errorf(telemetry.Invalid, codeKey, "%d idempotency keys are given; one is allowed", len(values))
}

func isKey(key string) bool {
	for _, r := range key {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return key != "" && len(key) <= maxKeyBytes && utf8.ValidString(key)
}

// scopedKey is a key as the journal knows it: the same key sent to another
// stream is another one. part is the id of one message of many under a key,
// otherwise empty. Where senders are known, each has keys of its own, behind a
// NUL and the sender's name; keys from before the daemon had an access file stay
// what they are. No key and no name of a stream or a sender holds a NUL, and none of
// these names is empty, so that different requests never meet.
func scopedKey(sender, stream, key, part string) string {
	if key == "" {
		return ""
	}
	scoped := stream + "\x00" + key
	if part != "" {
		scoped += "\x00" + part
	}
	if sender != "" {
		scoped = "\x00" + sender + "\x00" + scoped
	}
	return scoped
}

// A meaning is what makes the same bytes another body.
type meaning struct {
	form  byte
	ratio int64 // of line protocol: the unit of its timestamps
}

// The forms of a body. They are part of hashes that are kept, so the numbers
// must not change.
const (
	meansJSON byte = iota + 1
	meansLines
	meansLineProtocol
	meansProtobuf

	meansRemoteWrite byte = 10
	meansOTLP        byte = 11
	meansOTLPJSON    byte = 12
)

// bodyHash returns the hash of a body.
func bodyHash(body []byte, m meaning) uint64 {
	var tail [9]byte // of a fixed length, so that it is not taken for a part of the body
	tail[0] = m.form
	binary.LittleEndian.PutUint64(tail[1:], uint64(m.ratio))
	hash := xxhash.New()
	_, _ = hash.Write(body) // never fails
	_, _ = hash.Write(tail[:])
	return hash.Sum64()
}

// The answer to a request with an Idempotency-Key is kept with its readings, as
// far as the Server can know it before the journal has them:
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
	a := answer{Accepted: r.number(MostReadings), Rejected: r.number(MostReadings), Errors: []refusedReading{}}
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
		step, reason, message := r.number(MostReadings), r.number(len(reasons)-1), r.text()
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
