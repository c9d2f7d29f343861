package chart

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unit Unit
		v    float64
		want string
	}{
		{Seconds, 0, "0 s"},
		{Seconds, 0.00085, "850 µs"},
		{Seconds, 0.0012, "1.2 ms"},
		{Seconds, 0.0012345, "1.23 ms"},
		{Seconds, 0.0009999, "1 ms"},
		{Seconds, 0.25, "250 ms"},
		{Seconds, 1, "1 s"},
		{Seconds, 59.96, "60 s"},
		{Seconds, 119, "119 s"},
		{Seconds, 150, "2.5 min"},
		{Seconds, 3600, "60 min"},
		{Seconds, 7200, "2 h"},
		{Seconds, 259200, "3 d"},
		{Seconds, -0.5, "-500 ms"},
		{PerSecond, 0, "0/s"},
		{PerSecond, 0.25, "0.25/s"},
		{PerSecond, 2004, "2,004/s"},
		{PerSecond, 12345, "12.3k/s"},
		{PerSecond, 1234567, "1.23M/s"},
		{Ratio, 0.45, "45 %"},
		{Ratio, 0.999, "99.9 %"},
		{Ratio, 1, "100 %"},
		{Ratio, 0, "0 %"},
		{Bytes, 0, "0 B"},
		{Bytes, 1023, "1,023 B"},
		{Bytes, 1.2 * (1 << 30), "1.2 GiB"},
		{Bytes, 256 << 10, "256 KiB"},
		{Bytes, 1 << 30, "1 GiB"},
		{DecimalBytes, 999, "999 B"},
		{DecimalBytes, 2400, "2.4 KB"},
		{DecimalBytes, 6.72e9, "6.72 GB"},
		{Count, 0, "0"},
		{Count, 1234, "1,234"},
		{Count, 123456, "123k"},
		{Count, 9999.6, "10k"},
		{Count, math.NaN(), "–"},
		{Count, math.Inf(1), "–"},
	} {
		assert.Equal(t, c.want, Format(c.unit, c.v), "%v", c.v)
	}
}
