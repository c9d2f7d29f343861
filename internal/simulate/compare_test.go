package simulate

import (
	"bytes"
	"cmp"
	"math"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// value is one BSON value. The zero value stands for a missing one.
type value = bsoncore.Value

// document is a BSON document. It is never changed once it was stored.
type document = bsoncore.Document

func missing(v value) bool { return v.Type == 0 }

// rank orders the types of BSON as MongoDB does: values of different ranks compare by
// rank, and a range in a filter matches values of the rank of its bound alone.
func rank(t bsoncore.Type) int {
	switch t {
	case bsoncore.TypeMinKey:
		return -1
	case 0:
		return 0
	case bsoncore.TypeNull, bsoncore.TypeUndefined:
		return 5
	case bsoncore.TypeInt32, bsoncore.TypeInt64, bsoncore.TypeDouble:
		return 10
	case bsoncore.TypeString, bsoncore.TypeSymbol:
		return 15
	case bsoncore.TypeEmbeddedDocument:
		return 20
	case bsoncore.TypeArray:
		return 25
	case bsoncore.TypeBinary:
		return 30
	case bsoncore.TypeObjectID:
		return 35
	case bsoncore.TypeBoolean:
		return 40
	case bsoncore.TypeDateTime:
		return 45
	case bsoncore.TypeTimestamp:
		return 47
	case bsoncore.TypeMaxKey:
		return 127
	}
	panic(unknown("values of type %v", t))
}

// compare is MongoDB's order of values.
func compare(a, b value) int {
	if c := cmp.Compare(rank(a.Type), rank(b.Type)); c != 0 {
		return c
	}
	switch a.Type {
	case bsoncore.TypeInt32, bsoncore.TypeInt64, bsoncore.TypeDouble:
		return compareNumbers(a, b)
	case bsoncore.TypeString, bsoncore.TypeSymbol:
		return strings.Compare(text(a), text(b))
	case bsoncore.TypeEmbeddedDocument, bsoncore.TypeArray:
		return compareDocuments(a.Data, b.Data)
	case bsoncore.TypeBinary:
		aKind, aData := a.Binary()
		bKind, bData := b.Binary()
		return cmp.Or(cmp.Compare(len(aData), len(bData)), cmp.Compare(aKind, bKind), bytes.Compare(aData, bData))
	case bsoncore.TypeObjectID, bsoncore.TypeBoolean:
		return bytes.Compare(a.Data, b.Data)
	case bsoncore.TypeDateTime:
		return cmp.Compare(a.DateTime(), b.DateTime())
	case bsoncore.TypeTimestamp:
		at, ai := a.Timestamp()
		bt, bi := b.Timestamp()
		return cmp.Or(cmp.Compare(at, bt), cmp.Compare(ai, bi))
	}
	return 0 // the others have one value each
}

func text(v value) string {
	s, _, _ := bsoncore.ReadString(v.Data)
	return s
}

// compareDocuments compares element by element: types first, then names, then values.
// Arrays are documents of which the names are numbers.
func compareDocuments(a, b document) int {
	if bytes.Equal(a, b) {
		return 0
	}
	for x, y := a[4:], b[4:]; ; {
		switch {
		case len(x) <= 1 && len(y) <= 1:
			return 0
		case len(x) <= 1:
			return -1
		case len(y) <= 1:
			return 1
		}
		var e, f bsoncore.Element
		e, x = firstElement(x)
		f, y = firstElement(y)
		of, with := e.Value(), f.Value()
		if c := cmp.Or(cmp.Compare(rank(of.Type), rank(with.Type)), bytes.Compare(e.KeyBytes(), f.KeyBytes())); c != 0 {
			return c
		}
		if c := compare(of, with); c != 0 {
			return c
		}
	}
}

func firstElement(of []byte) (e bsoncore.Element, rest []byte) {
	e, rest, ok := bsoncore.ReadElement(of)
	if !ok {
		panic("simulate: BSON is damaged")
	}
	return e, rest
}

// elements returns the elements of a document, whose bytes they share.
func elements(d []byte) (out []bsoncore.Element) {
	if len(d) < 5 {
		return nil
	}
	for rest := d[4:]; len(rest) > 1; {
		var e bsoncore.Element
		e, rest = firstElement(rest)
		out = append(out, e)
	}
	return out
}

// valuesOf returns the values of a document or an array.
func valuesOf(d []byte) (out []value) {
	for _, e := range elements(d) {
		out = append(out, e.Value())
	}
	return out
}

// array makes an array.
func array(of []value) value {
	body := []byte{0, 0, 0, 0}
	for i, v := range of {
		body = bsoncore.AppendValueElement(body, strconv.Itoa(i), v)
	}
	return value{Type: bsoncore.TypeArray, Data: finish(body)}
}

func numeric(v value) bool { return rank(v.Type) == 10 }

func whole(v value) (int64, bool) {
	switch v.Type {
	case bsoncore.TypeInt32:
		return int64(v.Int32()), true
	case bsoncore.TypeInt64:
		return v.Int64(), true
	}
	return 0, false
}

func float(v value) float64 {
	if n, ok := whole(v); ok {
		return float64(n)
	}
	return v.Double()
}

// compareNumbers compares by value, whatever the types; NaN is the least number.
func compareNumbers(a, b value) int {
	x, xWhole := whole(a)
	y, yWhole := whole(b)
	switch {
	case xWhole && yWhole:
		return cmp.Compare(x, y)
	case xWhole:
		return compareWhole(x, b.Double())
	case yWhole:
		return -compareWhole(y, a.Double())
	}
	return cmp.Compare(a.Double(), b.Double())
}

func compareWhole(n int64, f float64) int {
	switch {
	case math.IsNaN(f) || f < math.MinInt64:
		return 1
	case f >= -math.MinInt64:
		return -1
	}
	t := math.Trunc(f)
	return cmp.Or(cmp.Compare(n, int64(t)), cmp.Compare(t, f))
}
