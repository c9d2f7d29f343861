package ingest

import (
	"net/http"
	"strconv"
	"time"
)

// A frontAnswer is the http.ResponseWriter of a front: it gathers an answer, so
// that it is one write.
type frontAnswer struct {
	header http.Header
	status int
	body   []byte
	out    []byte
}

// reset makes the answer an empty one.
func (a *frontAnswer) reset() {
	if a.header == nil {
		a.header = make(http.Header)
	}
	clear(a.header)
	a.status, a.body = http.StatusOK, a.body[:0]
}

// Header implements http.ResponseWriter.
func (a *frontAnswer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *frontAnswer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *frontAnswer) Write(p []byte) (int, error) {
	a.body = append(a.body, p...)
	return len(p), nil
}

// message returns the answer as it is sent; closing says that it is the last on
// its connection.
func (a *frontAnswer) message(closing bool) []byte {
	out := a.out[:0]
	out = append(out, "HTTP/1.1 "...)
	out = append(strconv.AppendInt(out, int64(a.status), 10), ' ')
	out = append(append(out, http.StatusText(a.status)...), "\r\n"...)
	for name, values := range a.header { // all are the door's own, and can stand in a header
		for _, value := range values {
			out = append(append(out, name...), ": "...)
			out = append(append(out, value...), "\r\n"...)
		}
	}
	out = append(out, "Date: "...)
	out = time.Now().UTC().AppendFormat(out, http.TimeFormat)
	if closing {
		out = append(out, "\r\nConnection: close"...)
	}
	out = append(out, "\r\nContent-Length: "...)
	out = strconv.AppendInt(out, int64(len(a.body)), 10)
	a.out = append(append(out, "\r\n\r\n"...), a.body...)
	return a.out
}
