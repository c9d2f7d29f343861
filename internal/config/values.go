package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// The functions below make setters: each parses the text of one setting and stores the
// value, or returns an error that says what is allowed. The caller adds the setting's name.

// Text accepts any text that passes check.
func Text(place *string, check func(string) error) func(string) error {
	return func(s string) error {
		if check != nil {
			if err := check(s); err != nil {
				return err
			}
		}
		*place = s
		return nil
	}
}

// Choice returns a setter of a value that is one of those allowed.
func Choice[T ~string](place *T, allowed ...T) func(string) error {
	return func(s string) error {
		if !slices.Contains(allowed, T(s)) {
			names := make([]string, len(allowed))
			for i, a := range allowed {
				names[i] = string(a)
			}
			return fmt.Errorf("%q is unknown%s; allowed: %s", s, DidYouMean("", s, names), strings.Join(names, ", "))
		}
		*place = T(s)
		return nil
	}
}

// Count accepts a whole number from least to most.
func Count[T ~int | ~float64](place *T, least, most int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a whole number from %d to %d", s, least, most)
		}
		*place = T(n)
		return nil
	}
}

// Number accepts a number from least to most, which may be a fraction.
func Number(place *float64, least, most float64) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v >= least && v <= most) {
			return fmt.Errorf("%q is not a number from %s to %s", s, strconv.FormatFloat(least, 'f', -1, 64), strconv.FormatFloat(most, 'f', -1, 64))
		}
		*place = v
		return nil
	}
}

// Size accepts bytes like 256KiB, 1GB or 4096 from least to most, and 0 if zero is set.
func Size[T ~int | ~int64](place *T, least, most int64, zero bool) func(string) error {
	return func(s string) error {
		n, err := humanize.ParseBytes(s)
		if err == nil && n == 0 && zero {
			*place = 0
			return nil
		}
		if err != nil || n > math.MaxInt64 || int64(n) < least || int64(n) > most {
			return fmt.Errorf("%q is %s from %s to %s, written like 256KiB or 4GiB", s, noneOf("size", zero), FormatSize(least), FormatSize(most))
		}
		*place = T(n)
		return nil
	}
}

// noneOf says that a text is not of a kind, and not 0 either where that is allowed.
func noneOf(kind string, zero bool) string {
	if zero {
		return "neither 0 nor a " + kind
	}
	return "not a " + kind
}

// FormatSize writes bytes as size reads them, in the largest unit that needs no
// fraction.
func FormatSize(n int64) string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if of := int64(1) << (40 - 10*i); n >= of && n%of == 0 {
			return strconv.FormatInt(n/of, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// Duration accepts a duration like 90s, 5m or 30d from least to most, and 0 if zero is set.
func Duration(place *time.Duration, least, most time.Duration, zero bool) func(string) error {
	return func(s string) error {
		d, err := ParseDuration(s)
		if err == nil && d == 0 && zero {
			*place = 0
			return nil
		}
		if err != nil || d < least || d > most {
			return fmt.Errorf("%q is %s from %s to %s, written as %s", s, noneOf("duration", zero), FormatDuration(least), FormatDuration(most), DurationForms)
		}
		*place = d
		return nil
	}
}

// Address accepts HOST:PORT; port 0 means any free port.
func Address(place *string) func(string) error {
	return func(s string) error {
		host, port, err := net.SplitHostPort(s)
		if err == nil && strings.ContainsAny(host, " /@") {
			err = errors.New("no host")
		}
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return fmt.Errorf("%q is not HOST:PORT, like 127.0.0.1:8430, or :8430 for every interface", s)
		}
		*place = s
		return nil
	}
}

// Percent sets a share, 1 for 100%, from a percentage with or without the sign.
func Percent(place *float64, most float64) func(string) error {
	return func(text string) error {
		v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		if err != nil || !(v >= 0 && v <= most) {
			return fmt.Errorf("%q is not a percentage from 0%% to %v%%, like 2%%", text, most)
		}
		*place = v / 100
		return nil
	}
}
