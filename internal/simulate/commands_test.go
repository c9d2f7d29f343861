package simulate

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// execution is a command while it is executed on a member.
type execution struct {
	*message

	db    *MongoDB
	host  int
	now   time.Time
	begun *cursor // of a find that has read something before
	needs int64   // see Command

	interrupted bool // it was sent to this primary in an earlier term, and ended with that
}

// kinds of commands, by what they need of a member.
const (
	anyMember = iota
	readsPrimary
	writes
)

type handler struct {
	kind int
	run  func(*execution) (bson.D, *failure)
	// Fields that it knows, beside its name and those of every command.
	fields string
}

// handlers are all commands that the model knows.
func handlers(name string) (h handler, ok bool) {
	nothing := func(*execution) (bson.D, *failure) { return nil, nil }
	switch name {
	case "hello", "isMaster", "ismaster":
		return handler{anyMember, (*execution).hello, "helloOk client compression loadBalanced topologyVersion maxAwaitTimeMS speculativeAuthenticate saslSupportedMechs backpressure"}, true
	case "ping":
		return handler{anyMember, nothing, ""}, true
	case "endSessions":
		return handler{anyMember, nothing, ""}, true
	case "killCursors":
		return handler{anyMember, (*execution).killCursors, "cursors"}, true
	case "buildInfo":
		return handler{anyMember, (*execution).buildInfo, ""}, true
	case "replSetGetConfig":
		return handler{anyMember, (*execution).getConfig, ""}, true
	case "getMore":
		return handler{anyMember, (*execution).getMore, "collection batchSize"}, true
	case "find":
		return handler{readsPrimary, (*execution).find, "filter sort projection limit batchSize singleBatch allowDiskUse"}, true
	case "aggregate":
		return handler{readsPrimary, (*execution).aggregate, "pipeline cursor"}, true
	case "listCollections":
		return handler{readsPrimary, (*execution).listCollections, "filter nameOnly cursor authorizedCollections"}, true
	case "listIndexes":
		return handler{readsPrimary, (*execution).listIndexes, "cursor"}, true
	case "insert":
		return handler{writes, (*execution).insert, "documents ordered collectionUUID"}, true
	case "update":
		return handler{writes, (*execution).update, "updates ordered collectionUUID"}, true
	case "delete":
		return handler{writes, (*execution).delete, "deletes ordered collectionUUID"}, true
	case "findAndModify":
		return handler{writes, (*execution).findAndModify, "query update new fields upsert remove sort"}, true
	case "create":
		return handler{writes, (*execution).create, "capped size validator validationLevel validationAction storageEngine timeseries expireAfterSeconds viewOn pipeline collation"}, true
	case "drop":
		return handler{writes, (*execution).drop, ""}, true
	case "createIndexes":
		return handler{writes, (*execution).createIndexes, "indexes collectionUUID commitQuorum"}, true
	case "dropIndexes":
		return handler{writes, (*execution).dropIndexes, "index"}, true
	case "collMod":
		return handler{writes, (*execution).collMod, "index validator validationLevel validationAction expireAfterSeconds viewOn pipeline timeseries"}, true
	}
	return handler{}, false
}

// Fields that every command may have.
const always = "$db lsid txnNumber $clusterTime readConcern writeConcern maxTimeMS $readPreference comment bypassDocumentValidation"

// run executes the command and returns the reply.
func (x *execution) run() bson.D {
	h, ok := handlers(x.name())
	if !ok {
		panic(unknown("the command %s", x.message))
	}
	known(x.body, x.name()+" "+h.fields+" "+always)
	reply, err := x.checked(h)
	if err != nil {
		return errorReply(err)
	}
	return append(reply, bson.E{Key: "ok", Value: 1.0})
}

func errorReply(f *failure) bson.D { return append(bson.D{{Key: "ok", Value: 0.0}}, f.fields()...) }

func (x *execution) checked(h handler) (reply bson.D, err *failure) {
	defer catch(&err)
	writable := x.host == x.db.primary || x.host == x.db.deposed
	switch {
	case h.kind == readsPrimary && !writable:
		return nil, failed(notPrimaryNoSecondaryOk, "not primary and secondaryOk=false")
	case h.kind == writes && !writable:
		return nil, failed(notPrimary, "not primary")
	case h.kind != anyMember && x.interrupted:
		return nil, failed(interruptedByElection, "operation was interrupted")
	case h.kind == writes:
		defer x.concern()
		if err := x.inTurn(); err != nil {
			return nil, err
		}
	}
	return h.run(x)
}

// concern notes what the write concern waits for: everything in the log so far, even if
// the command has changed nothing.
func (x *execution) concern() {
	w := core(x.body.Lookup("writeConcern", "w"))
	switch n, isNumber := whole(w); {
	case isNumber && n == 1:
	case missing(w), textOf(w) == "majority", isNumber && n == 2:
		x.needs = max(1, x.db.position)
	default:
		panic(unknown("the write concern of %s", x.message))
	}
}

func textOf(v value) string {
	if v.Type != bsoncore.TypeString {
		return ""
	}
	return text(v)
}

// number returns the command's number in its logical session, -1 if it has none.
func (x *execution) number() int64 {
	if n, ok := x.body.Lookup("txnNumber").Int64OK(); ok {
		return n
	}
	return -1
}

func (x *execution) lsid() string { return string(x.body.Lookup("lsid").Value) }

// inTurn refuses a write that is older than one that its session has sent since.
func (x *execution) inTurn() *failure {
	if x.number() < 0 {
		return nil
	}
	s := x.own().session(x.lsid())
	if x.number() < s.newest {
		return failed(transactionTooOld, "Retryable write with txnNumber %d is prohibited because a newer one with txnNumber %d has already started", x.number(), s.newest)
	}
	s.newest = x.number()
	return nil
}

// repeated returns the result of a statement that was executed before.
func (x *execution) repeated(statement int) (bson.D, bool) {
	if x.number() < 0 {
		return nil, false
	}
	s := x.own().session(x.lsid())
	if s.number != x.number() {
		return nil, false
	}
	result, ok := s.done[statement]
	return result, ok
}

// own is what the member holds.
func (x *execution) own() *data { return x.db.dataOf(x.host, false) }

// log executes a change, with its statement's result for repetitions.
func (x *execution) log(statement int, result bson.D, change entry) {
	lsid, number := x.lsid(), x.number()
	e := func(d *data) {
		change(d)
		if number >= 0 {
			d.session(lsid).record(number, statement, result)
		}
	}
	if x.host == x.db.primary {
		x.db.append(e)
	} else {
		e(x.own())
	}
}

func (x *execution) database() string { return x.body.Lookup("$db").StringValue() }

// target is the name of the collection that the command is about.
func (x *execution) target() string {
	return x.database() + "." + textOf(core(x.body.Index(0).Value()))
}

// collection returns the collection to write to, nil if there is none; it checks its UUID
// if the command names one.
func (x *execution) collection() (*collection, *failure) {
	c := x.own().collections[x.target()]
	if want, ok := x.body.Lookup("collectionUUID").Value, x.body.Lookup("collectionUUID").Type != 0; ok {
		_, id := bsoncore.Value{Type: bsoncore.TypeBinary, Data: want}.Binary()
		if c == nil || !bytes.Equal(c.uuid, id) {
			return nil, failed(mismatchedUUID, "Collection UUID does not match that specified")
		}
	}
	if c != nil && c.kind == "view" {
		panic(unknown("views, in %s", x.message))
	}
	return c, nil
}

// ensure is collection, and makes one if there is none, as a first write does.
func (x *execution) ensure() (*collection, *failure) {
	c, err := x.collection()
	if c == nil && err == nil {
		x.makeCollection(x.target(), collection{kind: "collection"})
		c = x.own().collections[x.target()]
	}
	return c, err
}

func (x *execution) makeCollection(name string, c collection) {
	x.db.uuids++
	c.uuid, c.name = newUUID(x.db.uuids), name
	x.catalog(func(d *data) {
		one := c
		one.indexes = slices.Clone(c.indexes)
		d.collections[name] = &one
	})
}

// catalog logs a change that is no statement.
func (x *execution) catalog(change entry) {
	if x.host == x.db.primary {
		x.db.append(change)
	} else {
		change(x.own())
	}
}

func (x *execution) ordered() bool {
	ordered, ok := x.body.Lookup("ordered").BooleanOK()
	return ordered || !ok
}

// tally is what a batch of statements gives.
type tally struct {
	n, modified int32
	upserted    bson.A
	errors      bson.A
	repeated    bson.A
}

// each executes statements, until one fails if they are ordered.
func (x *execution) each(statements []bson.Raw, do func(i int, s bson.Raw) (bson.D, *failure)) *tally {
	t := &tally{}
	for i, s := range statements {
		result, again := x.repeated(i)
		if again {
			t.repeated = append(t.repeated, int32(i))
		} else {
			var err *failure
			if result, err = x.one(i, s, do); err != nil {
				t.errors = append(t.errors, append(bson.D{{Key: "index", Value: int32(i)}}, err.fields()...))
				if x.ordered() {
					break
				}
				continue
			}
		}
		t.add(i, result)
	}
	return t
}

func (x *execution) one(i int, s bson.Raw, do func(i int, s bson.Raw) (bson.D, *failure)) (result bson.D, err *failure) {
	defer catch(&err)
	return do(i, s)
}

func (t *tally) add(i int, result bson.D) {
	if n, ok := field(result, "n"); ok {
		t.n += n.(int32)
	}
	if n, ok := field(result, "nModified"); ok {
		t.modified += n.(int32)
	}
	if id, ok := field(result, "upserted"); ok {
		t.upserted = append(t.upserted, bson.D{{Key: "index", Value: int32(i)}, {Key: "_id", Value: id}})
	}
}

func (t *tally) reply(modified bool) bson.D {
	out := bson.D{{Key: "n", Value: t.n}}
	if modified {
		out = append(out, bson.E{Key: "nModified", Value: t.modified})
	}
	for _, more := range []struct {
		name string
		list bson.A
	}{{"upserted", t.upserted}, {"writeErrors", t.errors}, {"retriedStmtIds", t.repeated}} {
		if len(more.list) > 0 {
			out = append(out, bson.E{Key: more.name, Value: more.list})
		}
	}
	return out
}

func (x *execution) insert() (bson.D, *failure) {
	c, err := x.collection()
	if err != nil {
		return nil, err
	}
	return x.each(x.batch("documents"), func(i int, s bson.Raw) (bson.D, *failure) {
		if c, err = x.ensure(); err != nil {
			return nil, err
		}
		doc := idFirst(document(s), x.newID(document(s)))
		return bson.D{{Key: "n", Value: int32(1)}}, x.store(c, i, doc, bson.D{{Key: "n", Value: int32(1)}})
	}).reply(false), nil
}

// newID returns the _id of a document, a new one if it has none.
func (x *execution) newID(doc document) value {
	if id, ok := lookup(doc, "_id"); ok {
		return id
	}
	x.db.uuids++
	id := newUUID(x.db.uuids)
	return value{Type: bsoncore.TypeObjectID, Data: id[4:]}
}

// store inserts a document, unless the collection refuses it.
func (x *execution) store(c *collection, statement int, doc document, result bson.D) *failure {
	if c.isSeries() {
		if err := c.checkSeries(doc); err != nil {
			return err
		}
	}
	if err := x.check(c, doc); err != nil { // comes before a duplicate, also if it is a validator's
		return err
	}
	if _, there := c.find(at(doc, "_id")); there && !c.isSeries() {
		return duplicate(c, at(doc, "_id"))
	}
	name := c.name
	x.log(statement, result, func(d *data) { d.collections[name].insert(doc) })
	return nil
}

func duplicate(c *collection, id value) *failure {
	f := failed(duplicateKey, "E11000 duplicate key error collection: %s index: _id_ dup key: { _id: %v }", c.name, id)
	f.more = bson.D{{Key: "keyPattern", Value: bson.D{{Key: "_id", Value: int32(1)}}}, {Key: "keyValue", Value: bson.D{{Key: "_id", Value: raw(id)}}}}
	return f
}

// check is what a collection asks of every new state of a document.
func (x *execution) check(c *collection, doc document) *failure {
	limit := x.db.MaxDocument
	if limit == 0 {
		limit = maxDocument
	}
	if len(doc) > limit {
		return failed(tooLarge, "Resulting document after update is larger than %d", limit)
	}
	if validator := at(c.options, "validator"); !missing(validator) && !compile(validator.Data)(doc, x.now) {
		return failed(validationFailed, "Document failed validation")
	}
	return nil
}

func (c *collection) checkSeries(doc document) *failure {
	field := text(at(c.options, "timeseries", "timeField"))
	if at(doc, field).Type != bsoncore.TypeDateTime {
		return failed(badValue, "'%s' must be present and contain a valid BSON UTC datetime value", field)
	}
	return nil
}

func (x *execution) update() (bson.D, *failure) {
	if _, err := x.collection(); err != nil {
		return nil, err
	}
	return x.each(x.batch("updates"), func(i int, s bson.Raw) (bson.D, *failure) {
		known(s, "q u upsert multi")
		upsert, _ := s.Lookup("upsert").BooleanOK()
		multi, _ := s.Lookup("multi").BooleanOK()
		return x.updateStatement(i, modification{filter: document(s.Lookup("q").Value), update: core(s.Lookup("u")), upsert: upsert, multi: multi})
	}).reply(true), nil
}

// known panics if a command or statement has other fields.
func known(s bson.Raw, fields string) {
	names := strings.Fields(fields)
	for _, e := range elements(s) {
		if !slices.Contains(names, e.Key()) {
			panic(unknown("the field %s of %s", e.Key(), s))
		}
	}
}

// modification is a statement of an update.
type modification struct {
	filter        document
	update        value
	upsert, multi bool
}

func (x *execution) updateStatement(i int, m modification) (result bson.D, err *failure) {
	c, err := x.collection()
	if m.upsert && err == nil {
		c, err = x.ensure()
	}
	if err != nil {
		return nil, err
	}
	if c != nil && c.isSeries() {
		panic(unknown("updates of a time series: %s", x.message))
	}
	if _, err := parseUpdate(m.update, m.upsert, x.now); err != nil { // also if nothing matches
		return nil, err
	}
	var n, modified int32
	if c != nil {
		for _, r := range c.matching(m.filter, x.now) {
			changed, err := x.modify(c, i, r, m.update)
			if err != nil {
				return nil, err
			}
			n++
			if changed {
				modified++
			}
			if !m.multi {
				break
			}
		}
	}
	if n > 0 || !m.upsert {
		return bson.D{{Key: "n", Value: n}, {Key: "nModified", Value: modified}}, nil
	}
	return x.upsert(c, i, m)
}

// modify updates one document, and reports whether that changed it.
func (x *execution) modify(c *collection, statement int, r record, update value) (changed bool, err *failure) {
	doc, err := updated(r.doc, update, false, x.now)
	if err != nil || string(doc) == string(r.doc) {
		return false, err
	}
	if err := x.check(c, doc); err != nil {
		return false, err
	}
	name := c.name
	x.log(statement, bson.D{{Key: "n", Value: int32(1)}, {Key: "nModified", Value: int32(1)}}, func(d *data) { d.collections[name].replace(doc) })
	return true, nil
}

func (x *execution) upsert(c *collection, statement int, m modification) (bson.D, *failure) {
	base, err := upsertBase(m.filter)
	if err != nil {
		return nil, err
	}
	doc, err := updated(base, m.update, true, x.now)
	if err != nil {
		return nil, err
	}
	doc = idFirst(doc, x.newID(doc))
	result := bson.D{{Key: "n", Value: int32(1)}, {Key: "nModified", Value: int32(0)}, {Key: "upserted", Value: raw(at(doc, "_id"))}}
	return result, x.store(c, statement, doc, result)
}

func (x *execution) delete() (bson.D, *failure) {
	if _, err := x.collection(); err != nil {
		return nil, err
	}
	return x.each(x.batch("deletes"), func(i int, s bson.Raw) (bson.D, *failure) {
		known(s, "q limit")
		c, err := x.collection()
		if err != nil || c == nil {
			return bson.D{{Key: "n", Value: int32(0)}}, err
		}
		found := c.matching(document(s.Lookup("q").Value), x.now)
		if s.Lookup("limit").AsInt64() == 1 {
			found = found[:min(1, len(found))]
		}
		for _, r := range found {
			x.log(i, bson.D{{Key: "n", Value: int32(1)}}, removal(c.name, r.serial))
		}
		return bson.D{{Key: "n", Value: int32(len(found))}}, nil
	}).reply(false), nil
}

func removal(name string, serial int64) entry {
	return func(d *data) { d.remove(name, serial) }
}

// findAndModify updates or removes the first document that matches, and returns it.
func (x *execution) findAndModify() (bson.D, *failure) {
	if result, again := x.repeated(0); again {
		return append(slices.Clone(result), bson.E{Key: "retriedStmtId", Value: int32(0)}), nil
	}
	c, err := x.collection()
	if err != nil {
		return nil, err
	}
	update, remove := x.body.Lookup("update"), truth(core(x.body.Lookup("remove")))
	if !remove {
		if _, err := parseUpdate(core(update), false, x.now); err != nil {
			return nil, err
		}
	}
	var found []record
	if c != nil {
		found = c.matching(document(x.body.Lookup("query").Value), x.now)
		order(core(x.body.Lookup("sort")), document(x.body.Lookup("query").Value)).sort(found)
	}
	shape := compileProjection(core(x.body.Lookup("fields")))
	upsert, _ := x.body.Lookup("upsert").BooleanOK()
	after, _ := x.body.Lookup("new").BooleanOK()
	switch {
	case len(found) == 0 && upsert:
		panic(unknown("findAndModify with upsert: %s", x.message))
	case len(found) == 0 && remove:
		return bson.D{{Key: "lastErrorObject", Value: bson.D{{Key: "n", Value: int32(0)}}}, {Key: "value", Value: nil}}, nil
	case len(found) == 0:
		return bson.D{{Key: "lastErrorObject", Value: bson.D{{Key: "n", Value: int32(0)}, {Key: "updatedExisting", Value: false}}}, {Key: "value", Value: nil}}, nil
	case remove:
		x.log(0, foundAndModified(found[0].doc, true), removal(c.name, found[0].serial))
		return foundAndModified(shape(found[0].doc, x.now), true), nil
	}
	doc, err := updated(found[0].doc, core(update), false, x.now)
	if err == nil {
		err = x.check(c, doc)
	}
	if err != nil {
		return nil, err
	}
	shown := found[0].doc
	if after {
		shown = doc
	}
	if string(doc) != string(found[0].doc) {
		name := c.name
		x.log(0, foundAndModified(shown, false), func(d *data) { d.collections[name].replace(doc) })
	}
	return foundAndModified(shape(shown, x.now), false), nil
}

// foundAndModified is the reply of findAndModify. A repetition gets the whole document,
// whatever its projection.
func foundAndModified(shown document, removed bool) bson.D {
	last := bson.D{{Key: "n", Value: int32(1)}}
	if !removed {
		last = append(last, bson.E{Key: "updatedExisting", Value: true})
	}
	return bson.D{{Key: "lastErrorObject", Value: last}, {Key: "value", Value: bson.Raw(shown)}}
}

func (x *execution) hello() (bson.D, *failure) { return x.db.hello(x.host), nil }

// The version that the model is compared with.
func (x *execution) buildInfo() (bson.D, *failure) {
	return bson.D{{Key: "version", Value: "6.0.5"}, {Key: "versionArray", Value: bson.A{int32(6), int32(0), int32(5), int32(0)}}}, nil
}

func (x *execution) getConfig() (bson.D, *failure) {
	members := bson.A{}
	for i := range 3 {
		members = append(members, bson.D{{Key: "_id", Value: int32(i)}, {Key: "arbiterOnly", Value: false}})
	}
	return bson.D{{Key: "config", Value: bson.D{{Key: "_id", Value: setName}, {Key: "members", Value: members}}}}, nil
}
