package lane

import (
	"fmt"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An openShare is the share that a portion's next reading goes into.
type openShare struct {
	share *batch.Share
	of    *sensor
}

// fill makes the shares of a write. As in the daemon, the readings of a share
// come from as many requests, each of which has the next one of all sensors.
func (l *Lane) fill(portions []Portion) error {
	s := &l.sending
	s.shares, s.of, s.open = s.shares[:0], s.of[:0], s.open[:0]
	most := 0
	for _, p := range portions {
		s.open = append(s.open, openShare{of: l.sensor(p.Sensor)})
		most = max(most, p.Count)
	}
	for step := range most {
		b, err := l.request(portions, step)
		if err != nil {
			return err
		}
		index := uint32(0)
		for i, p := range portions {
			if step >= p.Count {
				continue
			}
			start, open := l.windowStart(p.Sensor, p.First+uint64(step)), &s.open[i] //nolint:gosec // counts from 0
			if open.share == nil || open.share.Start != start {
				open.share = l.share(p.Sensor, open.of, start)
			}
			open.share.Rows = append(open.share.Rows, batch.Ref{Batch: b, Index: index})
			index++
		}
	}
	return nil
}

// request is reading number step of each portion that has so many, as the door
// hands them on and the journal numbers them.
func (l *Lane) request(portions []Portion, step int) (*batch.Batch, error) {
	b := l.interner.Builder(time.Now())
	index := 0
	for i, p := range portions {
		if step >= p.Count {
			continue
		}
		b.Begin(l.cfg.Stream, index, telemetry.TimeRange{Newest: math.MaxInt64})
		of := l.sending.open[i].of
		if of.series != nil {
			b.SameSeries(of.series)
		} else {
			b.Sensor([]byte(l.cfg.Source.ID(p.Sensor)))
			for _, tag := range l.cfg.Source.Tags(p.Sensor) {
				b.Tag([]byte(tag.Name), []byte(tag.Value))
			}
		}
		k := p.First + uint64(step) //nolint:gosec // counts from 0
		at := l.timeOf(p.Sensor, k)
		b.Time(at.UnixMilli())
		l.fields = l.cfg.Source.AppendFields(l.fields[:0], p.Sensor, k, at)
		for _, f := range l.fields {
			b.Add(f)
		}
		if refusal := b.End(); refusal != nil {
			b.Release()
			return nil, fmt.Errorf("make a reading: %w", refusal)
		}
		of.series = b.LastSeries()
		index++
	}
	made := b.Batch()
	made.Session, made.FirstSeq = l.session, l.next
	l.next += uint64(index) //nolint:gosec // counts from 0
	return made, nil
}
