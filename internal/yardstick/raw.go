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

// usage is a reading as a document of a usual client: a struct that the driver
// encodes, which costs less than bson.D or a map. The driver adds an _id.
type usage struct {
	TS        time.Time `bson:"ts"`
	SensorID  string    `bson:"sensorId"`
	User      int64     `bson:"usage_user"`
	System    int64     `bson:"usage_system"`
	Idle      int64     `bson:"usage_idle"`
	Nice      int64     `bson:"usage_nice"`
	IOWait    int64     `bson:"usage_iowait"`
	IRQ       int64     `bson:"usage_irq"`
	SoftIRQ   int64     `bson:"usage_softirq"`
	Steal     int64     `bson:"usage_steal"`
	Guest     int64     `bson:"usage_guest"`
	GuestNice int64     `bson:"usage_guest_nice"`
}

func (u *usage) set(v *values) {
	u.User, u.System, u.Idle, u.Nice, u.IOWait = v[0], v[1], v[2], v[3], v[4]
	u.IRQ, u.SoftIRQ, u.Steal, u.Guest, u.GuestNice = v[5], v[6], v[7], v[8], v[9]
}

// A page is the documents of one call, made before the clock starts; only what
// changes is set anew.
type page struct {
	documents []any
	turn      func(number int64) // to the content of a call
}

// structPage holds a step as structs.
func structPage(hosts []host) *page {
	documents := make([]any, len(hosts))
	readings := make([][variants]usage, len(hosts))
	for i := range hosts {
		for v := range variants {
			readings[i][v].SensorID = hosts[i].name
			readings[i][v].set(&hosts[i].values[v])
		}
	}
	return &page{documents, func(number int64) {
		ts := stepTime(number)
		for i := range readings {
			u := &readings[i][number%variants]
			u.TS = ts
			documents[i] = u
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
			u := usage{SensorID: hosts[i].name}
			u.set(&hosts[i].values[v])
			var err error
			if readings[i][v], err = encode(&u); err != nil {
				return nil, err
			}
		}
	}
	return &page{documents, func(number int64) {
		ts := stepTime(number).UnixMilli()
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

func encode(u *usage) (encoded, error) {
	text, err := bson.Marshal(struct {
		ID    bson.ObjectID `bson:"_id"`
		Usage *usage        `bson:",inline"`
	}{Usage: u})
	if err != nil {
		return encoded{}, fmt.Errorf("encode a document: %w", err)
	}
	return encoded{text}, nil
}

func (e *encoded) set(id, ts int64) {
	binary.BigEndian.PutUint64(e.text[placeOfID:], uint64(id))    //nolint:gosec // it counts from 0
	binary.LittleEndian.PutUint64(e.text[placeOfTS:], uint64(ts)) //nolint:gosec // bits
}

// insert writes for as long as told with one writer for each page, and returns
// how many documents were stored.
func insert(ctx context.Context, coll *mongo.Collection, pages []*page, duration time.Duration) (documents int64, err error) {
	s := newStretch(duration)
	writers, under := errgroup.WithContext(ctx)
	unordered := options.InsertMany().SetOrdered(false)
	for _, p := range pages {
		writers.Go(func() error {
			for {
				number, ok := s.take(under)
				if !ok {
					return nil
				}
				p.turn(number)
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
