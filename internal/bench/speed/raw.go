package speed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"
)

// What Brim is held against: a program that inserts a document for each reading
// with the driver, three writers at once, each with 1,000 documents a call,
// unordered and majority-committed.
const rawWriters = 3

// A page is the documents of one call, made before the clock starts; only what
// changes is set anew.
type page struct {
	documents []any
	turn      func(s *stretch, number int64) // to the content of a call
}

// document is a reading as a usual client would give it to the driver, which
// encodes it and adds an _id. bson.D is the cheapest to encode of the usual
// ways: a struct with bson tags takes a third longer. The time comes first.
func document(h *host, variant int) bson.D {
	d := bson.D{{Key: "ts", Value: time.Time{}}, {Key: "sensorId", Value: h.name}}
	return appendFields(d, &h.values[variant])
}

func appendFields(d bson.D, v *values) bson.D {
	for f, value := range v {
		d = append(d, bson.E{Key: fieldNames[f], Value: value})
	}
	return d
}

// documentPage holds a step, a document for each host.
func documentPage(hosts []host) *page {
	documents := make([]any, len(hosts))
	readings := make([][variants]bson.D, len(hosts))
	for i := range hosts {
		for v := range variants {
			readings[i][v] = document(&hosts[i], v)
		}
	}
	return &page{documents, func(s *stretch, number int64) {
		var ts any = s.stepTime(number)
		for i := range readings {
			d := readings[i][number%variants]
			d[0].Value = ts
			documents[i] = d
		}
	}}
}

// insert writes through a stretch with one writer for each page, and returns how
// many documents were stored.
func insert(ctx context.Context, coll *mongo.Collection, pages []*page, s *stretch) (documents int64, err error) {
	writers, under := errgroup.WithContext(ctx)
	unordered := options.InsertMany().SetOrdered(false)
	for _, p := range pages {
		writers.Go(func() error {
			for {
				number, ok := s.take(under)
				if !ok {
					return nil
				}
				p.turn(s, number)
				if _, err := coll.InsertMany(under, p.documents, unordered); err != nil {
					return err
				}
			}
		})
	}
	if err := writers.Wait(); err != nil {
		return 0, fmt.Errorf("insert documents: %w", err)
	}
	return s.given() * int64(len(pages[0].documents)), context.Cause(ctx)
}

// together is how many readings of a sensor stand together in what is inserted
// directly.
const together = 60

// sensorOf is what stands in the metaField of a host's readings, as Brim writes
// it.
func sensorOf(h *host) bson.D {
	tags := make(bson.D, len(tagNames))
	for t, name := range tagNames {
		tags[t] = bson.E{Key: name, Value: h.tags[t]}
	}
	slices.SortFunc(tags, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	return bson.D{{Key: "id", Value: h.key}, {Key: "tags", Value: tags}}
}

// Of a call whole groups are inserted, so that no two writers share one, which
// would make two buckets of it.
const (
	groupsOf  = 16
	groupedOf = groupsOf * together // documents a call
)

// groupedPage holds the readings of a call grouped by sensor: of every sixty
// steps all of the first host, then all of the next. All documents are made
// beforehand, with the content of those that Brim writes; only the time is set.
func groupedPage(hosts []host) *page {
	documents := make([]any, groupedOf)
	readings := make([][together]bson.D, len(hosts))
	for i := range hosts {
		var sensor any = sensorOf(&hosts[i])
		for step := range together {
			d := make(bson.D, 0, 2+fieldsOf)
			d = append(d, bson.E{Key: "ts", Value: time.Time{}}, bson.E{Key: "sensor", Value: sensor})
			readings[i][step] = appendFields(d, &hosts[i].values[step%variants])
		}
	}
	var times [together]any // of the steps of a block
	return &page{documents, func(s *stretch, number int64) {
		made := int64(-1)
		for g := range groupsOf {
			host, block := grouped(number*groupsOf+int64(g), int64(len(hosts)))
			if block != made {
				made = block
				for step := range times {
					times[step] = s.stepTime(block*together + int64(step))
				}
			}
			for step := range together {
				d := readings[host][step]
				d[0].Value = times[step]
				documents[g*together+step] = d
			}
		}
	}}
}

// grouped returns the host of a group, and the number of the sixty steps that
// it holds.
func grouped(group, hosts int64) (host, block int64) { return group % hosts, group / hosts }
