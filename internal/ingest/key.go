package ingest

import (
	"encoding/binary"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A request with an Idempotency-Key is taken once, however often it is sent. The
// journal keeps the key with the readings; the door says what the key stands for
// (its scope, and a hash that tells another body) and what a repetition is
// answered with (see kept.go).

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
// NUL and the sender's name; keys that were kept when nobody was asked stay what
// they are. No key and no name of a stream or a sender holds a NUL, and none of
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

// scopedKey returns the key of the request.
func (in *intake) scopedKey() string {
	sender := ""
	if in.who != nil {
		sender = in.who.Name
	}
	return scopedKey(sender, in.home.Name, in.key, in.part)
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
)

// bodyHash finishes the hash of a body.
func bodyHash(body *xxhash.Digest, m meaning) uint64 {
	var tail [9]byte // of a fixed length, so that it is not taken for a part of the body
	tail[0] = m.form
	binary.LittleEndian.PutUint64(tail[1:], uint64(m.ratio))
	_, _ = body.Write(tail[:]) // a hash takes everything
	return body.Sum64()
}
