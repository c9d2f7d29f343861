package faulttest

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// CheckConfig says what to compare.
type CheckConfig struct {
	Log        *Log
	Database   *mongo.Database
	Stream     string // name of the collection
	TimeSeries bool   // a native time-series collection, not one of buckets

	// Caps of a bucket's part; 0: not checked.
	MaxReadings int
	MaxBytes    int
}

// Result is what a check found.
type Result struct {
	Attempted, Acked, Stored int // readings; Stored counts each once

	Lost     []Mark // acknowledged, not stored
	Twice    []Mark // stored more than once
	Invented []Mark // stored, never attempted

	BadDocuments []string // what is wrong with each, beginning with its _id
}

// Wrong counts all that must not be.
func (r *Result) Wrong() int {
	return len(r.Lost) + len(r.Twice) + len(r.Invented) + len(r.BadDocuments)
}

// Report describes the result for people, with the first few of each kind of
// finding.
func (r *Result) Report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d attempted, %d acknowledged, %d stored; %d lost, %d twice, %d invented, %d bad documents\n",
		r.Attempted, r.Acked, r.Stored, len(r.Lost), len(r.Twice), len(r.Invented), len(r.BadDocuments))
	some(&b, "lost", r.Lost)
	some(&b, "twice", r.Twice)
	some(&b, "invented", r.Invented)
	some(&b, "bad document", r.BadDocuments)
	return b.String()
}

// some lists the first of the findings.
func some[T any](b *strings.Builder, what string, all []T) {
	const most = 10
	for i, one := range all {
		if i == most {
			fmt.Fprintf(b, "  … and %d more\n", len(all)-most)
			return
		}
		fmt.Fprintf(b, "  %s: %v\n", what, one)
	}
}

// Check compares the log with what a majority of MongoDB's members holds. All
// that was taken must have been flushed, and the producers have ended.
func Check(ctx context.Context, cfg CheckConfig) (*Result, error) {
	coll := cfg.Database.Collection(cfg.Stream,
		options.Collection().SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
	cursor, err := coll.Find(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("read collection %s: %w", cfg.Stream, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	result := CheckDocuments(cfg, func(yield func(bson.Raw) bool) {
		for more := true; more && cursor.Next(ctx); {
			more = yield(cursor.Current)
		}
	})
	if err := cursor.Err(); err != nil {
		return nil, fmt.Errorf("read collection %s: %w", cfg.Stream, err)
	}
	return result, nil
}

// CheckDocuments is Check for documents that are at hand.
func CheckDocuments(cfg CheckConfig, documents iter.Seq[bson.Raw]) *Result {
	c := checker{cfg: cfg, stored: make(marks), parts: make(map[window][]partState)}
	for d := range documents {
		if cfg.TimeSeries {
			sensor, _ := d.Lookup("sensor", "id").StringValueOK()
			c.count(d, d.Lookup("_id").String(), sensor, bson.RawValue{})
		} else {
			c.document(d)
		}
	}
	c.checkParts()
	c.compare()
	return &c.result
}

// checker gathers a Result.
type checker struct {
	cfg    CheckConfig
	stored marks // how often each reading is stored
	parts  map[window][]partState
	result Result
}

// count notes a stored reading of a sensor, an element of a document with the
// tags or a document by itself.
func (c *checker) count(reading bson.Raw, id, sensor string, tags bson.RawValue) {
	producer, ok := reading.Lookup("producer").AsInt64OK()
	number, ok2 := reading.Lookup("number").AsInt64OK()
	const most = 1 << 32 // numbers are dense: what is beyond was made by nobody
	if !ok || !ok2 || number < 0 || number > most {
		c.bad(id, "holds a reading without a mark: %s", reading)
		return
	}
	m := Mark{producer, number}
	if c.cfg.Log.state.get(m)&attempted == 0 {
		c.result.Invented = append(c.result.Invented, m)
		return
	}
	if of, ok := reading.Lookup("sensor").DocumentOK(); ok {
		tags = of.Lookup("tags")
	}
	if want := m.Tags(sensor); !sameTags(want, tags) {
		c.bad(id, "holds reading %v with the tags %s, which was sent with %v", m, tags, want)
	}
	n := c.stored.at(m)
	switch *n++; *n {
	case 1:
		c.result.Stored++
	case 2:
		c.result.Twice = append(c.result.Twice, m)
	case 0: // came around
		*n = 2
	}
}

// sameTags reports whether a document's tags are those of a reading.
func sameTags(want []telemetry.Tag, have bson.RawValue) bool {
	doc, ok := have.DocumentOK()
	if !ok {
		return len(want) == 0 && have.IsZero()
	}
	elements, err := doc.Elements()
	return err == nil && len(want) > 0 && slices.EqualFunc(want, elements, func(tag telemetry.Tag, e bson.RawElement) bool {
		value, ok := e.Value().StringValueOK()
		return ok && tag.Name == e.Key() && tag.Value == value
	})
}

func (c *checker) bad(id, format string, args ...any) {
	c.result.BadDocuments = append(c.result.BadDocuments, id+" "+fmt.Sprintf(format, args...))
}

// compare looks for what is missing.
func (c *checker) compare() {
	for producer, of := range c.cfg.Log.state {
		for number, state := range of {
			m := Mark{producer, int64(number)}
			if state&attempted != 0 {
				c.result.Attempted++
			}
			// What a 200 promises of a reading that it had to refuse was never
			// attempted; that it was taken is its own fault.
			if state&acked != 0 {
				c.result.Acked++
				if c.stored.get(m) == 0 && state&forgiven == 0 {
					c.result.Lost = append(c.result.Lost, m)
				}
			}
		}
	}
	byMark := func(a, b Mark) int {
		return cmp.Or(cmp.Compare(a.Producer, b.Producer), cmp.Compare(a.Number, b.Number))
	}
	slices.SortFunc(c.result.Lost, byMark)
	slices.SortFunc(c.result.Twice, byMark)
	slices.SortFunc(c.result.Invented, byMark)
}
