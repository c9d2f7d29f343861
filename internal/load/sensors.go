package load

import (
	"fmt"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Sensors makes the readings that sensors of a run would send, for those who
// want them without a run: to fill collections beforehand, or by another way
// than the daemon's. What a reading holds follows from the seed, the sensor and
// the reading's number alone. It is read-only.
type Sensors struct {
	signal     Signal
	quantities []quantity
	all        []sensor
}

// SensorsConfig says what sensors there are.
type SensorsConfig struct {
	Count  int    // at least 1
	Fields int    // of a reading; 0: 4
	Signal Signal // empty: Mixed
	Seed   uint64
	Prefix string // before the number, from 1, in a sensor's id
}

// NewSensors returns sensors, with the tags that a run gives them.
func NewSensors(c SensorsConfig) (*Sensors, error) {
	if c.Count < 1 || c.Fields < 0 || c.Fields > telemetry.MaxFields {
		return nil, fmt.Errorf("make sensors: %d sensors with %d fields; allowed are at least 1, and up to %d fields", c.Count, c.Fields, telemetry.MaxFields)
	}
	if c.Fields == 0 {
		c.Fields = len(named)
	}
	if c.Signal == "" {
		c.Signal = Mixed
	}
	s := &Sensors{signal: c.Signal, quantities: quantities(c.Fields), all: make([]sensor, c.Count)}
	seed, tags := random(c.Seed).split(0), siteTags()
	for i := range s.all {
		r := seed.split(uint64(i))
		s.all[i] = sensor{id: c.Prefix + strconv.Itoa(i+1), random: r, tags: tags[r.at(1)%uint64(len(tags))]}
	}
	return s, nil
}

// Len is the number of sensors.
func (s *Sensors) Len() int { return len(s.all) }

// ID is that of sensor i, from 0.
func (s *Sensors) ID(i int) string { return s.all[i].id }

// Tags are those of sensor i. They are shared.
func (s *Sensors) Tags(i int) []telemetry.Tag { return s.all[i].tags }

// AppendFields appends the fields of reading k of sensor i, measured at a time.
func (s *Sensors) AppendFields(dst []telemetry.Field, i int, k uint64, at time.Time) []telemetry.Field {
	for q := range s.quantities {
		dst = append(dst, s.quantities[q].field(&s.all[i], s.signal, q, k, at.UnixMilli()))
	}
	return dst
}
