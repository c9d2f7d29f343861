package simulate

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// names returns the collections in order.
func (d *data) names() []string { return slices.Sorted(maps.Keys(d.collections)) }

func (d *data) remove(name string, serial int64) {
	if c := d.collections[name]; c != nil {
		c.remove(serial)
	}
}

func (x *execution) listCollections() (bson.D, *failure) {
	matches := compile(document(x.body.Lookup("filter").Value))
	docs := bson.A{}
	add := func(d bson.D) {
		if doc := marshal(d); matches(document(doc), x.now) {
			docs = append(docs, doc)
		}
	}
	for _, full := range x.own().names() {
		name, ok := strings.CutPrefix(full, x.database()+".")
		if !ok {
			continue
		}
		c := x.own().collections[full]
		options := bson.Raw(c.options)
		if options == nil {
			options = marshal(bson.D{})
		}
		uuid := bson.E{Key: "uuid", Value: bson.Binary{Subtype: 4, Data: c.uuid}}
		info := bson.D{{Key: "readOnly", Value: c.kind == "view"}}
		if c.kind == "collection" {
			info = append(info, uuid)
		}
		add(bson.D{{Key: "name", Value: name}, {Key: "type", Value: c.kind}, {Key: "options", Value: options}, {Key: "info", Value: info}})
		if c.isSeries() {
			add(bson.D{{Key: "name", Value: "system.buckets." + name}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{}}, {Key: "info", Value: bson.D{{Key: "readOnly", Value: false}, uuid}}})
		}
	}
	return cursorReply(0, x.database()+".$cmd.listCollections", "firstBatch", docs), nil
}

// create makes a collection, a time series, or a view, which cannot be read.
func (x *execution) create() (bson.D, *failure) {
	if x.own().collections[x.target()] != nil {
		return nil, failed(namespaceExists, "Collection already exists. NS: %s", x.target())
	}
	c := collection{kind: "collection"}
	body := []byte{0, 0, 0, 0}
	for _, e := range elements(x.body)[1:] {
		switch e.Key() {
		case "timeseries":
			c.kind = "timeseries"
			e = bsoncore.AppendValueElement(nil, "timeseries", seriesOptions(e.Value()))
		case "viewOn":
			c.kind = "view"
		}
		if !slices.Contains(strings.Fields(always), e.Key()) {
			body = append(body, e...)
		}
	}
	c.options = finish(body)
	x.makeCollection(x.target(), c)
	return nil, nil
}

// seriesOptions adds what MongoDB chooses.
func seriesOptions(v value) value {
	body := slices.Clone(v.Data[:len(v.Data)-1])
	if missing(at(v.Data, "bucketMaxSpanSeconds")) {
		body = bsoncore.AppendInt32Element(body, "bucketMaxSpanSeconds", 3600)
	}
	return value{Type: v.Type, Data: finish(body)}
}

func (x *execution) drop() (bson.D, *failure) {
	name := x.target()
	if x.own().collections[name] == nil {
		return nil, failed(namespaceNotFound, "ns not found")
	}
	x.catalog(func(d *data) { delete(d.collections, name) })
	return bson.D{{Key: "ns", Value: name}}, nil
}

// existing returns the collection that a command is about, and an error if there is none.
func (x *execution) existing() (*collection, *failure) {
	c := x.own().collections[x.target()]
	if c == nil {
		return nil, failed(namespaceNotFound, "ns does not exist: %s", x.target())
	}
	return c, nil
}

func (x *execution) listIndexes() (bson.D, *failure) {
	c, err := x.existing()
	if err != nil {
		return nil, err
	}
	docs := bson.A{}
	if c.kind == "collection" {
		docs = append(docs, bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}}, {Key: "name", Value: "_id_"}})
	}
	for _, i := range c.indexes {
		docs = append(docs, bson.Raw(i))
	}
	return cursorReply(0, x.target(), "firstBatch", docs), nil
}

func (x *execution) createIndexes() (bson.D, *failure) {
	_, err := x.collection()
	if err != nil {
		return nil, err
	}
	implicit := x.own().collections[x.target()] == nil
	c, err := x.ensure()
	if err != nil {
		return nil, err
	}
	before := len(c.indexes)
	for _, spec := range x.batch("indexes") {
		known(spec, "key name expireAfterSeconds")
		index := append(slices.Clone(finish(bsoncore.AppendInt32Element([]byte{0, 0, 0, 0}, "v", 2))[:11]), spec[4:]...)
		index = finish(index[:len(index)-1])
		same, err := c.hasIndex(index)
		if err != nil {
			return nil, err
		}
		if name := c.name; !same {
			x.catalog(func(d *data) { d.collections[name].indexes = append(d.collections[name].indexes, index) })
		}
	}
	always := 1 // that on _id
	if c.isSeries() {
		always = 0
	}
	reply := bson.D{{Key: "numIndexesBefore", Value: int32(before + always)}, {Key: "numIndexesAfter", Value: int32(len(c.indexes) + always)}}
	if before < len(c.indexes) {
		reply = append(reply, bson.E{Key: "createdCollectionAutomatically", Value: implicit})
	}
	return reply, nil
}

// hasIndex reports whether there is such an index, or why there cannot be.
func (c *collection) hasIndex(index document) (bool, *failure) {
	for _, have := range c.indexes {
		sameKey := compare(at(have, "key"), at(index, "key")) == 0
		sameName := compare(at(have, "name"), at(index, "name")) == 0
		switch {
		case bytes.Equal(have, index):
			return true, nil
		case sameKey:
			return false, failed(optionsConflict, "An equivalent index already exists with different options")
		case sameName:
			const keysConflict = 86
			return false, failed(keysConflict, "An existing index has the same name as the requested index")
		}
	}
	return false, nil
}

func (x *execution) dropIndexes() (bson.D, *failure) {
	c, err := x.existing()
	if err != nil {
		return nil, err
	}
	name := c.name
	n := slices.IndexFunc(c.indexes, func(i document) bool { return compare(at(i, "name"), core(x.body.Lookup("index"))) == 0 })
	if n < 0 {
		return nil, failed(indexNotFound, "index not found with name [%s]", x.body.Lookup("index"))
	}
	x.catalog(func(d *data) {
		of := d.collections[name]
		of.indexes = slices.Delete(slices.Clone(of.indexes), n, n+1)
	})
	return bson.D{{Key: "nIndexesWas", Value: int32(len(c.indexes) + 2)}}, nil
}

func (x *execution) collMod() (bson.D, *failure) {
	c, err := x.existing()
	if err != nil {
		return nil, err
	}
	reply := bson.D{}
	options, indexes := c.options, slices.Clone(c.indexes)
	if options == nil {
		options = finish([]byte{0, 0, 0, 0})
	}
	for _, e := range elements(x.body)[1:] {
		switch {
		case e.Key() == "index":
			if reply, err = modifyIndex(indexes, e.Value()); err != nil {
				return nil, err
			}
		case e.Key() == "expireAfterSeconds" && textOf(e.Value()) == "off":
			options = without(options, [][]string{{"expireAfterSeconds"}})
		case e.Key() == "timeseries":
			panic(unknown("%s", x.message))
		case !slices.Contains(strings.Fields(always), e.Key()):
			if options, err = set(options, e.Key(), e.Value()); err != nil {
				return nil, err
			}
		}
	}
	name := c.name
	x.catalog(func(d *data) {
		d.collections[name].options, d.collections[name].indexes = options, slices.Clone(indexes)
	})
	return reply, nil
}

// modifyIndex changes one of the indexes, and returns what the reply says of it.
func modifyIndex(indexes []document, spec value) (reply bson.D, err *failure) {
	n := slices.IndexFunc(indexes, func(i document) bool { return compare(at(i, "name"), at(spec.Data, "name")) == 0 })
	if n < 0 {
		return nil, failed(indexNotFound, "cannot find index %v", at(spec.Data, "name"))
	}
	v := at(spec.Data, "expireAfterSeconds")
	if old, ok := whole(at(indexes[n], "expireAfterSeconds")); ok {
		reply = append(reply, bson.E{Key: "expireAfterSeconds_old", Value: old})
	}
	if to, ok := whole(v); ok {
		reply = append(reply, bson.E{Key: "expireAfterSeconds_new", Value: to})
	}
	indexes[n], err = set(indexes[n], "expireAfterSeconds", v)
	return reply, err
}

// expired returns the documents that are too old at a time.
func (c *collection) expired(now time.Time) (out []record) {
	field, after, slack := "", value{}, int64(0)
	if c.isSeries() {
		field, after, slack = textOf(at(c.options, "timeseries", "timeField")), at(c.options, "expireAfterSeconds"), 3600
	}
	for _, i := range c.indexes {
		if v := at(i, "expireAfterSeconds"); !missing(v) {
			field, after = elements(at(i, "key").Data)[0].Key(), v
		}
	}
	seconds, ok := whole(after)
	if !ok {
		return nil
	}
	for _, r := range c.docs {
		if v := at(r.doc, field); v.Type == bsoncore.TypeDateTime && v.DateTime()+(seconds+slack)*1000 <= now.UnixMilli() {
			out = append(out, r)
		}
	}
	return out
}
