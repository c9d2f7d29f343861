package maintain

import (
	"bytes"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Verify implements Reshaper: the readings of both are the same, each as often,
// byte by byte and with the same tags, and every reading is found again by what was written.
func (r *Regroup) Verify(before, after []bson.Raw) error {
	was, err := r.contents(before)
	if err != nil {
		return err
	}
	is, err := r.contents(after)
	if err != nil {
		return err
	}
	if was.count != is.count {
		return fmt.Errorf("%s: %d readings were %d before", was.name(), is.count, was.count)
	}
	for reading, n := range was.readings {
		if is.readings[reading] != n {
			return fmt.Errorf("%s: its %d readings are not those from before", was.name(), is.count)
		}
	}
	for id, old := range was.parts {
		if why := r.keeps(old, is.parts[id]); why != "" {
			return fmt.Errorf("part %v %s", id, why)
		}
	}
	for id, p := range is.parts {
		if id.grain != r.grain && !p.tombstone {
			return fmt.Errorf("part %v still has a granularity of %ds", id, id.grain)
		}
	}
	return nil
}

// keeps returns in what a part is not what has to be under the _id of old, ""
// if it is.
func (r *Regroup) keeps(old, p *oldPart) string {
	gone := old.id.grain != r.grain
	switch {
	case p == nil:
		return "is missing"
	case !bytes.Equal(p.guard, old.guard):
		return "has another w than before"
	case old.full && !p.full:
		return "is open again"
	case gone && (!p.tombstone || !p.full):
		return "has no tombstone"
	case !gone && (p.tombstone != old.tombstone || !bytes.Equal(p.raw.Lookup("measurements").Value, old.raw.Lookup("measurements").Value)):
		return "has other readings than before"
	default:
		return ""
	}
}

// contents is what a group holds.
type contents struct {
	count    int
	readings map[uint64]int // how often, by their checksums
	parts    map[partID]*oldPart
	first    partID
}

func (r *Regroup) contents(group []bson.Raw) (*contents, error) {
	c := &contents{readings: make(map[uint64]int), parts: make(map[partID]*oldPart, len(group))}
	sum := xxhash.New()
	for i, raw := range group {
		p, err := r.read(raw)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			c.first = p.id
		}
		c.parts[p.id] = &p
		readings, err := p.readings()
		if err != nil {
			return nil, err
		}
		for _, m := range readings {
			sum.Reset()
			_, _ = sum.WriteString(p.id.sensor) // a checksum takes everything
			_, _ = sum.Write(m.Tags)
			_, _ = sum.Write(m.Document)
			c.readings[sum.Sum64()]++
			c.count++
		}
	}
	return c, nil
}

func (c *contents) name() string {
	if len(c.parts) == 0 {
		return "an empty group"
	}
	return fmt.Sprintf("the group that begins with %v", c.first)
}
