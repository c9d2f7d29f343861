package simulate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// cursor is a query that was answered in part. It is no snapshot: the next batch is of
// what is there then, behind the last document.
type cursor struct {
	host     int
	majority bool
	name     string
	uuid     string
	filter   document
	order    ordering
	shape    shape
	left     int // documents to return; 0: all
	last     *record
	read     bson.A // read already, and not returned yet
	ended    bool   // there are no others
}

// ordering is that of a query's documents: by what its sort names, and within that by _id
// or as they were inserted, see matching.
type ordering struct {
	by      []sortKey
	natural bool
}

type sortKey struct {
	path []string
	down bool
}

func order(sort value, filter document) ordering {
	o := ordering{natural: !byID(filter)}
	for _, e := range elements(sort.Data) {
		o.by = append(o.by, sortKey{strings.Split(e.Key(), "."), float(e.Value()) < 0})
	}
	return o
}

func (o ordering) compare(a, b record) int {
	for _, key := range o.by {
		x, y := sortable(at(a.doc, key.path...)), sortable(at(b.doc, key.path...))
		if d := compare(x, y); d != 0 {
			if key.down {
				return -d
			}
			return d
		}
	}
	if o.natural {
		return cmp.Compare(a.serial, b.serial)
	}
	return compare(a.id, b.id)
}

func sortable(v value) value {
	switch v.Type {
	case 0:
		return null()
	case bsoncore.TypeArray:
		panic(unknown("an order by arrays"))
	}
	return v
}

func (o ordering) sort(records []record) {
	if len(o.by) > 0 {
		slices.SortFunc(records, o.compare)
	}
}

// majorityOnly reports whether a read shows what a majority has.
func (x *execution) majorityOnly() bool {
	switch level := x.body.Lookup("readConcern", "level"); {
	case level.Type == 0 || level.StringValue() == "local":
		return false
	case level.StringValue() == "majority":
		return true
	}
	panic(unknown("the read concern of %s", x.message))
}

// query is what a find asks for.
func (x *execution) query() *cursor {
	q := &cursor{
		host: x.host, majority: x.majorityOnly(), name: x.target(), filter: document(x.body.Lookup("filter").Value),
		shape: compileProjection(core(x.body.Lookup("projection"))),
	}
	q.order = order(core(x.body.Lookup("sort")), q.filter)
	limit, _ := x.body.Lookup("limit").AsInt64OK()
	q.left = int(limit)
	return q
}

const firstBatch = 101 // documents, unless the command asks for another number

func (x *execution) find() (bson.D, *failure) {
	q := x.begun
	if q == nil {
		q = x.query()
	}
	return x.next(q, "firstBatch", x.batchSize(firstBatch))
}

// begin reads the first documents of a find.
func (x *execution) begin(n int) *cursor {
	q := x.query()
	if c := x.db.dataOf(x.host, q.majority).collections[q.name]; c != nil {
		var more bool
		q.read, more = q.batch(c, min(n, x.batchSize(firstBatch)), x.now)
		q.uuid, q.ended = string(c.uuid), !more
	}
	return q
}

func (x *execution) batchSize(otherwise int) int {
	if n, ok := x.body.Lookup("batchSize").AsInt64OK(); ok {
		return int(n)
	}
	return otherwise
}

func (x *execution) getMore() (bson.D, *failure) {
	id, _ := x.body.Index(0).Value().AsInt64OK()
	q := x.db.cursors[id]
	if q == nil || q.host != x.host {
		return nil, failed(cursorGone, "cursor id %d not found", id)
	}
	delete(x.db.cursors, id)
	n := x.batchSize(unlimited)
	if n == 0 {
		n = unlimited
	}
	return x.next(q, "nextBatch", n)
}

// maxBatch bounds the bytes of a batch.
const maxBatch = 16 << 20

const unlimited = -1

// next returns the next documents of a query, at most n.
func (x *execution) next(q *cursor, batch string, n int) (bson.D, *failure) {
	docs, more := bson.A{}, false
	if c := x.db.dataOf(x.host, q.majority).collections[q.name]; c != nil && c.kind == "view" {
		panic(unknown("views, in %s", x.message))
	} else if c != nil && (q.uuid == "" || q.uuid == string(c.uuid)) {
		q.uuid = string(c.uuid)
		docs, more = q.batch(c, n, x.now)
	} else if q.uuid != "" {
		const killed = 175
		return nil, failed(killed, "collection dropped")
	}
	id := int64(0)
	if single, _ := x.body.Lookup("singleBatch").BooleanOK(); more && !single {
		x.db.cursor++
		id = x.db.cursor
		x.db.cursors[id] = q
	}
	return cursorReply(id, q.name, batch, docs), nil
}

func cursorReply(id int64, name, batch string, docs bson.A) bson.D {
	return bson.D{{Key: "cursor", Value: bson.D{{Key: "id", Value: id}, {Key: "ns", Value: name}, {Key: batch, Value: docs}}}}
}

func (q *cursor) batch(c *collection, n int, now time.Time) (docs bson.A, more bool) {
	docs, q.read = append(bson.A{}, q.read...), nil
	if q.ended || len(docs) == n {
		return docs, !q.ended
	}
	found := c.matching(q.filter, now)
	if q.last != nil {
		found = slices.DeleteFunc(found, func(r record) bool { return q.order.compare(r, *q.last) <= 0 })
	}
	q.order.sort(found)
	size := 0
	for i := range found {
		doc := q.shape(found[i].doc, now)
		if size += len(doc); len(docs) > 0 && size > maxBatch {
			return docs, true
		}
		docs = append(docs, bson.Raw(doc))
		q.last = &found[i]
		if q.left--; q.left == 0 {
			return docs, false
		}
		if len(docs) == n {
			return docs, !q.isOne()
		}
	}
	return docs, false
}

// isOne reports whether the query is for one _id, so that MongoDB knows that nothing
// follows.
func (q *cursor) isOne() bool {
	of := elements(q.filter)
	return len(of) == 1 && of[0].Key() == "_id" && !isOperators(of[0].Value())
}

func (x *execution) killCursors() (bson.D, *failure) {
	ids, _ := x.body.Lookup("cursors").ArrayOK()
	for _, e := range elements(ids) {
		delete(x.db.cursors, e.Value().Int64())
	}
	return bson.D{{Key: "cursorsKilled", Value: bson.RawValue{Type: bson.TypeArray, Value: ids}}}, nil
}

// A shape returns what a projection shows of a document.
type shape func(d document, now time.Time) document

// compileProjection makes a shape of a projection: fields to show, or to leave out, and
// expressions.
func compileProjection(spec value) shape {
	var show, hide [][]string
	var computed []bsoncore.Element
	id := true
	for _, e := range elements(spec.Data) {
		path := strings.Split(e.Key(), ".")
		switch v := e.Value(); {
		case !numeric(v) && v.Type != bsoncore.TypeBoolean:
			computed = append(computed, e)
		case truth(v):
			show = append(show, path)
		case e.Key() == "_id":
			id = false
		default:
			hide = append(hide, path)
		}
	}
	if len(show)+len(computed) == 0 {
		if !id {
			hide = append(hide, []string{"_id"})
		}
		return func(d document, _ time.Time) document { return without(d, hide) }
	}
	if len(hide) > 0 {
		panic(unknown("the projection %v", spec))
	}
	if rest, _ := within(show, "_id"); id && len(rest) == 0 {
		show = append(show, []string{"_id"})
	}
	return func(d document, now time.Time) document {
		out := only(d, show)
		if len(computed) == 0 {
			return out
		}
		body := slices.Clone([]byte(out[:len(out)-1]))
		for _, e := range computed {
			if v := evaluate(e.Value(), d, now); !missing(v) {
				body = bsoncore.AppendValueElement(body, e.Key(), v)
			}
		}
		return finish(body)
	}
}

// within returns the rest of the paths that begin with a name, and whether one ends
// there.
func within(paths [][]string, name string) (rest [][]string, ends bool) {
	for _, p := range paths {
		if p[0] == name {
			ends = ends || len(p) == 1
			rest = append(rest, p[1:])
		}
	}
	return rest, ends
}

// only keeps what paths lead to, also in the documents of arrays.
func only(d document, paths [][]string) document {
	return rebuild(d, func(key string, v value) value {
		rest, ends := within(paths, key)
		switch {
		case ends:
			return v
		case len(rest) > 0:
			return projected(v, func(d document) document { return only(d, rest) }, false)
		}
		return value{}
	})
}

// without leaves out what paths lead to.
func without(d document, paths [][]string) document {
	if len(paths) == 0 {
		return d
	}
	return rebuild(d, func(key string, v value) value {
		rest, ends := within(paths, key)
		switch {
		case ends:
			return value{}
		case len(rest) > 0:
			return projected(v, func(d document) document { return without(d, rest) }, true)
		}
		return v
	})
}

func projected(v value, do func(document) document, keepScalars bool) value {
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument:
		return value{Type: v.Type, Data: do(v.Data)}
	case bsoncore.TypeArray:
		var kept []value
		for _, one := range valuesOf(v.Data) {
			if one = projected(one, do, keepScalars); !missing(one) {
				kept = append(kept, one)
			}
		}
		return array(kept)
	}
	if keepScalars {
		return v
	}
	return value{}
}

// rebuild makes a document of what becomes of each element; missing ones are left out.
func rebuild(d document, do func(key string, v value) value) document {
	out := []byte{0, 0, 0, 0}
	for _, e := range elements(d) {
		if v := do(e.Key(), e.Value()); !missing(v) {
			out = bsoncore.AppendValueElement(out, e.Key(), v)
		}
	}
	return finish(out)
}

// aggregate knows $match, $sort, and $group with $sum and $first.
func (x *execution) aggregate() (bson.D, *failure) {
	if elements(x.batch("pipeline")[0])[0].Key() == "$documents" { // that of store.View.RunsJavaScript
		return cursorReply(0, x.target(), "firstBatch", bson.A{bson.D{{Key: "readings", Value: bson.A{}}}}), nil
	}
	c := x.db.dataOf(x.host, x.majorityOnly()).collections[x.target()]
	docs := bson.A{}
	if c == nil {
		return cursorReply(0, x.target(), "firstBatch", docs), nil
	}
	records := slices.Clone(c.docs)
	for _, stage := range x.batch("pipeline") {
		e := elements(stage)[0]
		switch e.Key() {
		case "$match":
			matches := compile(e.Value().Data)
			records = slices.DeleteFunc(records, func(r record) bool { return !matches(r.doc, x.now) })
		case "$sort":
			order(e.Value(), nil).sort(records)
		case "$group":
			records = group(records, e.Value(), x.now)
		default:
			panic(unknown("the stage %s", stage))
		}
	}
	for _, r := range records {
		docs = append(docs, bson.Raw(r.doc))
	}
	return cursorReply(0, x.target(), "firstBatch", docs), nil
}

func group(records []record, spec value, now time.Time) (out []record) {
	members := make(map[string][]record)
	var keys []value
	for _, r := range records {
		key := evaluate(at(spec.Data, "_id"), r.doc, now)
		if missing(key) {
			key = null()
		}
		if n := string(rune(key.Type)) + string(key.Data); members[n] == nil {
			keys, members[n] = append(keys, key), []record{r}
		} else {
			members[n] = append(members[n], r)
		}
	}
	for _, key := range keys {
		body := bsoncore.AppendValueElement([]byte{0, 0, 0, 0}, "_id", key)
		for _, e := range elements(spec.Data) {
			if e.Key() != "_id" {
				body = bsoncore.AppendValueElement(body, e.Key(), accumulate(e.Value(), members[string(rune(key.Type))+string(key.Data)], now))
			}
		}
		out = append(out, record{id: key, doc: finish(body)})
	}
	return out
}

func accumulate(spec value, records []record, now time.Time) value {
	op := elements(spec.Data)[0]
	switch op.Key() {
	case "$first":
		if v := evaluate(op.Value(), records[0].doc, now); !missing(v) {
			return v
		}
		return null()
	case "$sum":
		sum := int32Value(0)
		for _, r := range records {
			if v := evaluate(op.Value(), r.doc, now); numeric(v) {
				sum = increment("", sum, v)
			}
		}
		return sum
	}
	panic(unknown("the accumulator %v", spec))
}
