package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A history is a sequence of commands to one collection.
type history []bson.D

// generator draws histories: Brim's own commands, and hostile ones.
type generator struct {
	*rand.Rand

	name string    // of the collection
	sent [2]bson.D // the last command with a number, by logical session
}

func newGenerator(seed uint64) *generator { return &generator{Rand: rand.New(rand.NewPCG(seed, 0))} }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) one(in int) bool { return g.IntN(in) == 0 }

// Most histories begin by emptying one collection, which costs less than making one.
const drawnName, droppedName = "drawn", "dropped"

var local = bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}}

// history begins without documents, and ends with all that are there.
func (g *generator) history() history {
	g.name = drawnName
	h := history{
		{{Key: "insert", Value: g.name}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: 0}}}}, local},
		{{Key: "delete", Value: g.name}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: bson.D{}}, {Key: "limit", Value: 0}}}}, local},
	}
	if g.one(10) {
		g.name = droppedName
		h = history{{{Key: "drop", Value: g.name}, local}, g.create()}[:1+g.IntN(2)]
	}
	for range 5 + g.IntN(20) {
		h = append(h, g.command())
	}
	return append(h, g.all(), bson.D{{Key: "listIndexes", Value: g.name}})
}

func (g *generator) all() bson.D {
	return bson.D{{Key: "find", Value: g.name}, {Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "batchSize", Value: 10000}}
}

func (g *generator) create() bson.D {
	c := bson.D{{Key: "create", Value: g.name}, local}
	if g.one(3) {
		c = append(c, bson.E{Key: "validator", Value: g.validator()})
	}
	return c
}

func (g *generator) validator() bson.D {
	return pick(g, bson.D{}, bson.D{{Key: "count", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: 20}}}}}},
		bson.D{{Key: "$nor", Value: bson.A{bson.D{{Key: "full", Value: true}}}}}, bson.D{{Key: "never", Value: bson.D{{Key: "$exists", Value: true}}}})
}

func (g *generator) command() bson.D {
	switch n := g.IntN(100); {
	case n < 30:
		return g.retried(bson.D{{Key: "update", Value: g.name}, {Key: "updates", Value: g.several(g.brimUpdate)}, {Key: "ordered", Value: g.one(4)}, local})
	case n < 50:
		return g.retried(bson.D{{Key: "update", Value: g.name}, {Key: "updates", Value: g.several(g.anyUpdate)}, {Key: "ordered", Value: g.one(3)}, local})
	case n < 60:
		return g.retried(bson.D{{Key: "insert", Value: g.name}, {Key: "documents", Value: g.several(g.inserted)}, {Key: "ordered", Value: g.one(3)}, local})
	case n < 66:
		return g.retried(g.findAndModify())
	case n < 71:
		return bson.D{{Key: "delete", Value: g.name}, {Key: "deletes", Value: g.several(func() bson.D { return bson.D{{Key: "q", Value: g.filter()}, {Key: "limit", Value: 0}} })}, local}
	case n < 85:
		return g.find()
	case n < 90:
		return bson.D{{Key: "getMore", Value: int64(0)}, {Key: "collection", Value: g.name}, {Key: "batchSize", Value: 1 + g.IntN(3)}}
	case n < 94:
		return bson.D{{Key: "aggregate", Value: g.name}, {Key: "cursor", Value: bson.D{}}, {Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$match", Value: g.filter()}}, bson.D{{Key: "$sort", Value: bson.D{{Key: "_id", Value: 1}}}},
			bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil}, {Key: "readings", Value: bson.D{{Key: "$sum", Value: pick[any](g, "$count", 1)}}}, {Key: "f", Value: bson.D{{Key: "$first", Value: "$" + g.path()}}}}}},
		}}}
	}
	if g.name == droppedName {
		return g.catalog()
	}
	return g.find()
}

// retried gives some commands a number in one of two logical sessions. Some of those are
// a repetition of the one before, or too old.
func (g *generator) retried(c bson.D) bson.D {
	if !g.one(3) {
		return c
	}
	session := g.IntN(len(g.sent))
	last, number := g.sent[session], int64(0)
	if last != nil {
		number = last[len(last)-1].Value.(int64)
		switch g.IntN(5) {
		case 0, 1:
			return last
		case 2:
			number -= 2
		}
	}
	id := bson.Binary{Subtype: 4, Data: make([]byte, 16)}
	id.Data[15] = byte(session)
	c = append(c, bson.E{Key: "lsid", Value: bson.D{{Key: "id", Value: id}}}, bson.E{Key: "txnNumber", Value: number + 1})
	if last == nil || number >= last[len(last)-1].Value.(int64) {
		g.sent[session] = c
	}
	return c
}

func (g *generator) several(one func() bson.D) bson.A {
	out := bson.A{}
	for range 1 + g.IntN(3) {
		out = append(out, one())
	}
	return out
}

// id is that of a bucket, with its numbers in several types and its keys in several
// orders; or something else.
func (g *generator) id() any {
	key := bson.D{{Key: "s", Value: pick(g, "a", "b", "a1", "é")}, {Key: "b", Value: bson.DateTime(g.IntN(3) * 60000)}, {Key: "g", Value: g.size(60)}, {Key: "p", Value: g.size(g.IntN(3))}}
	switch g.IntN(12) {
	case 0:
		key[0], key[3] = key[3], key[0]
	case 1:
		return g.scalar()
	case 2:
		return key[:2]
	}
	return key
}

func (g *generator) size(n int) any {
	switch g.IntN(12) {
	case 0:
		return int64(n)
	case 1:
		return float64(n)
	}
	return int32(n)
}

func (g *generator) scalar() any {
	return pick[any](g, int32(0), int32(1), int32(-1), int32(math.MaxInt32), int64(1), int64(math.MaxInt64), int64(math.MinInt64), int64(1<<53+1),
		0.0, 1.0, 1.5, -2.5, math.NaN(), math.Inf(1), math.Copysign(0, -1), float64(1<<53), 1e300,
		"", "a", "b", "é", "1", nil, true, false, bson.DateTime(0), bson.DateTime(-5), bson.DateTime(60000),
		bson.Binary{Subtype: 0, Data: []byte{1, 2}}, bson.Binary{Subtype: 4, Data: make([]byte, 16)}, bson.ObjectID{1}, bson.MinKey{}, bson.MaxKey{}, bson.Timestamp{T: 1, I: 2})
}

func (g *generator) value() any {
	switch g.IntN(10) {
	case 0:
		return bson.D{{Key: pick(g, "a", "b", "min"), Value: g.scalar()}, {Key: "n", Value: g.scalar()}}
	case 1:
		return bson.A{g.scalar(), g.scalar()}
	case 2:
		return pick[any](g, bson.D{}, bson.A{}, bson.A{bson.D{{Key: "a", Value: 1}}})
	}
	return g.scalar()
}

// path is that of a field of buckets, or another.
func (g *generator) path() string {
	return pick(g, "count", "bytes", "full", "first", "last", "measurements", "w", "w.s1", "w.s2", "stats.t.sum", "stats.t.n", "stats.t", "stats.10.n", "stats.9.n", "stats.9a.n",
		"stats.é.n", "stats. .n", "tags", "tags.site", "a", "a.b", "a.b.c", "a.0", "a.2", "a.10.x", "Z", "10", "9", "sensorId", "measurements.0.t")
}

// badPath is one that MongoDB refuses.
func (g *generator) badPath() string {
	return pick(g, "", "a.", ".a", "a..b", "$a", "a.$b", "_id", "_id.s")
}

func (g *generator) brimFilter(id any) bson.D {
	f := bson.D{
		{Key: "_id", Value: id},
		{Key: "w." + pick(g, "s1", "s2"), Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: int64(g.IntN(20))}}}}},
		{Key: "full", Value: bson.D{{Key: "$ne", Value: true}}},
		{Key: "count", Value: bson.D{{Key: "$lte", Value: int64(g.IntN(12))}}},
		{Key: "bytes", Value: bson.D{{Key: "$lte", Value: int64(g.IntN(300))}}},
	}
	switch g.IntN(3) {
	case 0:
		return append(f, bson.E{Key: "tags", Value: bson.D{{Key: "$exists", Value: false}}})
	case 1:
		return append(f, bson.E{Key: "tags", Value: g.tags()})
	}
	return f
}

func (g *generator) tags() bson.D {
	return pick(g, bson.D{{Key: "site", Value: "north"}}, bson.D{{Key: "site", Value: "south"}}, bson.D{{Key: "site", Value: "north"}, {Key: "x", Value: "y"}}, bson.D{{Key: "x", Value: "y"}, {Key: "site", Value: "north"}})
}

// brimUpdate is a guarded update as package bucket sends it.
func (g *generator) brimUpdate() bson.D {
	id, n := g.id(), 1+g.IntN(3)
	session, field := pick(g, "s1", "s2"), pick(g, "t", "u", "10", "9", "é", "T")
	each := bson.A{}
	for range n {
		each = append(each, bson.D{{Key: "ts", Value: bson.DateTime(g.IntN(1000))}, {Key: field, Value: g.Float64()}})
	}
	set := bson.D{{Key: "w." + session, Value: int64(g.IntN(20))}}
	if g.one(8) {
		set = append(set, bson.E{Key: "full", Value: true})
	}
	u := bson.D{
		{Key: "$push", Value: bson.D{{Key: "measurements", Value: bson.D{{Key: "$each", Value: each}}}}},
		{Key: "$inc", Value: bson.D{{Key: "count", Value: int32(n)}, {Key: "bytes", Value: int32(20 * n)}, {Key: "stats." + field + ".sum", Value: g.Float64()}, {Key: "stats." + field + ".n", Value: int64(n)}}},
		{Key: "$min", Value: bson.D{{Key: "first", Value: bson.DateTime(g.IntN(1000))}, {Key: "stats." + field + ".min", Value: pick[any](g, int64(g.IntN(9)), g.Float64())}}},
		{Key: "$max", Value: bson.D{{Key: "last", Value: bson.DateTime(g.IntN(1000))}, {Key: "stats." + field + ".max", Value: pick[any](g, int64(g.IntN(9)), g.Float64())}}},
		{Key: "$set", Value: set},
		{Key: "$setOnInsert", Value: bson.D{{Key: "sensorId", Value: "a"}, {Key: "bucketStart", Value: bson.DateTime(4e12)}}},
	}
	return bson.D{{Key: "q", Value: g.brimFilter(id)}, {Key: "u", Value: u}, {Key: "upsert", Value: true}}
}

func (g *generator) anyUpdate() bson.D {
	q := g.filter()
	if q[0].Key == "$or" { // which of several documents it changes is left to MongoDB
		q = g.condition()
	}
	out := bson.D{{Key: "q", Value: q}, {Key: "u", Value: g.changes()}}
	if g.one(2) {
		q = append(bson.D{{Key: "_id", Value: g.id()}}, slices.DeleteFunc(q, func(e bson.E) bool { return e.Key == "_id" })...)
		out = bson.D{{Key: "q", Value: q}, {Key: "u", Value: g.changes()}, {Key: "upsert", Value: g.one(2)}}
		if slices.ContainsFunc(q, func(e bson.E) bool { return e.Key == "$expr" || e.Key == "$nor" }) {
			out = out[:2] // an upsert must have no $expr
		}
		if g.one(5) {
			out[1].Value = bson.D{{Key: "replaced", Value: g.value()}, {Key: "count", Value: g.scalar()}}
		}
	}
	return out
}

func (g *generator) changes() bson.D {
	u := bson.D{}
	for _, op := range []string{"$set", "$inc", "$min", "$max", "$push", "$unset", "$setOnInsert"} {
		if !g.one(3) {
			continue
		}
		fields := bson.D{}
		for range 1 + g.IntN(2) {
			path := g.path()
			if g.one(25) {
				path = g.badPath()
			}
			v := g.value()
			switch {
			case op == "$push" && g.one(2):
				v = bson.D{{Key: "$each", Value: pick[any](g, bson.A{}, bson.A{g.value(), g.value()}, g.scalar())}}
			case op == "$inc" && !g.one(6):
				v = pick[any](g, int32(1), int32(math.MaxInt32), int32(-3), int64(1), int64(math.MaxInt64), 1.5, -1e10)
			}
			fields = append(fields, bson.E{Key: path, Value: v})
		}
		u = append(u, bson.E{Key: op, Value: fields})
	}
	if len(u) == 0 {
		u = append(u, bson.E{Key: "$set", Value: bson.D{{Key: g.path(), Value: g.value()}}})
	}
	return u
}

func (g *generator) inserted() bson.D {
	d := bson.D{{Key: "_id", Value: g.id()}}
	for _, path := range []string{"count", "bytes", "a", "first", "stats", "full", "w"} {
		if g.one(3) {
			d = append(d, bson.E{Key: path, Value: g.value()})
		}
	}
	if g.one(4) {
		d = append(d[1:], d[0])
	}
	return d
}

func (g *generator) filter() bson.D {
	switch g.IntN(6) {
	case 0:
		return g.brimFilter(g.id())
	case 1:
		return bson.D{{Key: "$or", Value: bson.A{g.idRange(), g.idRange()}}}
	case 2:
		return append(g.idRange(), bson.E{Key: "$nor", Value: bson.A{g.condition(), g.condition()}})
	case 3:
		return bson.D{{Key: "_id", Value: g.id()}}
	}
	return g.condition()
}

func (g *generator) idRange() bson.D {
	return bson.D{{Key: "_id", Value: bson.D{
		{Key: pick(g, "$gt", "$gte"), Value: bson.D{{Key: "s", Value: pick(g, "a", "b")}, {Key: "b", Value: pick[any](g, bson.MinKey{}, bson.DateTime(0), bson.DateTime(60000))}}},
		{Key: pick(g, "$lt", "$lte"), Value: bson.D{{Key: "s", Value: pick(g, "a", "b", "é")}, {Key: "b", Value: pick[any](g, bson.MaxKey{}, bson.DateTime(60001), bson.DateTime(120000))}}},
	}}}
}

func (g *generator) condition() bson.D {
	path := g.path()
	switch g.IntN(9) {
	case 0:
		return bson.D{{Key: path, Value: g.value()}}
	case 1:
		return bson.D{{Key: path, Value: bson.D{{Key: pick(g, "$in", "$nin"), Value: bson.A{g.scalar(), g.scalar()}}}}}
	case 2:
		return bson.D{{Key: path, Value: bson.D{{Key: "$exists", Value: g.one(2)}}}}
	case 3:
		return bson.D{{Key: path, Value: bson.D{{Key: "$type", Value: pick(g, "date", "object", "array", "string")}}}}
	case 4:
		return bson.D{{Key: path, Value: bson.D{{Key: "$not", Value: bson.D{{Key: pick(g, "$gt", "$gte", "$lt", "$lte"), Value: g.value()}}}}}}
	case 5:
		return bson.D{{Key: "_id.b", Value: bson.D{{Key: "$nin", Value: bson.A{bson.DateTime(0), bson.DateTime(120000)}}}}}
	case 6:
		return bson.D{{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{"$" + path, g.scalar1()}}}}}
	}
	return bson.D{{Key: path, Value: bson.D{{Key: pick(g, "$eq", "$ne", "$gt", "$gte", "$lt", "$lte"), Value: g.value()}}}}
}

// scalar1 is a scalar that is no path in an expression.
func (g *generator) scalar1() any {
	return pick[any](g, int32(5), int64(5), 2.5, nil, true, bson.DateTime(300))
}

func (g *generator) find() bson.D {
	f := bson.D{{Key: "find", Value: g.name}, {Key: "filter", Value: g.filter()}}
	if g.one(2) {
		f = append(f, bson.E{Key: "sort", Value: pick(g, bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "_id", Value: -1}})})
	}
	if g.one(2) {
		f = append(f, bson.E{Key: "projection", Value: g.projection()})
	}
	if len(f) > 2 && f[2].Key == "sort" && g.one(2) {
		f = append(f, bson.E{Key: "limit", Value: 1 + g.IntN(4)}, bson.E{Key: "singleBatch", Value: g.one(3)})
	}
	if ordered := len(f) > 2 && f[2].Key == "sort"; g.one(2) && (ordered || f[1].Value.(bson.D)[0].Key != "$or") {
		f = append(f, bson.E{Key: "batchSize", Value: g.IntN(4)})
	}
	if g.one(2) {
		f = append(f, bson.E{Key: "readConcern", Value: bson.D{{Key: "level", Value: "local"}}})
	}
	return f
}

func (g *generator) projection() bson.D {
	op := func(name string, args ...any) bson.D { return bson.D{{Key: name, Value: bson.A(args)}} }
	return pick(g,
		bson.D{{Key: "count", Value: 1}, {Key: "bytes", Value: 1}, {Key: "full", Value: 1}, {Key: "tags", Value: 1}, {Key: "w", Value: 1}},
		bson.D{{Key: "_id.g", Value: 1}}, bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "_id", Value: 0}, {Key: "count", Value: 1}},
		bson.D{{Key: "measurements", Value: 0}}, bson.D{{Key: "measurements", Value: 0}, {Key: "_id", Value: 0}}, bson.D{{Key: "stats.t", Value: 0}}, bson.D{{Key: "stats.t.n", Value: 1}, {Key: "a.b", Value: true}},
		bson.D{{Key: "count", Value: 1}, {Key: "stats", Value: 1}, {Key: "measurements", Value: op("$cond", op("$and",
			op("$gte", "$first", bson.DateTime(300)), op("$lt", "$last", bson.DateTime(900)), op("$gt", "$stats", nil)), "$$REMOVE", "$measurements")}},
		bson.D{{Key: "x", Value: op("$eq", "$count", "$bytes")}, {Key: "y", Value: "$stats.t.sum"}},
	)
}

func (g *generator) findAndModify() bson.D {
	f := bson.D{{Key: "findAndModify", Value: g.name}, {Key: "query", Value: bson.D{{Key: "_id", Value: g.id()}}}, local}
	if g.one(4) {
		f = append(f, bson.E{Key: "remove", Value: true})
	} else {
		f = append(f, bson.E{Key: "update", Value: pick(g, bson.D{{Key: "$set", Value: bson.D{{Key: "full", Value: true}}}}, g.changes())}, bson.E{Key: "new", Value: g.one(2)})
	}
	if g.one(2) {
		f = append(f, bson.E{Key: "fields", Value: g.projection()})
	}
	return f
}

func (g *generator) catalog() bson.D {
	switch g.IntN(7) {
	case 0:
		return g.create()
	case 1:
		return bson.D{{Key: "collMod", Value: g.name}, {Key: "validator", Value: g.validator()}, local}
	case 2, 3:
		index := bson.D{{Key: "key", Value: bson.D{{Key: pick(g, "bucketStart", "never"), Value: 1}}}, {Key: "name", Value: pick(g, "brim_retention", "other")}}
		if !g.one(3) {
			index = append(index, bson.E{Key: "expireAfterSeconds", Value: int32(2e9 + g.IntN(2))})
		}
		return bson.D{{Key: "createIndexes", Value: g.name}, {Key: "indexes", Value: bson.A{index}}, local}
	case 4:
		return bson.D{{Key: "dropIndexes", Value: g.name}, {Key: "index", Value: pick(g, "brim_retention", "other", "none")}, local}
	case 5:
		return bson.D{{Key: "collMod", Value: g.name}, {Key: "index", Value: bson.D{{Key: "name", Value: pick(g, "brim_retention", "other")}, {Key: "expireAfterSeconds", Value: int32(2.1e9)}}}, local}
	}
	return bson.D{{Key: "listCollections", Value: 1}, {Key: "filter", Value: bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: bson.A{g.name, "x"}}}}}}}
}

func (h history) String() (s string) {
	for i, c := range h {
		text, err := bson.MarshalExtJSON(c, false, false)
		if err != nil {
			text = fmt.Append(nil, c)
		}
		s += fmt.Sprintf("%4d  %s\n", i, text)
	}
	return s
}
