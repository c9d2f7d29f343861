package checkpoint

import "time"

// A Law tells what a load writes to the files with any interval: at each
// checkpoint so much however long it was since the last, and so much for each
// second. It holds for intervals in which each bucket gets several updates.
type Law struct {
	Once      float64 `json:"bytes_per_checkpoint"`
	PerSecond float64 `json:"bytes_per_second"`
}

// LawOf fits what was written, without the journal, by least squares over the
// medians of the intervals; the zero Law with fewer than two.
func LawOf(costs []*Cost) Law {
	var n, x, y, xx, xy float64
	for _, c := range costs {
		if len(c.Periods) == 0 {
			continue
		}
		t := c.Seconds
		w := c.BytesPerHour().Median() / 3600 * t
		n, x, y, xx, xy = n+1, x+t, y+w, xx+t*t, xy+t*w
	}
	spread := n*xx - x*x
	if n < 2 || spread <= 0 {
		return Law{}
	}
	slope := (n*xy - x*y) / spread
	switch once := (y - slope*x) / n; {
	case slope < 0: // nothing hangs on the time
		return Law{Once: y / n}
	case once < 0: // nothing hangs on the checkpoint
		return Law{PerSecond: xy / xx}
	default:
		return Law{Once: once, PerSecond: slope}
	}
}

// BytesPerHour are those written to the files with an interval.
func (l Law) BytesPerHour(interval time.Duration) float64 {
	return 3600 * (l.Once/interval.Seconds() + l.PerSecond)
}

// known reports whether there was enough to fit.
func (l Law) known() bool { return l.Once > 0 || l.PerSecond > 0 }
