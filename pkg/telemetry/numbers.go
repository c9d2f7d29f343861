package telemetry

import (
	"cmp"
	"math"
)

// CompareNumbers compares integers and doubles by value, without rounding large
// integers, in MongoDB's order.
func CompareNumbers(a, b Value) int {
	switch aInt, bInt := a.Kind() == Int, b.Kind() == Int; {
	case aInt && bInt:
		return cmp.Compare(a.Int(), b.Int())
	case aInt:
		return compareMixed(a.Int(), b.Float())
	case bInt:
		return -compareMixed(b.Int(), a.Float())
	default:
		return cmp.Compare(a.Float(), b.Float())
	}
}

func compareMixed(i int64, f float64) int {
	const beyond = 1 << 63 // the least double above all integers
	switch {
	case f >= beyond:
		return -1
	case f < -beyond:
		return 1
	}
	whole := math.Trunc(f)
	return cmp.Or(cmp.Compare(i, int64(whole)), cmp.Compare(whole, f))
}
