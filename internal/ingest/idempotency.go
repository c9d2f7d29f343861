package ingest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
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
// is known before they are journaled. Its first byte is the form: if all readings were accepted,
// their number and 0 follow as unsigned varints, three bytes for up to 127 readings; else a
// keptAnswer as JSON. Line numbers are not stored, because a repetition has the same lines.
const (
	keptCounts = 1 // earlier releases stored refusals behind the counts
	keptJSON   = 2
)

// maxKept bounds a stored answer; the journal takes answers of at most 64 KiB. One message, which
// has less than 4 KiB and six times as much as JSON, fits.
const maxKept = 60 << 10

var errBadAnswer = errors.New("the answer that was kept is broken")

type keptAnswer struct {
	Accepted int                    `json:"accepted"`
	Rejected int                    `json:"rejected"`
	Reasons  map[telemetry.Code]int `json:"reasons"`
	Errors   []refusedReading       `json:"errors"`
}

// encode encodes the answer to a request with this number of accepted readings.
func (a *answer) encode(accepted int) []byte {
	if a.Rejected == 0 {
		return append(binary.AppendUvarint([]byte{keptCounts}, uint64(accepted)), 0)
	}
	for listed := len(a.Errors); ; listed /= 2 {
		text := bytes.NewBuffer([]byte{keptJSON})
		to := json.NewEncoder(text)
		to.SetEscapeHTML(false)
		if _ = to.Encode(keptAnswer{accepted, a.Rejected, a.reasons, a.Errors[:listed]}); text.Len() < maxKept { // it never fails
			return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
		}
	}
}

// decodeAnswer is the inverse of encode. Of refusals that an earlier release stored it returns
// only the number.
func decodeAnswer(kept []byte) (answer, error) {
	if len(kept) == 0 {
		return answer{}, errBadAnswer
	}
	switch rest := kept[1:]; kept[0] {
	case keptCounts:
		accepted, n := binary.Uvarint(rest)
		rejected, m := binary.Uvarint(rest[max(n, 0):])
		if n > 0 && m > 0 && max(accepted, rejected) <= MostReadings && (rejected > 0 || len(rest) == n+m) {
			return answer{Accepted: int(accepted), Rejected: int(rejected), Errors: []refusedReading{}}, nil
		}
	case keptJSON:
		var k keptAnswer
		if json.Unmarshal(rest, &k) == nil && k.possible() {
			return answer{Accepted: k.Accepted, Rejected: k.Rejected, Errors: k.Errors, reasons: k.Reasons}, nil
		}
	}
	return answer{}, errBadAnswer
}

// possible reports whether there can be a request with refused readings that has this answer.
func (k *keptAnswer) possible() bool {
	if min(k.Accepted, k.Rejected) < 0 || max(k.Accepted, k.Rejected) > MostReadings ||
		len(k.Errors) == 0 || len(k.Errors) > min(maxListed, k.Rejected) { // answers use the first error
		return false
	}
	last, total := -1, 0
	for _, e := range k.Errors {
		if e.Index <= last || e.Index >= k.Accepted+k.Rejected || k.Reasons[e.Code] == 0 {
			return false
		}
		last = e.Index
	}
	for _, n := range k.Reasons {
		if n < 1 || n > k.Rejected {
			return false
		}
		total += n
	}
	return total == k.Rejected
}
