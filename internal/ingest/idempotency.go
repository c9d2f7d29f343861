package ingest

import (
	"encoding/binary"
	"errors"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
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

// maxKeptText bounds the messages of a stored answer, except for the last one, which has less
// than 4 KiB. The journal takes answers of at most 64 KiB.
const maxKeptText = 48 << 10

var errBadAnswer = errors.New("the answer that was kept is broken")

// encode encodes the answer to a request with this number of accepted readings. It is stored
// with them, as far as it is known before they are journaled. Line numbers are not stored,
// because a repetition has the same lines.
func (a *answer) encode(accepted int) []byte {
	kept := answer{Accepted: accepted, Rejected: a.Rejected}
	for size := 0; len(kept.Errors) < len(a.Errors) && size < maxKeptText; {
		e := a.Errors[len(kept.Errors)]
		kept.Errors = append(kept.Errors, e)
		size += len(e.Message)
	}
	text, _ := proto.Marshal(kept.response()) // its texts are UTF-8
	return text
}

// decodeAnswer is the inverse of encode, for a request with this number of readings.
func decodeAnswer(kept []byte, readings int) (answer, error) {
	var r telemetrypb.WriteResponse
	if err := proto.Unmarshal(kept, &r); err != nil {
		return answer{}, errors.Join(errBadAnswer, err)
	}
	a := answer{Accepted: int(r.GetAccepted()), Rejected: int(r.GetRejected()), Errors: []refusedReading{}}
	for _, e := range r.GetErrors() {
		a.Errors = append(a.Errors, refusedReading{Index: int(e.GetIndex()), Code: telemetry.Code(e.GetCode()), Message: e.GetMessage()})
	}
	outside := func(e refusedReading) bool { return e.Index >= readings }
	if a.Accepted+a.Rejected != readings || len(a.Errors) > a.Rejected || (len(a.Errors) == 0) != (a.Rejected == 0) || slices.ContainsFunc(a.Errors, outside) {
		return answer{}, errBadAnswer
	}
	return a, nil
}
