package journal

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
)

// Before a sensor is deleted, its readings are stored, while older readings of other sensors
// may still be waiting. A later process must not store the deleted readings again. So a
// separate file records up to which position the sensor's readings are stored, until
// everything before that position is stored.

// trimmedName is the file with the trimmed sensors.
const trimmedName = "trimmed-sensors"

// maxTrimmed bounds the file, which each call of TrimSensor rewrites.
const maxTrimmed = 1000

// trimmed has the sensors that were trimmed by TrimSensor.
type trimmed struct {
	writing sync.Mutex
	before  atomic.Pointer[map[sensorID]uint64] // maps are replaced, not changed; nil: none
}

type sensorID struct{ stream, sensor string }

// A trimmedSensor is an entry of the file.
type trimmedSensor struct {
	Stream string `json:"stream"`
	Sensor string `json:"sensor"`
	Before uint64 `json:"before"` // readings before this position are stored
}

// TrimSensor records that all readings of a sensor before the position are stored. If it
// returns true, the record is durable: no later process stores them again. It returns false
// if it can record no more sensors until Trim has caught up.
func (j *Journal) TrimSensor(stream, sensor string, before uint64) (bool, error) {
	if j.cfg.Memory {
		return true, nil
	}
	if !j.hasFolder() {
		return false, ErrGone
	}
	t := &j.trimmed
	t.writing.Lock()
	defer t.writing.Unlock()
	next := map[sensorID]uint64{{stream, sensor}: before}
	if now := t.before.Load(); now != nil {
		// An entry is not needed any more when a durable mark includes it.
		applied := j.applied.Load()
		if err := j.writeMark(true); err != nil {
			return false, err
		}
		for id, at := range *now {
			if at > applied && next[id] < at {
				next[id] = at
			}
		}
	}
	if len(next) > maxTrimmed {
		return false, nil
	}
	list := make([]trimmedSensor, 0, len(next))
	for id, at := range next {
		list = append(list, trimmedSensor{id.stream, id.sensor, at})
	}
	if err := writeJSON(j.cfg.Files, j.path(trimmedName), list); err != nil {
		return false, fmt.Errorf("record that a sensor's readings are stored: %w", err)
	}
	t.before.Store(&next)
	return true, nil
}

// Trimmed reports whether TrimSensor has recorded that a sensor's readings at the position
// are stored.
func (j *Journal) Trimmed(stream, sensor string, position uint64) bool {
	before := j.trimmed.before.Load()
	return before != nil && position < (*before)[sensorID{stream, sensor}]
}

// loadTrimmed reads what earlier processes trimmed.
func (j *Journal) loadTrimmed() error {
	var list []trimmedSensor
	if err := readJSON(j.cfg.Files, j.path(trimmedName), &list); err != nil {
		return fmt.Errorf("read the list of sensors whose readings are stored: %w", err)
	}
	if len(list) == 0 {
		return nil
	}
	before := make(map[sensorID]uint64, len(list))
	for _, one := range list {
		before[sensorID{one.Stream, one.Sensor}] = one.Before
	}
	j.trimmed.before.Store(&before)
	return nil
}

// forgetTrimmed drops entries after the end of the journal, which can only exist if its other
// files were removed.
func (j *Journal) forgetTrimmed(end uint64) {
	if before := j.trimmed.before.Load(); before != nil {
		maps.DeleteFunc(*before, func(_ sensorID, at uint64) bool { return at > end })
	}
}
