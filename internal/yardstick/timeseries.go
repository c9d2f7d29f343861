package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

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

// timeseries holds line protocol into a time-series collection against direct
// inserts into one with the same options.
func (y *yardstick) timeseries(ctx context.Context) ([]row, error) {
	f := newFleet(hostsOf)
	poster, err := newLinePoster(y.connections, f)
	if err != nil {
		return nil, err
	}
	var pages []*page
	for range rawWriters {
		pages = append(pages, groupedPage(f.hosts))
	}
	pairs := make([]linesPair, y.pairs)
	for i := range pairs {
		y.note("time series %d of %d\n", i+1, y.pairs)
		if err := y.timeseriesPair(ctx, &pairs[i], poster, pages, i); err != nil {
			return nil, err
		}
	}
	mid := func(value func(p *linesPair) float64) float64 { return median(apply(pairs, value)) }
	ratio := newRow("the same into a time-series collection, against raw `insertMany` of the same readings grouped by sensor, 60 each", ">= 0.9x", "x", 2,
		apply(pairs, func(p *linesPair) float64 { return p.brim.Rate / p.raw.Rate }))
	ratio.remark("%s lines/s to %s documents/s",
		thousands(mid(func(p *linesPair) float64 { return p.brim.Rate }), 0), thousands(mid(func(p *linesPair) float64 { return p.raw.Rate }), 0))
	ratio.remark("Brim writes %.1f readings of a sensor together; raw: %d a call, whole groups, same collection options", mid(func(p *linesPair) float64 { return p.brim.Merged }), groupedOf)
	ratio.remark("%s", processorRemark(pairs))
	y.explain(rawExplained)
	return []row{ratio}, nil
}

func (y *yardstick) timeseriesPair(ctx context.Context, p *linesPair, s sender, pages []*page, number int) (err error) {
	r, err := y.newRig(ctx, "--granularity", hourly, "--storage", "timeseries")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	r.each = 1 // a document is a reading
	sides := []func() error{
		func() (err error) {
			if err := copyCollection(ctx, r.client.Database(brimDatabase), r.client.Database(rawDatabase)); err != nil {
				return err
			}
			p.raw, err = y.raw(ctx, r, "grouped by sensor", pages)
			return err
		},
		func() (err error) {
			if err := r.settle(ctx); err != nil {
				return err
			}
			p.brim, err = y.pass(ctx, r, "line protocol", s)
			return err
		},
	}
	for i := range sides {
		if err := sides[(i+number)%len(sides)](); err != nil {
			return err
		}
	}
	return nil
}

// copyCollection makes a collection with the options and the indexes of that of
// the daemon.
func copyCollection(ctx context.Context, from, to *mongo.Database) error {
	found, err := from.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: collection}})
	if err != nil {
		return fmt.Errorf("look at the daemon's collection: %w", err)
	}
	if len(found) != 1 {
		return fmt.Errorf("the daemon has no collection %s", collection)
	}
	var options bson.D
	if err := bson.Unmarshal(found[0].Options, &options); err != nil {
		return fmt.Errorf("read the options of the daemon's collection: %w", err)
	}
	if err := to.RunCommand(ctx, append(bson.D{{Key: "create", Value: collection}}, options...)).Err(); err != nil {
		return fmt.Errorf("make a collection with the options %s: %w", found[0].Options, err)
	}
	indexes, err := from.Collection(collection).Indexes().ListSpecifications(ctx)
	if err != nil {
		return fmt.Errorf("look at the indexes of the daemon's collection: %w", err)
	}
	for _, index := range indexes {
		if _, err := to.Collection(collection).Indexes().CreateOne(ctx, mongo.IndexModel{Keys: index.KeysDocument}); err != nil {
			return fmt.Errorf("make an index of %s: %w", index.KeysDocument, err)
		}
	}
	return nil
}
