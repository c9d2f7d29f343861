package console

import (
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/chart"
)

// state is whether readings are taken and stored, and what does not work.
type state struct {
	Class string // healthy, degrading or bottleneck
	Words string
	Parts []Part // that are not ready
}

// leastLate is the age of a reading that is not stored from which on that is
// said first: no round trip to a MongoDB that is well takes so long.
const leastLate = 10 * time.Second

// late is when a reading should have been stored long since: it may wait for
// as long as readings are gathered for one update, and a few times that.
func (c *Config) late() time.Duration { return max(leastLate, 3*c.FlushInterval) }

// state tells from the parts whether readings are taken, and from the metrics
// whether they are stored: a MongoDB that hangs keeps all of its connections.
func (g *glance) state(parts []Part, late time.Duration) state {
	s := state{Class: Healthy, Words: "Readings are taken and stored"}
	taken := "Readings are taken"
	if slices.ContainsFunc(parts, func(p Part) bool { return p.Optional }) {
		taken += " into the journal" // for where else?
	}
	degrade := func(words string) {
		if s.Class == Healthy {
			s.Class, s.Words = Degrading, taken+words
		}
	}
	for _, p := range parts {
		if !p.Ready && !p.Optional {
			s.Class, s.Words = Bottleneck, "No readings can be taken"
		}
		if !p.Ready {
			s.Parts = append(s.Parts, p)
		}
	}
	if oldest := g.newest(func(x *second) float32 { return x.Oldest }); oldest > late.Seconds() {
		degrade("; the oldest has waited " + chart.Format(chart.Seconds, oldest) + " to be stored")
	}
	if len(s.Parts) > 0 {
		degrade("; not all can be stored at present")
	}
	if g.last.Value(metricUp, nil) == 0 {
		degrade("; MongoDB does not answer")
		s.Parts = append(s.Parts, Part{Name: "health of MongoDB", Reason: "it was asked and did not answer"})
	}
	if aside := g.last.Value(metricSetAside, nil); aside > 0 {
		degrade("; not all can be stored at present")
		s.Parts = append(s.Parts, Part{Name: "set aside", Reason: chart.Format(chart.Count, aside) + " buckets cannot be written while others can"})
	}
	return s
}
