package faulttest

import (
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
	m := append(header, make([]byte, n-headerLength)...)
	if _, err := io.ReadFull(r, m[headerLength:]); err != nil {
		return nil, fmt.Errorf("read a message: %w", err)
	}
	return m, nil
}

func (m message) requestID() int32  { return int32(binary.LittleEndian.Uint32(m[4:])) }
func (m message) responseTo() int32 { return int32(binary.LittleEndian.Uint32(m[8:])) }

// A Command is what a client asks of MongoDB.
type Command struct {
	Name string
	Body bson.Raw // without what drivers send beside it, such as the documents of an insert
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
		return Command{Name: name, Body: doc}, true
	default:
		return Command{}, false
	}
}

// readDocument returns the document that b begins with.
func readDocument(b []byte) (bson.Raw, int, bool) {
	n := int(binary.LittleEndian.Uint32(b))
	if n < 5 || n > len(b) {
		return nil, 0, false
	}
	return bson.Raw(b[:n]), n, true
}
