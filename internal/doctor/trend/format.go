package trend

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// unknown stands for what is not known.
const unknown = "-"

// amount writes a value with its unit to three digits, or all before the point.
func amount(v float64, unit string) string {
	switch {
	case math.IsNaN(v):
		return unknown
	case unit == "bytes":
		return size(v)
	case unit == "" || unit == "documents": // the title says it
		return digits(v)
	default:
		return digits(v) + " " + unit
	}
}

func size(v float64) string {
	const kibi = 1024
	sign := ""
	if v < 0 {
		sign, v = "-", -v
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for ; v >= kibi && i < len(units)-1; i++ {
		v /= kibi
	}
	return sign + digits(v) + " " + units[i]
}

func digits(v float64) string {
	const least, three = 1e-3, 3
	if math.Abs(v) < least {
		return "0"
	}
	if math.Abs(v) >= 100 {
		return humanize.Comma(int64(math.Round(v)))
	}
	text := strconv.FormatFloat(v, 'g', three, 64)
	if strings.ContainsRune(text, 'e') {
		text = strconv.FormatFloat(v, 'f', three, 64)
	}
	return text
}

// growth writes how much larger now is than begin, as in +40 %, and as in 4.2
// times from three times on.
func growth(begin, now float64) string {
	const large = 3
	ratio := now / begin
	if ratio >= large {
		return digits(ratio) + " times"
	}
	text := strconv.FormatFloat(100*(ratio-1), 'f', 0, 64)
	switch {
	case text == "0" || text == "-0":
		return "±0 %"
	case text[0] != '-':
		text = "+" + text
	}
	return text + " %"
}

// A calendar writes moments as short as a span allows. Times are UTC.
type calendar struct {
	now  time.Time
	fine bool // the span is short: hours matter
}

func (c calendar) write(at time.Time) string {
	at = at.UTC()
	form := "2 Jan"
	if at.Year() != c.now.Year() {
		form += " 2006"
	}
	if c.fine {
		form += " 15:04"
	}
	return at.Format(form)
}

// blocksOf are the signs of a sparkline, from low to high.
const blocksOf = "▁▂▃▄▅▆▇█"

// sparkline draws values between their least and their most, but what moves by
// less than a tenth of itself with as little movement. A gap is a space.
func sparkline(values []float64, width int) string {
	signs := []rune(blocksOf)
	low, high := math.Inf(1), math.Inf(-1)
	cells := make([]float64, min(width, len(values)))
	for i := range cells {
		from, to := i*len(values)/len(cells), (i+1)*len(values)/len(cells)
		cells[i] = median(known(values[from:to]))
		if !math.IsNaN(cells[i]) {
			low, high = min(low, cells[i]), max(high, cells[i])
		}
	}
	const least = 0.1
	middle, height := (low+high)/2, max(high-low, least*max(math.Abs(low), math.Abs(high)))
	var b strings.Builder
	for _, v := range cells {
		switch {
		case math.IsNaN(v):
			b.WriteByte(' ')
		case height == 0:
			b.WriteRune(signs[0])
		default:
			share := (v-middle)/height + 0.5
			b.WriteRune(signs[max(0, min(int(share*float64(len(signs))), len(signs)-1))])
		}
	}
	return b.String()
}

// wrap breaks a sentence into lines, of which all but the first are indented.
func wrap(text string, width int) string {
	const indent = "  "
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+n > width:
			b.WriteString("\n" + indent)
			used = len(indent)
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}
