package simulate

import (
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

func boolean(b bool) value {
	return value{Type: bsoncore.TypeBoolean, Data: bsoncore.AppendBoolean(nil, b)}
}

func int64Value(n int64) value {
	return value{Type: bsoncore.TypeInt64, Data: bsoncore.AppendInt64(nil, n)}
}

func int32Value(n int32) value {
	return value{Type: bsoncore.TypeInt32, Data: bsoncore.AppendInt32(nil, n)}
}

func double(f float64) value {
	return value{Type: bsoncore.TypeDouble, Data: bsoncore.AppendDouble(nil, f)}
}

func date(ms int64) value {
	return value{Type: bsoncore.TypeDateTime, Data: bsoncore.AppendDateTime(nil, ms)}
}

func null() value { return value{Type: bsoncore.TypeNull} }

func stringValue(s string) value {
	return value{Type: bsoncore.TypeString, Data: bsoncore.AppendString(nil, s)}
}

func nothing(v value) bool {
	return missing(v) || v.Type == bsoncore.TypeNull || v.Type == bsoncore.TypeUndefined
}

// truth is how MongoDB takes a value for a condition.
func truth(v value) bool {
	switch {
	case nothing(v):
		return false
	case v.Type == bsoncore.TypeBoolean:
		return v.Boolean()
	case numeric(v):
		return float(v) != 0
	}
	return true
}

// evaluate computes an expression of aggregations for a document: paths, $$NOW,
// $$REMOVE, $and, $cond, $ifNull, $in, comparisons, $size, $add, $multiply, $subtract, $mod,
// $toLong, arrays, and literals.
func evaluate(expr value, d document, now time.Time) value {
	switch expr.Type {
	case bsoncore.TypeString:
		return evaluatePath(text(expr), d, now)
	case bsoncore.TypeEmbeddedDocument:
		of := elements(expr.Data)
		if len(of) == 1 && strings.HasPrefix(of[0].Key(), "$") {
			return evaluateOperator(of[0].Key(), of[0].Value(), d, now)
		}
		panic(unknown("the expression %v", expr))
	case bsoncore.TypeArray:
		of := valuesOf(expr.Data)
		for i := range of {
			if of[i] = evaluate(of[i], d, now); missing(of[i]) {
				of[i] = null()
			}
		}
		return array(of)
	}
	return expr
}

func evaluatePath(s string, d document, now time.Time) value {
	switch {
	case s == "$$NOW":
		return date(now.UnixMilli())
	case s == "$$REMOVE":
		return value{}
	case strings.HasPrefix(s, "$$"):
		panic(unknown("the variable %s", s))
	case strings.HasPrefix(s, "$"):
		return along(value{Type: bsoncore.TypeEmbeddedDocument, Data: d}, strings.Split(s[1:], "."))
	}
	return stringValue(s)
}

// along follows a path. Through an array it leads to the array of what is there in each of
// its elements.
func along(v value, path []string) value {
	if len(path) == 0 {
		return v
	}
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument:
		next, _ := lookup(v.Data, path[0])
		return along(next, path[1:])
	case bsoncore.TypeArray:
		var found []value
		for _, one := range valuesOf(v.Data) {
			if one = along(one, path); !missing(one) {
				found = append(found, one)
			}
		}
		return array(found)
	}
	return value{}
}

func evaluateOperator(op string, operands value, d document, now time.Time) value {
	args := []value{operands}
	if operands.Type == bsoncore.TypeArray {
		args = valuesOf(operands.Data)
	}
	arg := func(i int) value { return evaluate(args[i], d, now) }
	switch op {
	case "$and":
		for i := range args {
			if !truth(arg(i)) {
				return boolean(false)
			}
		}
		return boolean(true)
	case "$cond":
		if truth(arg(0)) {
			return arg(1)
		}
		return arg(2)
	case "$ifNull":
		if v := arg(0); !nothing(v) {
			return v
		}
		return arg(1)
	case "$in":
		of := arg(0)
		return boolean(slices.ContainsFunc(valuesOf(arg(1).Data), func(v value) bool { return compare(of, v) == 0 }))
	case "$eq":
		return boolean(compare(arg(0), arg(1)) == 0)
	case "$ne":
		return boolean(compare(arg(0), arg(1)) != 0)
	case "$gt":
		return boolean(compare(arg(0), arg(1)) > 0)
	case "$gte":
		return boolean(compare(arg(0), arg(1)) >= 0)
	case "$lt":
		return boolean(compare(arg(0), arg(1)) < 0)
	case "$lte":
		return boolean(compare(arg(0), arg(1)) <= 0)
	case "$size":
		v := arg(0)
		if v.Type != bsoncore.TypeArray {
			panic(failed(17124, "The argument to $size must be an array, but was of type: %v", v.Type))
		}
		return int32Value(int32(len(elements(v.Data))))
	case "$add":
		return add(arg(0), arg(1))
	case "$multiply":
		return multiply(arg(0), arg(1))
	case "$subtract":
		return subtract(arg(0), arg(1))
	case "$mod":
		return modulo(arg(0), arg(1))
	case "$toLong":
		switch v := arg(0); {
		case nothing(v):
			return null()
		case v.Type == bsoncore.TypeDateTime:
			return int64Value(v.DateTime())
		case v.Type == bsoncore.TypeDouble:
			return int64Value(int64(v.Double()))
		default:
			if n, ok := whole(v); ok {
				return int64Value(n)
			}
		}
	}
	panic(unknown("the expression %s: %v", op, operands))
}

func add(a, b value) value {
	x, xWhole := whole(a)
	y, yWhole := whole(b)
	switch {
	case nothing(a) || nothing(b):
		return null()
	case a.Type == bsoncore.TypeDateTime && yWhole:
		return date(a.DateTime() + y)
	case xWhole && yWhole:
		return int64Value(x + y)
	}
	panic(unknown("$add of %v and %v", a, b))
}

func multiply(a, b value) value {
	x, xWhole := whole(a)
	y, yWhole := whole(b)
	switch {
	case nothing(a) || nothing(b):
		return null()
	case xWhole && yWhole:
		return int64Value(x * y)
	}
	panic(unknown("$multiply of %v and %v", a, b))
}

func subtract(a, b value) value {
	x, xWhole := whole(a)
	y, yWhole := whole(b)
	switch {
	case nothing(a) || nothing(b):
		return null()
	case a.Type == bsoncore.TypeDateTime && yWhole:
		return date(a.DateTime() - y)
	case a.Type == bsoncore.TypeDateTime && b.Type == bsoncore.TypeDateTime:
		return int64Value(a.DateTime() - b.DateTime())
	case xWhole && yWhole:
		return int64Value(x - y)
	}
	panic(unknown("$subtract of %v and %v", a, b))
}

func modulo(a, b value) value {
	x, xWhole := whole(a)
	y, yWhole := whole(b)
	switch {
	case nothing(a) || nothing(b):
		return null()
	case xWhole && yWhole && y != 0:
		return int64Value(x % y)
	case numeric(a) && numeric(b) && float(b) != 0:
		return double(math.Mod(float(a), float(b)))
	}
	panic(unknown("$mod of %v and %v", a, b))
}
