package load

import (
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A job is a request that is due.
type job struct {
	due   time.Duration       // since the run began
	first int64               // arrival, of a fleet
	count int                 // readings
	lines []telemetry.Reading // of a replay
	bytes int64               // that lines take, about
}

// A source says which request is due next, and what is in it. The dispatcher
// calls next, the recorder eventAt, rateAt and length, and any sender fill; the
// rest is for before and after the run.
type source interface {
	// next returns the next job, later than or as late as the one before; false
	// if there is none.
	next() (job, bool, error)
	// fill returns the readings of a job; they are valid until the next use of the
	// scratch.
	fill(j *job, m *scratch) []telemetry.Reading
	// length is how long readings are due, false if that is not known. At the end
	// of the run it is, unless that comes early.
	length() (time.Duration, bool)
	// eventAt returns event time, in ms since the epoch.
	eventAt(elapsed time.Duration) int64
	// rateAt returns the readings a second that are asked for, -1 if unknown.
	rateAt(elapsed time.Duration) float64
	// describe adds what is known now to the setup.
	describe(s *Setup)
	close() error
}

// fleetSource gives the arrivals of a fleet, batch by batch.
type fleetSource struct {
	*fleet

	batch    int64
	duration time.Duration
	end      time.Time // of event time
	arrival  int64     // the next
}

func newFleetSource(c *Config) *fleetSource {
	s := newSchedule(c.Rate, c.Duration, c.Steps)
	return &fleetSource{fleet: newFleet(c, s), batch: int64(c.Batch), duration: c.Duration, end: c.Start.Add(c.eventSpan())}
}

func (s *fleetSource) next() (job, bool, error) {
	count := min(s.batch, s.schedule.total-s.arrival)
	if count <= 0 {
		return job{}, false, nil
	}
	j := job{due: toDuration(s.schedule.due(s.arrival + count - 1)), first: s.arrival, count: int(count)}
	s.arrival += count
	return j, true, nil
}

func (s *fleetSource) fill(j *job, m *scratch) []telemetry.Reading {
	s.fleet.fill(m, j.first, j.count)
	return m.readings
}

func (s *fleetSource) length() (time.Duration, bool) { return s.duration, true }

func (s *fleetSource) eventAt(elapsed time.Duration) int64 {
	return int64(s.begin + elapsed.Seconds()*s.perSecond)
}

func (s *fleetSource) rateAt(elapsed time.Duration) float64 {
	if elapsed > s.duration {
		return 0
	}
	return s.schedule.rateAt(elapsed.Seconds())
}

func (s *fleetSource) describe(to *Setup) {
	to.Sensors = len(s.sensors)
	to.EventStart, to.EventEnd = time.UnixMilli(int64(s.begin)).UTC(), s.end
}

func (*fleetSource) close() error { return nil }
