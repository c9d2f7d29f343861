// Package faulttest tests the promise that acknowledged readings are stored, and that
// nothing is stored twice, whatever fails.
//
//	producers ──HTTP──▶ brim ──▶ proxy ──▶ mongod
//	    │                 ▲        ▲         ▲
//	    ▼                 └── faults of the named tests
//	   log ──▶ checker ◀── all documents, by majority ◀── mongod
//
// Every reading has a Mark. Producers record each attempt and its answer in a Log outside
// the daemon; after the faults, Check compares the log with the stored documents. Patches
// in internal/sabotage remove Brim's protections, one at a time; their headers name the
// tests that must fail then.
package faulttest

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Mark identifies a reading: its producer and its number, from 0. The reading
// has it in the fields producer and number.
type Mark struct {
	Producer, Number int64
}

// String returns producer/number.
func (m Mark) String() string {
	return strconv.FormatInt(m.Producer, 10) + "/" + strconv.FormatInt(m.Number, 10)
}

// Tags returns the tags of a sensor's reading. Of every five sensors, one has no
// tags, two have fixed tags, and two have changing tags. In line protocol the tags
// are part of the sensor's id.
func (m Mark) Tags(sensor string) []telemetry.Tag {
	if station, ok := strings.CutPrefix(sensor, "weather,station="); ok {
		return []telemetry.Tag{{Name: "station", Value: station}}
	}
	site := "north"
	switch m.Number % 5 {
	case 0:
		site = ""
	case 1, 2:
		site = []string{"", "north", "south"}[(m.Producer+m.Number/50)%3]
	}
	if site == "" {
		return nil
	}
	return []telemetry.Tag{{Name: "site", Value: site}}
}

// An Entry of a log is a request before it is sent, or its answer.
type Entry struct {
	Event    string // attempt or answer
	Producer int64
	From     int64 // number of the request's first reading
	Count    int   // of its readings
	// Bad are readings that Brim must refuse: if one is stored, it counts as never
	// attempted.
	Bad []int64
	// Code is the HTTP status of an answer, 0 if there was none. Refused are
	// the readings named by a 207.
	Code    int
	Refused []int64
}

// Events of a log.
const (
	attempt = "attempt"
	answer  = "answer"
)

// A Log records for every reading whether it was attempted and acknowledged. It
// is safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	state marks
}

// NewLog returns an empty log.
func NewLog() *Log { return &Log{state: make(marks)} }

// Note adds an entry.
func (l *Log) Note(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case e.Event == attempt:
		l.set(e, attempted, e.Bad)
	case acknowledges(e.Code):
		l.set(e, acked, e.Refused)
	}
}

func (l *Log) set(e Entry, bit byte, but []int64) {
	for n := e.From; n < e.From+int64(e.Count); n++ {
		if !slices.Contains(but, n) {
			*l.state.at(Mark{e.Producer, n}) |= bit
		}
	}
}

// acknowledges reports whether a status acknowledges a request's readings. With any
// other, they may or may not have been accepted.
func acknowledges(code int) bool {
	return code == 200 || code == 202 || code == 204 || code == 207
}

// Forgive allows all readings attempted so far to be lost, since their collection
// was dropped.
func (l *Log) Forgive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.state {
		for n := range of {
			of[n] |= forgiven
		}
	}
}

// Expire allows a producer's readings before this number to be missing or present, since
// retention may remove them at any time.
func (l *Log) Expire(producer, before int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.state[producer]
	for n := range of[:max(0, min(before, int64(len(of))))] {
		of[n] |= forgiven
	}
}

// Acked returns how many readings were acknowledged so far.
func (l *Log) Acked() int { return l.count(acked) }

// Attempted returns how many readings were sent so far.
func (l *Log) Attempted() int { return l.count(attempted) }

func (l *Log) count(bit byte) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, of := range l.state {
		for _, state := range of {
			if state&bit != 0 {
				n++
			}
		}
	}
	return n
}

// marks has a byte per reading, by producer and number: numbers are dense, and
// a full run has millions.
type marks map[int64][]byte

// The bits of a Log's bytes.
const (
	attempted byte = 1 << iota
	acked
	forgiven
)

// at returns a pointer to the reading's byte, growing the slice if necessary.
func (m marks) at(mark Mark) *byte {
	of := m[mark.Producer]
	if missing := mark.Number + 1 - int64(len(of)); missing > 0 {
		of = append(of, make([]byte, missing)...)
		m[mark.Producer] = of
	}
	return &of[mark.Number]
}

// get returns the reading's byte, or 0.
func (m marks) get(mark Mark) byte {
	of := m[mark.Producer]
	if mark.Number < 0 || mark.Number >= int64(len(of)) {
		return 0
	}
	return of[mark.Number]
}
