package storage

import (
	"math"
	"strconv"
)

// A number may be unknown, NaN, which is null in JSON.
type number float64

func unknown() number { return number(math.NaN()) }

func (n number) known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// MarshalJSON writes null for what is not known.
func (n number) MarshalJSON() ([]byte, error) {
	if !n.known() {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 64), nil
}
