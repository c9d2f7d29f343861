package settings

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/store"
)

// An indexUse is what is known of one index, of all shards together.
type indexUse struct {
	name   string
	key    []string // fields
	used   float64  // times
	since  time.Time
	hidden bool
	bound  bool // it does more than to be searched in: unique, or removes what is old
}

// indexes asks how often each index was used.
func (g *gathering) indexes(ctx context.Context, collection string) ([]indexUse, error) {
	var shards []struct {
		Name string `bson:"name"`
		Key  bson.D `bson:"key"`
		Use  struct {
			Times float64   `bson:"ops"`
			Since time.Time `bson:"since"`
		} `bson:"accesses"`
		Spec struct {
			Unique bool          `bson:"unique"`
			Hidden bool          `bson:"hidden"`
			Expire bson.RawValue `bson:"expireAfterSeconds"`
		} `bson:"spec"`
	}
	if err := g.first(ctx, collection, mongo.Pipeline{{{Key: "$indexStats", Value: bson.D{}}}}, &shards); err != nil {
		if missing(err) {
			err = nil
		}
		return nil, err
	}
	var out []indexUse
	for _, s := range shards {
		i := slices.IndexFunc(out, func(u indexUse) bool { return u.name == s.Name })
		if i < 0 {
			u := indexUse{name: s.Name, since: s.Use.Since, hidden: s.Spec.Hidden, bound: s.Spec.Unique || !s.Spec.Expire.IsZero()}
			for _, field := range s.Key {
				u.key = append(u.key, field.Key)
			}
			out, i = append(out, u), len(out)
		}
		out[i].used += s.Use.Times
		if s.Use.Since.After(out[i].since) {
			out[i].since = s.Use.Since // what all shards can speak for
		}
	}
	return out, nil
}

// leastUnused is how long an index must have been of no use: what is asked for
// once a day has had its turn.
const leastUnused = 24 * time.Hour

// needed are indexes that Brim makes, and MongoDB's own.
var needed = map[string]bool{"_id_": true, "brim_retention": true, "brim_sensor_time": true}

// indexes that nothing has used.
func indexes(f *facts) []doctor.Finding {
	var out []doctor.Finding
	for i := range f.streams {
		s := &f.streams[i]
		for _, use := range s.indexes {
			idle := f.now.Sub(use.since)
			if needed[use.name] || use.bound || use.used > 0 || use.since.IsZero() || idle < leastUnused {
				continue
			}
			out = append(out, s.unused(use, idle))
		}
	}
	return out
}

func (s *streamFacts) unused(use indexUse, idle time.Duration) doctor.Finding {
	collection := fmt.Sprintf("db.getCollection(%q)", s.Collection)
	action := fmt.Sprintf("in mongosh: %s.hideIndex(%q); and when nothing has got slower in some days: %s.dropIndex(%q)", collection, use.name, collection, use.name)
	if use.hidden {
		action = fmt.Sprintf("it is hidden already; in mongosh: %s.dropIndex(%q)", collection, use.name)
	}
	return advice{
		name:  "setting_index",
		cause: fmt.Sprintf("index: nothing uses %s of stream %s", use.name, s.Name),
		evidence: fmt.Sprintf("used 0 times in %s, since %s; it takes %s, and %s",
			config.FormatDuration(coarse(idle)), use.since.UTC().Format("2006-01-02 15:04"), size(s.sizes.indexes[use.name]), s.upkeep(use)),
		action: action,
		cost: "hiding needs no restart and is taken back by unhideIndex; once dropped it must be built anew from all documents. " +
			"Use is counted on this member since its start: what other members were asked does not show",
	}.finding()
}

// appended are the fields of a bucket's document that an append changes.
var appended = map[string]bool{"count": true, "bytes": true, "last": true, "first": true, "measurements": true, "stats": true, "w": true, "full": true}

// upkeep says what an index costs each write.
func (s *streamFacts) upkeep(use indexUse) string {
	if s.Storage != store.Bucket {
		return "each new bucket of the collection is entered in it"
	}
	for _, field := range use.key {
		if first, _, _ := strings.Cut(field, "."); appended[first] {
			return "each append changes " + first + ", so that its entries are written again with each"
		}
	}
	return "each new document is entered in it; appends leave it alone"
}
