package faulttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// CheckConfig configures a check.
type CheckConfig struct {
	Log      *Log
	Database *mongo.Database
	Stream   string // the first collection's name

	// Caps on a bucket's part; 0: not checked.
	MaxReadings int
	MaxBytes    int

	// Since excludes the documents of older readings, which retention may remove
	// during the check. Log.Expire says which readings they may hold.
	Since time.Time
}

// Result is what a check found.
type Result struct {
	Attempted, Acked, Stored int // readings; Stored counts each once

	Lost     []Mark // acknowledged, not stored
	Twice    []Mark // stored more than once
	Invented []Mark // stored, never attempted

	BadDocuments []string // a finding each, beginning with the _id
}

// Wrong counts all findings.
func (r *Result) Wrong() int {
	return len(r.Lost) + len(r.Twice) + len(r.Invented) + len(r.BadDocuments)
}

// Report describes the result, with the first findings of each kind.
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

// some lists the first findings.
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

// Check compares the log with the documents that a majority of MongoDB's members has.
// Accepted readings must have been flushed, and the producers must have ended.
//
// It checks all generations of the stream, see internal/store/generation.
func Check(ctx context.Context, cfg CheckConfig) (*Result, error) {
	var list struct {
		Generations []struct {
			Collection string `bson:"collection"`
		} `bson:"generations"`
	}
	err := cfg.Database.Collection("brim.streams").FindOne(ctx, bson.D{{Key: "_id", Value: cfg.Stream}}).Decode(&list)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return nil, fmt.Errorf("read the generations of stream %s: %w", cfg.Stream, err)
	}
	names := []string{cfg.Stream}
	for _, g := range list.Generations {
		if g.Collection != cfg.Stream {
			names = append(names, g.Collection)
		}
	}
	var all []iter.Seq[bson.Raw]
	var failed error
	for _, name := range names {
		all = append(all, func(yield func(bson.Raw) bool) {
			if err := eachDocument(ctx, cfg, name, yield); err != nil {
				failed = err
			}
		})
	}
	result := CheckDocuments(cfg, all...)
	return result, failed
}

// eachDocument yields the documents of one collection.
func eachDocument(ctx context.Context, cfg CheckConfig, name string, yield func(bson.Raw) bool) error {
	coll := cfg.Database.Collection(name,
		options.Collection().SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
	filter := bson.D{}
	if !cfg.Since.IsZero() {
		since := bson.D{{Key: "$gte", Value: cfg.Since}}
		filter = bson.D{{Key: "$or", Value: bson.A{bson.D{{Key: "bucketStart", Value: since}}, bson.D{{Key: "ts", Value: since}}}}}
	}
	cursor, err := coll.Find(ctx, filter)
	if err != nil {
		return fmt.Errorf("read collection %s: %w", name, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	for more := true; more && cursor.Next(ctx); {
		more = yield(cursor.Current)
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read collection %s: %w", name, err)
	}
	return nil
}

// CheckDocuments is Check for documents already read, by collection of the stream.
func CheckDocuments(cfg CheckConfig, collections ...iter.Seq[bson.Raw]) *Result {
	cfg.Log.mu.Lock()
	defer cfg.Log.mu.Unlock()
	c := checker{cfg: cfg, stored: make(marks)}
	for _, documents := range collections {
		c.parts = make(map[window][]partState)
		for d := range documents {
			if _, single := d.Lookup("_id").ObjectIDOK(); single { // of a time series
				sensor, _ := d.Lookup("sensor", "id").StringValueOK()
				c.count(d, d.Lookup("_id").String(), sensor, bson.RawValue{})
			} else {
				c.document(d)
			}
		}
		c.checkParts()
	}
	c.compare()
	return &c.result
}

// checker collects a Result.
type checker struct {
	cfg    CheckConfig
	stored marks // how often each reading is stored
	parts  map[window][]partState
	result Result
}

// count records a sensor's stored reading: an element of a document with these
// tags, or a separate document.
func (c *checker) count(reading bson.Raw, id, sensor string, tags bson.RawValue) {
	producer, ok := reading.Lookup("producer").AsInt64OK()
	number, ok2 := reading.Lookup("number").AsInt64OK()
	const most = 1 << 32 // numbers are dense: no producer created larger ones
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
	case 0: // wrapped around
		*n = 2
	}
}

// sameTags reports whether a document's tags are the reading's.
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

// compare finds what is missing.
func (c *checker) compare() {
	for producer, of := range c.cfg.Log.state {
		for number, state := range of {
			m := Mark{producer, int64(number)}
			if state&attempted != 0 {
				c.result.Attempted++
			}
			// Readings that Brim must refuse are not marked as attempted. If one is
			// acknowledged but not stored, it counts as lost.
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

// window identifies a bucket, including all of its parts.
type window struct {
	sensor string
	start  bson.DateTime
	grain  int32
}

// Spoiled is a field that is true in parts that a test made unfit for updates:
// their readings must go to the next part. Only their numbers are checked.
const Spoiled = "spoiled"

type partState struct {
	number int32
	full   bool
}

// bucketDocument is a part according to the specification, declared here so that
// the checker shares no code with what it checks.
type bucketDocument struct {
	ID struct {
		S string        `bson:"s"`
		B bson.DateTime `bson:"b"`
		G int32         `bson:"g"`
		P int32         `bson:"p"`
	} `bson:"_id"`
	SensorID     string              `bson:"sensorId"`
	BucketStart  bson.DateTime       `bson:"bucketStart"`
	Count        int                 `bson:"count"`
	Bytes        int                 `bson:"bytes"`
	First        bson.DateTime       `bson:"first"`
	Last         bson.DateTime       `bson:"last"`
	Stats        map[string]bson.Raw `bson:"stats"`
	Tags         bson.RawValue       `bson:"tags"`
	Measurements []bson.Raw          `bson:"measurements"`
	Blocks       []bson.Binary       `bson:"blocks"`
	Sealed       struct {
		N int `bson:"n"`
	} `bson:"sealed"`
	W    map[string]int64 `bson:"w"`
	From string           `bson:"from"` // of a copy made by `brim move`: the collection
}

// ReadingsOf returns the readings of a bucket document, those in blocks as documents like
// the others; for any other document, the document itself. Broken parts are skipped.
func ReadingsOf(raw bson.Raw) []bson.Raw {
	if _, err := raw.LookupErr("count"); err != nil {
		return []bson.Raw{raw}
	}
	var d bucketDocument
	_ = bson.Unmarshal(raw, &d)
	blocks, _ := d.unpack()
	return append(blocks, d.Measurements...)
}

// unpack returns the readings of the blocks as documents.
func (d *bucketDocument) unpack() (out []bson.Raw, err error) {
	ofPart := []telemetry.Tag{{Name: "those of the part"}}
	for _, data := range d.Blocks {
		b, err := block.Open(data.Data)
		if err != nil {
			return out, err
		}
		for r, err := range b.Readings(d.ID.S, ofPart, nil) {
			if err != nil {
				return out, err
			}
			out = append(out, documentOf(r, !slices.Equal(r.Tags, ofPart)))
		}
	}
	return out, nil
}

// documentOf returns a reading as it would be in measurements.
func documentOf(r telemetry.Reading, ownTags bool) bson.Raw {
	d := bson.D{{Key: "ts", Value: bson.NewDateTimeFromTime(r.Time)}}
	for _, f := range r.Fields {
		d = append(d, bson.E{Key: f.Name, Value: f.Value.Any()})
	}
	if ownTags {
		tags := bson.D{}
		for _, t := range r.Tags {
			tags = append(tags, bson.E{Key: t.Name, Value: t.Value})
		}
		sensor := bson.D{}
		if len(tags) > 0 {
			sensor = bson.D{{Key: "tags", Value: tags}}
		}
		d = append(d, bson.E{Key: "sensor", Value: sensor})
	}
	raw, err := bson.Marshal(d)
	if err != nil {
		panic(err) // readings can always be encoded
	}
	return raw
}

// document checks that a part describes its readings correctly.
func (c *checker) document(raw bson.Raw) {
	var d bucketDocument
	id := raw.Lookup("_id").String()
	err := bson.Unmarshal(raw, &d)
	w := window{d.ID.S, d.ID.B, d.ID.G}
	full, _ := raw.Lookup("full").BooleanOK()
	if d.From == "" {
		c.parts[w] = append(c.parts[w], partState{d.ID.P, full})
	}
	if spoiled, _ := raw.Lookup(Spoiled).BooleanOK(); spoiled {
		return
	}
	if err != nil {
		c.bad(id, "is no bucket: %v", err)
		return
	}
	if d.SensorID != d.ID.S || d.BucketStart != d.ID.B {
		c.bad(id, "has sensor %s and start %s, which differ from its _id", d.SensorID, d.BucketStart.Time())
	}
	switch {
	case d.From == "":
		c.guards(&d, id)
	case d.ID.P >= 0 || !full || len(d.W) > 0:
		c.bad(id, "is a copy that could be updated")
	}
	packed, err := d.unpack()
	if err != nil {
		c.bad(id, "has a broken block: %v", err)
		return
	}
	believed := len(d.Blocks) == 0 || d.Sealed.N == d.Count // readers use its statistics
	d.Measurements = append(packed, d.Measurements...)
	if d.Count != len(d.Measurements) || d.Count == 0 {
		c.bad(id, "has count %d but holds %d readings", d.Count, len(d.Measurements))
	}
	if most := c.cfg.MaxReadings; most > 0 && d.Count > most {
		c.bad(id, "holds %d readings, more than %d", d.Count, most)
	}
	if d.Bytes <= 0 {
		c.bad(id, "counts %d bytes", d.Bytes)
	}
	// A reading that exceeds the cap is alone in its part.
	if most := c.cfg.MaxBytes; most > 0 && d.Bytes > most && d.Count > 1 {
		c.bad(id, "has %d bytes, more than %d", d.Bytes, most)
	}
	c.measurements(&d, id, believed)
}

func (c *checker) guards(d *bucketDocument, id string) {
	if len(d.W) == 0 {
		c.bad(id, "has no guard")
	}
	for session, last := range d.W {
		if last < 1 {
			c.bad(id, "guards session %s with %d", session, last)
		}
	}
}

// measurements counts a part's readings and checks everything derived from them; believed
// says whether readers use its statistics.
func (c *checker) measurements(d *bucketDocument, id string, believed bool) {
	first, last := bson.DateTime(math.MaxInt64), bson.DateTime(math.MinInt64)
	stats := make(map[string]*fieldStats)
	for _, m := range d.Measurements {
		c.count(m, id, d.ID.S, d.Tags)
		elements, err := m.Elements()
		if err != nil {
			c.bad(id, "holds a broken reading: %v", err)
			return
		}
		for _, e := range elements {
			v := e.Value()
			if e.Key() == "ts" {
				ts := bson.DateTime(v.DateTime())
				first, last = min(first, ts), max(last, ts)
			} else if number, ok := v.AsFloat64OK(); ok {
				addStats(stats, e.Key(), number)
			}
		}
	}
	end := d.ID.B + bson.DateTime(d.ID.G)*1000
	if first < d.ID.B || last >= end {
		c.bad(id, "holds readings from %s to %s, outside its window", first.Time(), last.Time())
	}
	if d.First != first || d.Last != last {
		c.bad(id, "says first %s and last %s, and has %s and %s", d.First.Time(), d.Last.Time(), first.Time(), last.Time())
	}
	if !believed {
		return
	}
	if len(d.Stats) != len(stats) {
		c.bad(id, "has stats of %d fields, and %d have numbers", len(d.Stats), len(stats))
	}
	for name, want := range stats {
		if why := want.differ(d.Stats[name]); why != "" {
			c.bad(id, "stats of %s: %s", name, why)
		}
	}
}

// fieldStats are a field's statistics, computed from its readings.
type fieldStats struct {
	min, max, sum float64
	magnitude     float64 // sum of absolute values, the reference for rounding errors
	n             int64
}

func addStats(stats map[string]*fieldStats, name string, v float64) {
	s := stats[name]
	if s == nil {
		s = &fieldStats{min: v, max: v}
		stats[name] = s
	}
	s.min, s.max, s.sum, s.magnitude = min(s.min, v), max(s.max, v), s.sum+v, s.magnitude+math.Abs(v)
	s.n++
}

// differ describes how the document's statistics differ from these; "" if they do not.
func (s *fieldStats) differ(have bson.Raw) string {
	if have == nil {
		return "there are none"
	}
	n, _ := have.Lookup("n").AsInt64OK()
	low, _ := have.Lookup("min").AsFloat64OK()
	high, _ := have.Lookup("max").AsFloat64OK()
	sum, _ := have.Lookup("sum").AsFloat64OK()
	if n != s.n || low != s.min || high != s.max || math.Abs(sum-s.sum) > s.magnitude*1e-9 {
		return fmt.Sprintf("n %d, min %g, max %g, sum %g; its readings give %d, %g, %g, %g", n, low, high, sum, s.n, s.min, s.max, s.sum)
	}
	return ""
}

// checkParts checks that each window's parts are numbered from 0, and that only
// the last may be open.
func (c *checker) checkParts() {
	for w, parts := range c.parts {
		slices.SortFunc(parts, func(a, b partState) int { return cmp.Compare(a.number, b.number) })
		for i, p := range parts {
			id := fmt.Sprintf("sensor %s, window %s, part %d of %d", w.sensor, w.start.Time(), p.number, len(parts))
			if int(p.number) != i {
				c.bad(id, "should have number %d", i)
			}
			if !p.full && i < len(parts)-1 {
				c.bad(id, "is open, and not the last")
			}
		}
	}
}
