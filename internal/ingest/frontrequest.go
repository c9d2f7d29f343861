package ingest

import (
	"bytes"
)

// A simpleRequest is what parseSimple understands.
type simpleRequest struct {
	body          []byte
	authorization []byte // nil: none
	journaled     bool   // is asked for
}

// simpleStart is how a simple request begins.
const simpleStart = "POST /v1/readings HTTP/1.1\r\n"

// parseSimple understands the requests that a front answers: to the default
// stream, in JSON, with no headers but those that say nothing, or nothing
// unusual, and whole, with nothing behind them. Each header may stand there
// once. It is strict, since what it does not understand loses nothing.
func parseSimple(request []byte) (r simpleRequest, ok bool) {
	rest, ok := bytes.CutPrefix(request, []byte(simpleStart))
	if !ok {
		return r, false
	}
	var seen headerSet
	length := -1
	for {
		end := bytes.Index(rest, []byte("\r\n"))
		if end < 0 {
			return r, false
		}
		line := rest[:end]
		rest = rest[end+2:]
		if end == 0 {
			break
		}
		h, value, ok := parseHeader(line)
		if !ok || seen&h != 0 {
			return r, false
		}
		seen |= h
		switch h {
		case headLength:
			length, ok = parseLength(value)
		case headType:
			ok = string(value) == "application/json"
		case headConnection:
			ok = string(value) == "keep-alive"
		case headAck:
			r.journaled, ok = true, string(value) == "journaled"
		case headHost:
			ok = isHost(value)
		case headAuthorization:
			r.authorization = value
		}
		if !ok {
			return r, false
		}
	}
	r.body = rest
	return r, seen&headNeeded == headNeeded && length == len(rest)
}

// headerSet is a set of headers that a simple request can have.
type headerSet uint16

const (
	headHost headerSet = 1 << iota
	headLength
	headType
	headConnection
	headAck
	headAgent
	headAccept
	headAcceptEncoding
	headAuthorization

	headNeeded = headHost | headLength | headType
)

// parseHeader returns which header a line holds, and its value; false if that
// cannot be in a simple request.
func parseHeader(line []byte) (h headerSet, value []byte, ok bool) {
	colon := bytes.IndexByte(line, ':')
	if colon < 0 {
		return 0, nil, false
	}
	for _, c := range line[colon+1:] {
		if c < ' ' || c > '~' {
			return 0, nil, false
		}
	}
	value = bytes.Trim(line[colon+1:], " ")
	// Sorted by length, for that tells most of them apart.
	switch name := line[:colon]; len(name) {
	case len("Host"):
		h, ok = headHost, isName(name, "host")
	case len("Accept"):
		h, ok = headAccept, isName(name, "accept")
	case len("Brim-Ack"):
		h, ok = headAck, isName(name, "brim-ack")
	case len("User-Agent"):
		if h, ok = headAgent, isName(name, "user-agent"); !ok {
			h, ok = headConnection, isName(name, "connection")
		}
	case len("Content-Type"):
		h, ok = headType, isName(name, "content-type")
	case len("Authorization"):
		h, ok = headAuthorization, isName(name, "authorization")
	case len("Content-Length"):
		h, ok = headLength, isName(name, "content-length")
	case len("Accept-Encoding"):
		h, ok = headAcceptEncoding, isName(name, "accept-encoding")
	}
	return h, value, ok
}

// isName reports whether a header's name is this one, whose letters are small.
func isName(name []byte, small string) bool {
	if len(name) != len(small) {
		return false
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != small[i] {
			return false
		}
	}
	return true
}

// parseLength reads a length that a simple request can have.
func parseLength(value []byte) (int, bool) {
	n := 0
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, 0 < len(value) && len(value) <= 4
}

// isHost reports whether a value is the usual name or address of a host, with or
// without a port.
func isHost(value []byte) bool {
	for _, c := range value {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '-', c == ':', c == '[', c == ']', c == '_':
		default:
			return false
		}
	}
	return len(value) > 0
}
