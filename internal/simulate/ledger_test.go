package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// A reading is one that a client sent, perhaps several times.
type reading struct {
	mark   faulttest.Mark
	stream string
	sensor string
	at     time.Time
	bad    bool // breaks a rule, so that it must be refused
	poison bool // is too large for a document of MongoDB
	home   *host

	acked     bool
	forgiven  bool // its collection was dropped since it was sent, or it was deleted and may return
	deletes   int  // of its sensor that are not answered
	uncertain bool // one of those has an unknown outcome, or came before the acknowledgement
	startsOf  int  // of its host, when the first such deletion was answered
	deleted   int  // the number of the last request before its sensor was deleted; 0: it was not
	open      int  // attempts without an answer yet
	unknown   bool // an attempt has an unknown outcome
	// The process that said that MongoDB refuses it, nil: none did; and when, on the clock of the
	// run. A later process finds it in the journal, and learns so anew.
	refusedBy *hosted
	refusedAt int

	sentAt, ackedAt int // on the clock of the run; 0: not yet
	history         []touch
}

// due reports whether the reading must be there.
func (r *reading) due() bool {
	return r.acked && !r.forgiven && !r.uncertain && r.deletes == 0 && !r.gone()
}

// gone reports whether the reading was deleted for good.
func (r *reading) gone() bool { return r.deleted > 0 && !r.forgiven }

// possible reports whether the reading may be stored.
func (r *reading) possible() bool { return !r.bad && (r.acked || r.unknown || r.open > 0) }

// mayBeGone notes that a deletion may have concerned the reading, or not.
func (r *reading) mayBeGone() {
	if !r.uncertain {
		r.uncertain, r.startsOf = true, r.home.starts
	}
}

// mayReturn reports whether the reading, which came while its sensor was being deleted, may be
// stored again: the journal of a process that was killed since may still have it.
func (r *reading) mayReturn() bool { return r.uncertain && r.home.starts > r.startsOf }

// mayShow reports whether an answer may have the reading: it may be stored, or the process
// that answered did not know yet that MongoDB refuses it. A copy of its journal may belong to
// another process.
func (r *reading) mayShow(in *request, copied bool) bool {
	return r.possible() || r.refusedBy != nil && (in.began < r.refusedAt || r.refusedBy != r.home.process || copied && r.refusedBy != in.process)
}

// A ledger has all readings of a run, and what clients know about them.
type ledger struct {
	readings []*reading
	of       map[faulttest.Mark]*reading
	logs     map[string]*faulttest.Log // by stream, for the checker of documents
}

func newLedger() *ledger {
	l := &ledger{of: make(map[faulttest.Mark]*reading), logs: make(map[string]*faulttest.Log)}
	for _, stream := range streamNames {
		l.logs[stream] = faulttest.NewLog()
	}
	return l
}

var streamNames = [...]string{bucketStream, seriesStream}

// add makes a reading with the next number of its stream.
func (l *ledger) add(stream, sensor string, at time.Time, bad bool, home *host) *reading {
	producer := int64(slices.Index(streamNames[:], stream))
	number := int64(0)
	for _, r := range slices.Backward(l.readings) {
		if r.stream == stream {
			number = r.mark.Number + 1
			break
		}
	}
	r := &reading{mark: faulttest.Mark{Producer: producer, Number: number}, stream: stream, sensor: sensor, at: at, bad: bad, home: home}
	l.readings = append(l.readings, r)
	l.of[r.mark] = r
	return r
}

// acknowledged returns the acknowledged readings of a sensor.
func (l *ledger) acknowledged(stream, sensor string) (out []*reading) {
	for _, r := range l.readings {
		if r.acked && r.stream == stream && r.sensor == sensor {
			out = append(out, r)
		}
	}
	return out
}

// ofSensor returns all readings that were sent of a sensor.
func (l *ledger) ofSensor(stream, sensor string) (out []*reading) {
	for _, r := range l.readings {
		if r.stream == stream && r.sensor == sensor {
			out = append(out, r)
		}
	}
	return out
}

// line returns the reading as a client sends it, with some more bytes.
func (r *reading) line(filler int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"sensorId":%q,"ts":%d,"fields":{"producer":%d,"number":%d,"v":%d.5`, r.sensor, r.at.UnixMilli(), r.mark.Producer, r.mark.Number, r.mark.Number%17-8)
	if r.poison {
		filler = maxDocumentOfPoison
	}
	switch {
	case filler > 0:
		for n := range filler / 1000 {
			fmt.Fprintf(&b, `,"filler%d":"%01000d"`, n, n)
		}
	case r.mark.Number%3 == 0: // readings of one sensor may differ in their fields
		fmt.Fprintf(&b, `,"extra":%t`, r.mark.Number%2 == 0)
	}
	if r.bad {
		b.WriteString(`,"a.b":1`)
	}
	b.WriteString("}")
	for i, tag := range r.mark.Tags(r.sensor) {
		if i == 0 {
			b.WriteString(`,"tags":{`)
		}
		fmt.Fprintf(&b, `%q:%q}`, tag.Name, tag.Value)
	}
	b.WriteString("}\n")
	return b.String()
}

// storedIn returns how often each reading is in documents.
func storedIn(documents []bson.Raw) map[faulttest.Mark]int {
	out := make(map[faulttest.Mark]int)
	for _, d := range documents {
		for _, one := range faulttest.ReadingsOf(d) { // the checker of documents names broken ones
			if m, ok := markOf(one); ok {
				out[m]++
			}
		}
	}
	return out
}

func markOf(d bson.Raw) (faulttest.Mark, bool) {
	producer, ok := d.Lookup("producer").AsInt64OK()
	number, ok2 := d.Lookup("number").AsInt64OK()
	return faulttest.Mark{Producer: producer, Number: number}, ok && ok2
}
