package simulate

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A predicate says whether a document matches a filter.
type predicate func(d document, now time.Time) bool

// compile makes a predicate of a filter in MongoDB's language. Known are equality, $eq,
// $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists, $type, $not, $and, $or, $nor, $expr and
// $comment.
func compile(filter document) predicate {
	var all []predicate
	for _, e := range elements(filter) {
		all = append(all, compileClause(e.Key(), e.Value()))
	}
	return every(all)
}

func every(of []predicate) predicate {
	return func(d document, now time.Time) bool {
		for _, p := range of {
			if !p(d, now) {
				return false
			}
		}
		return true
	}
}

func not(p predicate) predicate {
	return func(d document, now time.Time) bool { return !p(d, now) }
}

func compileClause(key string, v value) predicate {
	switch key {
	case "$and":
		return every(compileEach(v))
	case "$or":
		return not(every(negated(compileEach(v))))
	case "$nor":
		return every(negated(compileEach(v)))
	case "$expr":
		return func(d document, now time.Time) bool { return truth(evaluate(v, d, now)) }
	case "$comment":
		return every(nil)
	}
	if strings.HasPrefix(key, "$") {
		panic(unknown("the filter %s: %v", key, v))
	}
	return compileField(strings.Split(key, "."), v)
}

func compileEach(list value) (out []predicate) {
	for _, v := range valuesOf(list.Array()) {
		out = append(out, compile(v.Document()))
	}
	return out
}

func negated(of []predicate) (out []predicate) {
	for _, p := range of {
		out = append(out, not(p))
	}
	return out
}

// isOperators reports whether v is a document of operators, and not one to be equal to.
func isOperators(v value) bool {
	if v.Type != bsoncore.TypeEmbeddedDocument {
		return false
	}
	of := elements(v.Data)
	return len(of) > 0 && strings.HasPrefix(of[0].Key(), "$")
}

func compileField(path []string, v value) predicate {
	if !isOperators(v) {
		return anyAt(path, comparison("$eq", v))
	}
	var all []predicate
	for _, e := range elements(v.Data) {
		all = append(all, compileOperator(path, e.Key(), e.Value()))
	}
	return every(all)
}

func compileOperator(path []string, op string, v value) predicate {
	switch op {
	case "$eq", "$gt", "$gte", "$lt", "$lte":
		return anyAt(path, comparison(op, v))
	case "$ne":
		return not(anyAt(path, comparison("$eq", v)))
	case "$in":
		return anyAt(path, oneOf(v))
	case "$nin":
		return not(anyAt(path, oneOf(v)))
	case "$not":
		return not(compileField(path, v))
	case "$exists":
		exists := anyAt(path, func(v value) bool { return !missing(v) })
		if truth(v) {
			return exists
		}
		return not(exists)
	case "$type":
		want := typeNamed(v)
		return anyAt(path, func(v value) bool { return v.Type == want })
	}
	panic(unknown("the operator %s: %v", op, v))
}

func typeNamed(v value) bsoncore.Type {
	switch text(v) {
	case "date":
		return bsoncore.TypeDateTime
	case "object":
		return bsoncore.TypeEmbeddedDocument
	case "array":
		return bsoncore.TypeArray
	case "string":
		return bsoncore.TypeString
	}
	panic(unknown("$type %v", v))
}

func oneOf(list value) func(value) bool {
	var either []func(value) bool
	for _, v := range valuesOf(list.Array()) {
		either = append(either, comparison("$eq", v))
	}
	return func(v value) bool {
		for _, is := range either {
			if is(v) {
				return true
			}
		}
		return false
	}
}

// comparison compares values of one rank. A missing value is equal to null.
func comparison(op string, with value) func(value) bool {
	within := rank(with.Type)
	return func(v value) bool {
		if missing(v) && within == rank(bsoncore.TypeNull) {
			return op != "$gt" && op != "$lt"
		}
		if within != rank(v.Type) && with.Type != bsoncore.TypeMinKey && with.Type != bsoncore.TypeMaxKey {
			return false
		}
		if op != "$eq" && within == 10 && isNaN(v) != isNaN(with) {
			return false
		}
		switch c := compare(v, with); op {
		case "$gt":
			return c > 0
		case "$gte":
			return c >= 0
		case "$lt":
			return c < 0
		case "$lte":
			return c <= 0
		default:
			return c == 0
		}
	}
}

func isNaN(v value) bool { return v.Type == bsoncore.TypeDouble && v.Double() != v.Double() }

// anyAt matches documents that have a value at the path for which the test is true.
func anyAt(path []string, test func(value) bool) predicate {
	return func(d document, _ time.Time) bool { return reach(d, path, test) }
}

// reach tests the values to which a path leads, until one passes. A path leads through
// documents and arrays of them; at its end an array counts as itself and as each of its
// elements.
func reach(d document, path []string, test func(value) bool) bool {
	v, _ := lookup(d, path[0])
	if len(path) == 1 {
		if v.Type == bsoncore.TypeArray {
			if slices.ContainsFunc(valuesOf(v.Data), test) {
				return true
			}
		}
		return test(v)
	}
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument:
		return reach(v.Data, path[1:], test)
	case bsoncore.TypeArray:
		if _, err := strconv.Atoi(path[1]); err == nil && reach(v.Data, path[1:], test) {
			return true
		}
		for _, e := range elements(v.Data) {
			if e.Value().Type == bsoncore.TypeEmbeddedDocument && reach(e.Value().Data, path[1:], test) {
				return true
			}
		}
		return false
	}
	return test(value{})
}

// lookup returns a field of a document.
func lookup(d []byte, name string) (value, bool) {
	if len(d) < 5 {
		return value{}, false
	}
	for rest := d[4:]; len(rest) > 1; {
		e, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			panic("simulate: BSON is damaged")
		}
		if string(e.KeyBytes()) == name {
			return e.Value(), true
		}
		rest = after
	}
	return value{}, false
}

// at returns what a path of names leads to, without going into arrays.
func at(d []byte, path ...string) (v value) {
	for i, name := range path {
		if i > 0 && v.Type != bsoncore.TypeEmbeddedDocument {
			return value{}
		}
		v, _ = lookup(d, name)
		d = v.Data
	}
	return v
}

// equalities returns what a filter demands to be equal, in order: an upsert begins its
// document with it.
func equalities(filter document) (out []bsoncore.Element) {
	for _, e := range elements(filter) {
		switch v := e.Value(); {
		case e.Key() == "$and":
			for _, each := range elements(v.Array()) {
				out = append(out, equalities(each.Value().Document())...)
			}
		case strings.HasPrefix(e.Key(), "$"):
		case !isOperators(v):
			out = append(out, e)
		default:
			if eq, ok := lookup(v.Data, "$eq"); ok {
				out = append(out, bsoncore.AppendValueElement(nil, e.Key(), eq))
			}
		}
	}
	return out
}
