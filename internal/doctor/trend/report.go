package trend

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// A Report is what was seen.
type Report struct {
	Prometheus string       `json:"prometheus"` // its address, without user and password
	Selector   string       `json:"selector"`
	From       time.Time    `json:"from"` // as asked for
	To         time.Time    `json:"to"`
	Seen       Seen         `json:"seen"`
	Instances  []Instance   `json:"instances"`
	DiskKind   string       `json:"disk_kind"` // as the last that was seen; decides on the latency's thresholds
	Class      doctor.Class `json:"class"`     // the worst of the signals at the end; unknown if none was seen
	Series     []*Series    `json:"series"`    // writes and what is written, then the signals
	Words      []string     `json:"words"`     // what it all says
}

// Seen tells how much of the span there is.
type Seen struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Days     number    `json:"days"`    // with figures
	OfDays   number    `json:"of_days"` // asked for
	Gaps     []Gap     `json:"gaps"`    // between the first and the last figure
	Restarts int       `json:"restarts"`
}

// A Gap is a time without figures.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// An Instance is a daemon as Prometheus knows it.
type Instance struct {
	Job      string `json:"job"`
	Instance string `json:"instance"`
}

// A Series is one thing that was looked at.
type Series struct {
	Name        string            `json:"name"`
	Title       string            `json:"title"`
	Unit        string            `json:"unit"`
	Signal      bool              `json:"signal"` // one of the doctor's
	Begin       number            `json:"begin"`  // medians of the first and the last tenth
	Now         number            `json:"now"`
	PerWeek     number            `json:"per_week"` // of the line, null without a trend
	Trend       Direction         `json:"trend"`
	Recent      bool              `json:"recent,omitempty"` // the line is that of the last half, which goes its own way
	Why         string            `json:"why,omitempty"`    // nothing, or too little, was seen
	Class       doctor.Class      `json:"class"`            // at the end; unknown if there is no threshold
	Threshold   *doctor.Threshold `json:"threshold,omitempty"`
	Source      string            `json:"source,omitempty"` // of the threshold
	Degrading   *Crossing         `json:"degrading,omitempty"`
	Bottleneck  *Crossing         `json:"bottleneck,omitempty"`
	Correlation number            `json:"correlation"` // of ranks, with the writes' p99; null: cannot be told
	Points      []Point           `json:"points"`      // medians of the blocks

	rule  *doctor.Signal
	index []int // of the points' blocks
}

// A Point is the median of a block.
type Point struct {
	At    time.Time `json:"at"`
	Value number    `json:"value"`
}

// A number is null in JSON when it is not known.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

const whyNothing = "nothing was seen of it"

// judge says where a series goes.
func (s *Series) judge(g grid, blocks layout, now time.Time) {
	var points []point
	points, s.index = g.blocks(blocks)
	begin, end := g.ends(blocks)
	s.Begin, s.Now, s.PerWeek, s.Trend = number(begin), number(end), number(math.NaN()), Unsure
	s.Points = make([]Point, len(points))
	for i, p := range points {
		s.Points[i] = Point{At: p.at, Value: number(p.value)}
	}
	if math.IsNaN(end) {
		if s.Why == "" {
			s.Why = whyNothing
		}
		return
	}
	scale := 0.0
	if s.rule != nil {
		scale = s.rule.Threshold.Degrading
	}
	var l line
	if l, s.Trend, s.Recent = directNow(points, scale); s.Trend == Unsure {
		s.Why = fmt.Sprintf("too little was seen for a trend: %d blocks of %d", len(points), leastBlocks)
	} else if s.Trend != Flat {
		s.PerWeek = number(l.perSecond * week.Seconds())
	}
	if s.rule != nil {
		s.Class = s.rule.At(end).Class
		s.Degrading, s.Bottleneck = s.crossings(points, l, now)
	}
}

// find returns a series by its name.
func (r *Report) find(name string) *Series {
	for _, s := range r.Series {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// conclude puts the series beside each other.
func (r *Report) conclude() {
	p99 := r.find(writeP99)
	r.Class = doctor.Unknown
	for _, s := range r.Series {
		if s != p99 {
			s.Correlation = number(together(s, p99))
		}
		if s.Signal {
			r.Class = max(r.Class, s.Class)
		}
	}
	r.Words = r.words()
}
