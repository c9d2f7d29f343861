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

// A request with an Idempotency-Key is accepted once, however often it is sent. The journal
// stores the key with the readings. The Server determines the scope of the key, the hash of
// the body, and the answer to a repetition.

const (
	headerAck      = "Brim-Ack"
	headerKey      = "Idempotency-Key"
	headerReplayed = "Idempotent-Replayed" // in the answer to a repetition
	metadataKey    = "idempotency-key"     // in a gRPC call

	maxKeyBytes = 128
)

// idempotencyKey returns the key of a request from all values of its header; empty if there
// is none.
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

// scopedKey returns the key for the journal, which includes the stream and, if senders
// authenticate, the sender. part is the id of a message if several are sent under one key.
// Keys without a sender have no prefix, so that they stay valid when an access file is added.
// Neither keys nor the names of streams and senders contain NUL, and these names are not
// empty, so different requests never have the same scoped key.
func scopedKey(sender, stream, key, part string) string {
	scoped := stream + "\x00" + key
	if part != "" {
		scoped += "\x00" + part
	}
	if sender != "" {
		scoped = "\x00" + sender + "\x00" + scoped
	}
	return scoped
}

// A meaning distinguishes bodies with the same bytes that are decoded differently.
type meaning struct {
	form  byte
	ratio int64 // of line protocol: the unit of its timestamps
}

// The forms of a body. They are part of stored hashes, so the numbers must not change.
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
	var tail [9]byte // its length is fixed, so that it is never ambiguous
	tail[0] = m.form
	binary.LittleEndian.PutUint64(tail[1:], uint64(m.ratio))
	hash := xxhash.New()
	_, _ = hash.Write(body) // never fails
	_, _ = hash.Write(tail[:])
	return hash.Sum64()
}

// The answer to a request with an Idempotency-Key is stored with its readings, as far as it
// is known before they are journaled:
//
//	version, accepted, rejected            three bytes if all of up to 127 were accepted
//	number of reasons, each: code, count   only if some were rejected; reasons sorted
//	number of listed errors, each: difference of the index to the previous one, number of the reason, message
//
// Numbers are unsigned varints, and texts are preceded by their length. Line numbers are not
// stored, because a repetition has the same lines.
const answerVersion = 1

// maxKeptText bounds the messages of a stored answer, except for the last one, which has less
// than 4 KiB. The journal takes answers of at most 64 KiB.
const maxKeptText = 48 << 10

var errBadAnswer = errors.New("the answer that was kept is broken")

// encode encodes the answer to a request with this number of accepted readings.
func (a *answer) encode(accepted int) []byte {
	dst := []byte{answerVersion}
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
	listed, size := 0, 0
	for ; listed < len(a.Errors) && size < maxKeptText; listed++ {
		size += len(a.Errors[listed].Message)
	}
	dst = binary.AppendUvarint(dst, uint64(listed))
	last := 0
	for _, e := range a.Errors[:listed] {
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

// decodeAnswer is the inverse of encode.
func decodeAnswer(kept []byte) (answer, error) {
	r := answerReader{rest: kept}
	if r.number(answerVersion) != answerVersion {
		return answer{}, errBadAnswer
	}
	a := answer{Accepted: r.number(MostReadings), Rejected: r.number(MostReadings), Errors: []refusedReading{}}
	if a.Rejected > 0 {
		reasons := r.reasons(&a)
		r.errors(&a, reasons)
	}
	if r.broken || len(r.rest) > 0 {
		return answer{}, errBadAnswer
	}
	return a, nil
}

// An answerReader reads numbers and texts. After an error it stays broken and reads only
// zeros.
type answerReader struct {
	rest   []byte
	broken bool
}

// reasons reads the reasons and their counts, whose sum must be a.Rejected.
func (r *answerReader) reasons(a *answer) []telemetry.Code {
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
func (r *answerReader) errors(a *answer, reasons []telemetry.Code) {
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
	r.broken = r.broken || listed == 0 // answers use the first one
}

// number reads a number that is not greater than most.
func (r *answerReader) number(most int) int {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || most < 0 || v > uint64(most) {
		r.rest, r.broken = nil, true
		return 0
	}
	r.rest = r.rest[n:]
	return int(v)
}

func (r *answerReader) text() string {
	n := r.number(math.MaxInt32)
	if n > len(r.rest) {
		r.rest, r.broken = nil, true
		return ""
	}
	text := string(r.rest[:n])
	r.rest = r.rest[n:]
	return text
}
