package simulate

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// data is what one member of the replica set holds, or what a majority does.
type data struct {
	collections map[string]*collection // by database and name, with a dot between them
	sessions    map[string]*session    // by lsid
}

// session is what is known of the retryable writes of a logical session.
type session struct {
	newest int64 // number that was seen last; a new primary knows only of those that wrote something
	number int64 // number of the command whose statements are in done
	done   map[int]bson.D
}

type collection struct {
	name    string
	kind    string // collection, timeseries or view
	options document
	uuid    []byte
	indexes []document // in the order in which they were made
	docs    []record   // by _id; of a time series as they were inserted
	serial  int64
}

type record struct {
	id     value
	serial int64 // rises with each insert
	doc    document
}

func newData() *data {
	return &data{collections: map[string]*collection{}, sessions: map[string]*session{}}
}

// clone returns a copy that shares only what never changes. Of the sessions it has what
// is in the oplog.
func (d *data) clone() *data {
	out := newData()
	for name, c := range d.collections {
		one := *c
		one.indexes, one.docs = slices.Clone(c.indexes), slices.Clone(c.docs)
		out.collections[name] = &one
	}
	for id, s := range d.sessions {
		if s.number >= 0 {
			out.sessions[id] = &session{newest: s.number, number: s.number, done: maps.Clone(s.done)}
		}
	}
	return out
}

func (d *data) session(id string) *session {
	s := d.sessions[id]
	if s == nil {
		s = &session{newest: -1, number: -1}
		d.sessions[id] = s
	}
	return s
}

// record notes the result of a statement, which a repetition gets again.
func (s *session) record(number int64, statement int, result bson.D) {
	if s.number != number {
		s.number, s.done = number, map[int]bson.D{}
	}
	s.newest = max(s.newest, number)
	s.done[statement] = result
}

func (c *collection) isSeries() bool { return c.kind == "timeseries" }

// find returns the place of an _id, and whether it is there.
func (c *collection) find(id value) (int, bool) {
	return slices.BinarySearchFunc(c.docs, id, func(r record, id value) int { return compare(r.id, id) })
}

func (c *collection) insert(doc document) {
	c.serial++
	r := record{id: at(doc, "_id"), serial: c.serial, doc: doc}
	n := len(c.docs)
	if !c.isSeries() {
		n, _ = c.find(r.id)
	}
	c.docs = slices.Insert(c.docs, n, r)
}

func (c *collection) replace(doc document) {
	if n, ok := c.find(at(doc, "_id")); ok {
		c.docs[n].doc = doc
	}
}

// remove removes the document with a serial number. The numbers of a collection are the
// same on all members.
func (c *collection) remove(serial int64) {
	c.docs = slices.DeleteFunc(c.docs, func(r record) bool { return r.serial == serial })
}

// matching returns the records that match: by _id if the filter has a condition on it,
// or else in the order in which they were inserted.
func (c *collection) matching(filter document, now time.Time) (out []record) {
	matches := compile(filter)
	for _, r := range c.candidates(filter) {
		if matches(r.doc, now) {
			out = append(out, r)
		}
	}
	if !byID(filter) {
		slices.SortFunc(out, func(a, b record) int { return cmp.Compare(a.serial, b.serial) })
	}
	return out
}

func byID(filter document) bool {
	_, ok := lookup(filter, "_id")
	return ok
}

// candidates narrows the documents down to those that a condition on _id allows.
func (c *collection) candidates(filter document) []record {
	id, ok := lookup(filter, "_id")
	if !ok || c.isSeries() {
		return c.docs
	}
	if !isOperators(id) {
		n, found := c.find(id)
		if !found || id.Type == bsoncore.TypeArray {
			return nil
		}
		return c.docs[n : n+1]
	}
	from, to := 0, len(c.docs)
	for _, e := range elements(id.Data) {
		switch n, found := c.find(e.Value()); e.Key() {
		case "$gt", "$gte":
			if found && e.Key() == "$gt" {
				n++
			}
			from = max(from, n)
		case "$lt", "$lte":
			if found && e.Key() == "$lte" {
				n++
			}
			to = min(to, n)
		}
	}
	return c.docs[from:max(from, to)]
}

// newUUID makes a UUID of a number.
func newUUID(n uint64) []byte {
	out := make([]byte, 16)
	binary.BigEndian.PutUint64(out[8:], n)
	out[6], out[8] = 0x40, out[8]|0x80
	return out
}

// An entry of the oplog changes one document, or the catalog.
type entry func(*data)
