package simulate

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// change is an update, as a tree of the paths that it changes. At a leaf is what one
// operator does there.
type change struct {
	name     string
	children []*change // in MongoDB's order, in which new fields are made
	apply    leaf      // nil: there are children
	removes  bool      // it makes nothing, as an $unset
	creates  bool      // of the root: the document does not exist yet
}

// A leaf returns what a value becomes; a missing one means that it is removed.
type leaf func(old value) value

// parseUpdate reads an update in MongoDB's language. Known are $set, $setOnInsert,
// $unset, $inc, $min, $max, $push with and without $each, $currentDate, and a document
// that replaces the old one.
func parseUpdate(u value, inserting bool, now time.Time) (root *change, err *failure) {
	if u.Type != bsoncore.TypeEmbeddedDocument {
		panic(unknown("the update %v", u))
	}
	root = &change{creates: inserting}
	for _, op := range elements(u.Data) {
		if !isOperators(u) {
			return nil, nil //nolint:nilnil // a replacement is no tree
		}
		fields, ok := op.Value().DocumentOK()
		if !ok {
			return nil, failed(failedToParse, "Modifiers operate on fields but we found type %v instead", op.Value().Type)
		}
		for _, f := range elements(fields) {
			if slices.Contains(strings.Split(f.Key(), "."), "") {
				return nil, failed(emptyFieldName, "The update path '%s' contains an empty field name, which is not allowed.", f.Key())
			}
			do, err := leafOf(op.Key(), f.Key(), f.Value(), now)
			idle := op.Key() == "$setOnInsert" && !inserting // in the tree for its conflicts
			if idle {
				do = func(old value) value { return old }
			}
			if err != nil {
				return nil, err
			}
			at, err := root.add(f.Key(), do)
			if err != nil {
				return nil, err
			}
			at.removes = idle || op.Key() == "$unset"
		}
	}
	return root, nil
}

func leafOf(op, path string, arg value, now time.Time) (leaf, *failure) {
	switch op {
	case "$set", "$setOnInsert":
		return func(value) value { return arg }, nil
	case "$unset":
		return func(value) value { return value{} }, nil
	case "$currentDate":
		if arg.Type != bsoncore.TypeBoolean {
			panic(unknown("$currentDate: %v", arg))
		}
		return func(value) value { return date(now.UnixMilli()) }, nil
	case "$inc":
		if !numeric(arg) {
			return nil, failed(typeMismatch, "Cannot increment with non-numeric argument: {%s: %v}", path, arg)
		}
		return func(old value) value { return increment(path, old, arg) }, nil
	case "$min":
		return func(old value) value { return extreme(old, arg, -1) }, nil
	case "$max":
		return func(old value) value { return extreme(old, arg, 1) }, nil
	case "$push":
		return pushes(path, arg)
	}
	panic(unknown("the update %s: {%s: %v}", op, path, arg))
}

func extreme(old, arg value, sign int) value {
	if missing(old) || compare(arg, old)*sign > 0 {
		return arg
	}
	return old
}

// increment panics with the failure of a value that cannot be incremented.
func increment(path string, old, by value) value {
	if missing(old) {
		return by
	}
	if !numeric(old) {
		panic(failed(typeMismatch, "Cannot apply $inc to a value of non-numeric type: %s is of type %v", path, old.Type))
	}
	x, xWhole := whole(old)
	y, yWhole := whole(by)
	if !xWhole || !yWhole {
		return double(float(old) + float(by))
	}
	sum := x + y
	switch {
	case (sum > x) != (y > 0) && y != 0:
		panic(failed(badValue, "Failed to apply $inc operations to current value of %s: it overflows", path))
	case old.Type == bsoncore.TypeInt32 && by.Type == bsoncore.TypeInt32 && sum >= math.MinInt32 && sum <= math.MaxInt32:
		return int32Value(int32(sum))
	}
	return int64Value(sum)
}

func pushes(path string, arg value) (leaf, *failure) {
	pushed := []value{arg}
	if isOperators(arg) {
		each, ok := lookup(arg.Data, "$each")
		if !ok || len(elements(arg.Data)) > 1 {
			panic(unknown("$push: {%s: %v}", path, arg))
		}
		list, ok := each.ArrayOK()
		if !ok {
			return nil, failed(badValue, "The argument to $each in $push must be an array but it was of type: %v", each.Type)
		}
		pushed = valuesOf(list)
	}
	return func(old value) value {
		if !missing(old) && old.Type != bsoncore.TypeArray {
			panic(failed(badValue, "The field '%s' must be an array but is of type %v in document", path, old.Type))
		}
		return array(append(valuesOf(old.Data), pushed...))
	}, nil
}

// finish writes the end and the length of a document that has all its elements.
func finish(body []byte) []byte {
	body, _ = bsoncore.AppendDocumentEnd(body, 0)
	return body
}

// add puts a leaf at the end of a path, and returns that end.
func (c *change) add(path string, do leaf) (*change, *failure) {
	names := strings.Split(path, ".")
	for i, name := range names {
		if name == "$" || strings.HasPrefix(name, "$[") {
			panic(unknown("the positional path %s", path))
		}
		n, found := c.child(name)
		last := i == len(names)-1
		if found && (last || c.children[n].apply != nil) {
			return nil, failed(conflictingUpdate, "Updating the path '%s' would create a conflict at '%s'", path, strings.Join(names[:i+1], "."))
		}
		if !found {
			c.children = slices.Insert(c.children, n, &change{name: name})
		}
		c = c.children[n]
	}
	c.apply = do
	return c, nil
}

// set returns a document with a value at the end of a path.
func set(d document, path string, v value) (document, *failure) {
	c := &change{creates: true}
	if _, err := c.add(path, func(value) value { return v }); err != nil {
		return nil, err
	}
	return c.to(d), nil
}

// to returns a document after the change. It panics with a failure if the change cannot
// be made.
func (c *change) to(d []byte) []byte {
	became := make([]value, len(c.children)) // in their order, and so is the first failure
	for n, child := range c.children {
		old, _ := lookup(d, child.name)
		became[n] = child.of(old)
		if c.name == "" {
			c.check(child.name, old, became[n])
		}
	}
	out := []byte{0, 0, 0, 0}
	done := make([]bool, len(c.children))
	for _, e := range elements(d) {
		n, found := c.child(e.Key())
		if !found || done[n] {
			out = append(out, e...)
			continue
		}
		if done[n] = true; !missing(became[n]) {
			out = bsoncore.AppendValueElement(out, e.Key(), became[n])
		}
	}
	for n, child := range c.children {
		if !done[n] && !missing(became[n]) {
			out = bsoncore.AppendValueElement(out, child.name, became[n])
		}
	}
	return finish(out)
}

// check panics with the failure of a field of a document that must not become a value.
func (c *change) check(name string, old, v value) {
	switch {
	case name == "_id" && !missing(old) && (old.Type != v.Type || !bytes.Equal(old.Data, v.Data)):
		panic(failed(immutableField, "Performing an update on the path '_id' would modify the immutable field '_id'"))
	case strings.HasPrefix(name, "$") && !c.creates && missing(old) && !missing(v):
		panic(failed(dollarPrefixed, "The dollar ($) prefixed field '%s' is not valid for storage.", name))
	}
}

// child returns the place of a child, and whether it is there.
func (c *change) child(name string) (int, bool) {
	return slices.BinarySearchFunc(c.children, name, func(c *change, name string) int { return compareNames(c.name, name) })
}

// compareNames is the order in which MongoDB makes new fields: that of their bytes, and
// for two numbers that of the numbers.
func compareNames(a, b string) int {
	if isNumber(a) && isNumber(b) {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	}
	return strings.Compare(a, b)
}

func isNumber(name string) bool {
	return name == "0" || name != "" && name[0] != '0' && strings.Trim(name, "0123456789") == ""
}

// of returns a value after the change.
func (c *change) of(old value) value {
	switch {
	case c.apply != nil:
		return c.apply(old)
	case old.Type == bsoncore.TypeEmbeddedDocument:
		return value{Type: old.Type, Data: c.to(old.Data)}
	case missing(old):
		made := c.to(nil)
		if len(made) == 5 { // a removal makes nothing
			return value{}
		}
		return value{Type: bsoncore.TypeEmbeddedDocument, Data: made}
	case old.Type == bsoncore.TypeArray:
		return value{Type: old.Type, Data: c.toArray(old.Data)}
	case c.onlyRemoves():
		return old
	}
	panic(failed(pathNotViable, "Cannot create field '%s' in element {%s: %v}", c.children[0].name, c.name, old))
}

// toArray is to for an array, of which new elements may be behind a gap.
func (c *change) toArray(a []byte) []byte {
	of := valuesOf(a)
	for _, child := range c.children {
		i, err := strconv.Atoi(child.name)
		inside := err == nil && isNumber(child.name)
		switch {
		case child.onlyRemoves() && (!inside || i >= len(of)):
			continue
		case !inside:
			panic(failed(pathNotViable, "Cannot create field '%s' in element {%s: %v}", child.name, c.name, value{Type: bsoncore.TypeArray, Data: a}))
		}
		old := value{}
		if i < len(of) {
			old = of[i]
		}
		for len(of) <= i {
			of = append(of, null())
		}
		if of[i] = child.of(old); missing(of[i]) {
			of[i] = null()
		}
	}
	return array(of).Data
}

// onlyRemoves reports whether the change makes nothing.
func (c *change) onlyRemoves() bool {
	if c.apply != nil {
		return c.removes
	}
	return !slices.ContainsFunc(c.children, func(c *change) bool { return !c.onlyRemoves() })
}

// upsertBase is the document that an upsert applies its update to: what its filter
// demands to be equal.
func upsertBase(filter document) (document, *failure) {
	d := document(finish([]byte{0, 0, 0, 0}))
	for _, e := range equalities(filter) {
		var err *failure
		if d, err = set(d, e.Key(), e.Value()); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// idFirst returns the document with its _id in front, as it is stored.
func idFirst(d document, id value) document {
	if of := elements(d); len(of) > 0 && of[0].Key() == "_id" {
		return d
	}
	out := bsoncore.AppendValueElement([]byte{0, 0, 0, 0}, "_id", id)
	for _, e := range elements(d) {
		if e.Key() != "_id" {
			out = append(out, e...)
		}
	}
	return finish(out)
}

// updated returns a document after an update, or what is wrong with the update.
func updated(old document, u value, inserting bool, now time.Time) (out document, err *failure) {
	defer catch(&err)
	root, err := parseUpdate(u, inserting, now)
	switch id := at(old, "_id"); {
	case err != nil:
		return nil, err
	case root == nil && missing(id):
		out = u.Data
	case root == nil:
		out = idFirst(u.Data, id)
	default:
		out = root.to(old)
	}
	if was, is := at(old, "_id"), at(out, "_id"); !missing(was) && (was.Type != is.Type || !bytes.Equal(was.Data, is.Data)) {
		return nil, failed(immutableField, "Performing an update on the path '_id' would modify the immutable field '_id'")
	}
	return out, nil
}
