package doctor

import "math"

// counted is the counters as they were last seen. One that cannot be seen does
// not move: were it NaN, it would spoil every rate over a range that holds the
// moment, for as long as the range is.
type counted struct {
	figures     map[key]float64
	collections map[string]collection
	disk        *diskLook // nil: never seen
}

// with returns the counters after a look; c stays as it is.
func (c counted) with(now look) counted {
	out := counted{figures: make(map[key]float64, len(figures)), collections: make(map[string]collection, len(now.collections)), disk: c.disk}
	for i := range figures {
		k := figures[i].key
		if v := now.server.value(k); !math.IsNaN(v) {
			out.figures[k] = v
		} else {
			out.figures[k] = c.figure(k)
		}
	}
	for name, last := range now.collections {
		if last.why != "" {
			last = c.collection(name)
		}
		out.collections[name] = last
	}
	if now.disk.why == "" {
		out.disk = &now.disk
	}
	return out
}

// figure returns NaN for one that was never seen.
func (c counted) figure(k key) float64 {
	if v, ok := c.figures[k]; ok {
		return v
	}
	return math.NaN()
}

func (c counted) collection(stream string) collection {
	if last, ok := c.collections[stream]; ok {
		return last
	}
	return unseenCollection("")
}

func (c counted) diskCounters() diskLook {
	if c.disk == nil {
		return unseenDisk("")
	}
	return *c.disk
}
