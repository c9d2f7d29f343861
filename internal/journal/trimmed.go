package journal

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Before a sensor is deleted its readings are stored, while older ones of other sensors
// still wait in the same part of the journal. A later process must not store those of the
// deleted sensor again. So the journal keeps, in a file of its own, up to which position a
// sensor's readings are stored, until everything before that position is.

// trimmedName is the file with the trimmed sensors.
const trimmedName = "trimmed-sensors"

// maxTrimmed bounds the file, which each call of TrimSensor rewrites.
const maxTrimmed = 1000

// trimmed are the sensors that were trimmed on their own.
type trimmed struct {
	writing sync.Mutex
	before  atomic.Pointer[map[sensorID]uint64] // never changed; nil: none
}

type sensorID struct{ stream, sensor string }

// A trimmedSensor is one of them in the file.
type trimmedSensor struct {
	Stream string `json:"stream"`
	Sensor string `json:"sensor"`
	Before uint64 `json:"before"` // readings before this position are stored
}

// TrimSensor says that all readings of a sensor before the position are stored. When it
// returns true, that is durable: no later process stores them again. It returns false if
// it cannot remember more sensors until Trim has caught up.
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
		applied := j.applied.Load()
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
		return false, fmt.Errorf("record that the readings of a sensor are stored: %w", err)
	}
	t.before.Store(&next)
	return true, nil
}

// Trimmed reports whether TrimSensor said that a sensor's readings in the record at the
// position are stored.
func (j *Journal) Trimmed(stream, sensor string, position uint64) bool {
	before := j.trimmed.before.Load()
	return before != nil && position < (*before)[sensorID{stream, sensor}]
}

// loadTrimmed reads what earlier processes trimmed.
func (j *Journal) loadTrimmed() error {
	var list []trimmedSensor
	if err := readJSON(j.cfg.Files, j.path(trimmedName), &list); err != nil {
		return fmt.Errorf("read which sensors of the journal are stored: %w", err)
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
