package faulttest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A message of MongoDB's wire protocol, with its header: length, request id,
// id that it answers, kind; each of four bytes, the least significant first.
type message []byte

const (
	headerLength = 16
	// maxMessage is what a mongod takes, 48,000,000 bytes, and some more.
	maxMessage = 64 << 20
	opMsg      = 2013
)

var errMessage = errors.New("this is not MongoDB's wire protocol")

func readMessage(r io.Reader) (message, error) {
	header := make([]byte, headerLength)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, fmt.Errorf("read a header: %w", err)
	}
	n := binary.LittleEndian.Uint32(header)
	if n < headerLength || n > maxMessage {
		return nil, errMessage
	}
	m := make(message, n)
	copy(m, header)
	if _, err := io.ReadFull(r, m[headerLength:]); err != nil {
		return nil, fmt.Errorf("read a message: %w", err)
	}
	return m, nil
}

func (m message) requestID() int32  { return int32(binary.LittleEndian.Uint32(m[4:])) }
func (m message) responseTo() int32 { return int32(binary.LittleEndian.Uint32(m[8:])) }

// A Command is what a client asks of MongoDB.
type Command struct {
	Name       string
	Body       bson.Raw   // without what drivers send beside it
	Operations []bson.Raw // that is, the documents of an insert, the updates of an update
}

// write returns the command of a message, if it is one that writes.
func (m message) write() (Command, bool) {
	// Flags of four bytes, then sections; kind 0 is the command's document, and
	// drivers send it first.
	const body = headerLength + 4 + 1
	if binary.LittleEndian.Uint32(m[12:]) != opMsg || len(m) < body+5 || m[body-1] != 0 {
		return Command{}, false
	}
	doc, length, ok := readDocument(m[body:])
	if !ok || length > len(m)-body {
		return Command{}, false
	}
	first, err := doc.IndexErr(0)
	if err != nil {
		return Command{}, false
	}
	switch name := first.Key(); name {
	case "insert", "update", "delete", "findAndModify", "bulkWrite":
		return Command{Name: name, Body: doc, Operations: readSequence(m[body+length:])}, true
	default:
		return Command{}, false
	}
}

// readSequence returns the documents of the section that b begins with, if it
// is a sequence: kind 1, its length, its name, and one document after another.
func readSequence(b []byte) []bson.Raw {
	if len(b) < 5 || b[0] != 1 {
		return nil
	}
	size := int(binary.LittleEndian.Uint32(b[1:]))
	if size < 4 || size > len(b)-1 {
		return nil
	}
	_, rest, _ := bytes.Cut(b[5:1+size], []byte{0})
	var all []bson.Raw
	for len(rest) >= 5 {
		doc, length, ok := readDocument(rest)
		if !ok {
			break
		}
		all = append(all, doc)
		rest = rest[length:]
	}
	return all
}

// reply makes the message that answers m with a document.
func (m message) reply(doc bson.D) message {
	body, err := bson.Marshal(doc)
	if err != nil {
		return nil // a test's own document; its client is cut off
	}
	r := make(message, headerLength+4+1, headerLength+4+1+len(body))
	r = append(r, body...)
	binary.LittleEndian.PutUint32(r, uint32(len(r)))
	copy(r[8:], m[4:8])
	binary.LittleEndian.PutUint32(r[12:], opMsg)
	return r
}

// CommandError is the answer of a server that has failed to carry out a
// command, or to learn its outcome.
func CommandError(code int) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "the proxy says so"}}
}

// WriteErrors is the answer of a server that refuses every operation of a
// command that writes, for the reason of the code.
func WriteErrors(c Command, code int) bson.D {
	errs := make(bson.A, len(c.Operations))
	for i := range errs {
		errs[i] = bson.D{{Key: "index", Value: i}, {Key: "code", Value: code}, {Key: "errmsg", Value: "the proxy refuses it"}}
	}
	return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 0}, {Key: "nModified", Value: 0}, {Key: "writeErrors", Value: errs}}
}

// readDocument returns the document that b begins with.
func readDocument(b []byte) (bson.Raw, int, bool) {
	n := int(binary.LittleEndian.Uint32(b))
	if n < 5 || n > len(b) {
		return nil, 0, false
	}
	return bson.Raw(b[:n]), n, true
}
