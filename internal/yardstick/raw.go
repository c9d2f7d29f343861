package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"
)

// What Brim is held against: a program that inserts a document for each reading
// with the driver, three writers at once, each with 1,000 documents a call,
// unordered and majority-committed.
const (
	rawWriters  = 3
	rawDatabase = "raw"
)

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

// encodedPage holds a step as bytes of BSON, with an _id of its own so that the
// driver need not add one: less than any usual client does.
func encodedPage(hosts []host) (*page, error) {
	documents := make([]any, len(hosts))
	readings := make([][variants]encoded, len(hosts))
	for i := range hosts {
		for v := range variants {
			var err error
			if readings[i][v], err = encode(document(&hosts[i], v)); err != nil {
				return nil, err
			}
		}
	}
	return &page{documents, func(s *stretch, number int64) {
		ts := s.stepTime(number).UnixMilli()
		for i := range readings {
			e := &readings[i][number%variants]
			e.set(number*int64(len(readings))+int64(i), ts)
			documents[i] = e.text
		}
	}}, nil
}

// encoded is a document as bytes: its length, an _id, then ts and the rest.
type encoded struct{ text bson.Raw }

const (
	placeOfID = 4 + 1 + len("_id\x00")             // after length and kind
	placeOfTS = placeOfID + 12 + 1 + len("ts\x00") // after the ObjectID and a kind
)

func encode(d bson.D) (encoded, error) {
	text, err := bson.Marshal(append(bson.D{{Key: "_id", Value: bson.ObjectID{}}}, d...))
	if err != nil {
		return encoded{}, fmt.Errorf("encode a document: %w", err)
	}
	return encoded{text}, nil
}

func (e *encoded) set(id, ts int64) {
	binary.BigEndian.PutUint64(e.text[placeOfID:], uint64(id))    //nolint:gosec // it counts from 0
	binary.LittleEndian.PutUint64(e.text[placeOfTS:], uint64(ts)) //nolint:gosec // bits
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
