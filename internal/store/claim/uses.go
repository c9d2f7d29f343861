package claim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A Use is a session of a daemon that is running, or whose journal may hold readings.
type Use struct {
	Session string
	Holder  Holder
	Places  map[string]string // see Config; nil: an earlier release
	Alive   bool              // the claim was renewed within expireAfter
	Stopped bool              // the daemon stopped, and its journal holds readings

	beat string
}

// leasePrefix is the prefix of claims that are not sessions. Session names have no dot.
const leasePrefix = "move."

// Lease returns the name of a claim for the process that moves a stream's readings.
func Lease(stream string) string { return leasePrefix + stream }

func isLease(session string) bool { return strings.HasPrefix(session, leasePrefix) }

// Uses returns the sessions of a stream that may still write to MongoDB, except abandoned ones:
// those of live daemons, and those of daemons that were killed, or stopped with readings in their
// journal.
func Uses(ctx context.Context, db *mongo.Database, stream string) ([]Use, error) {
	alive := bson.D{{Key: "$gt", Value: bson.A{"$renewed", bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", expireAfter.Milliseconds()}}}}}}
	cursor, err := db.Collection(Collection).Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "abandoned", Value: bson.D{{Key: "$ne", Value: true}}}}}},
		{{Key: "$set", Value: bson.D{{Key: "alive", Value: alive}}}},
		{{Key: "$sort", Value: bson.D{{Key: "_id", Value: 1}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("read the claims of daemons: %w", err)
	}
	var found []struct {
		Claim claimed `bson:",inline"`
		Alive bool    `bson:"alive"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("read the claims of daemons: %w", err)
	}
	var out []Use
	for i := range found {
		c := &found[i].Claim
		alive := found[i].Alive && !c.Stopped
		if isLease(c.Session) || !c.stores(stream) || !alive && c.Dir == "" { // without a journal, it has no readings left
			continue
		}
		out = append(out, Use{c.Session, c.Holder, c.Places, alive, c.Stopped, c.Beat})
	}
	return out, nil
}

// stores reports whether the holder stores the stream, or may do so.
func (c *claimed) stores(stream string) bool {
	if c.Places != nil {
		_, yes := c.Places[stream]
		return yes
	}
	return len(c.Streams) == 0 || slices.Contains(c.Streams, stream)
}

// Abandon takes a session away from a daemon that is not running. If the daemon is started again,
// its journal's readings of the session become dead letters. Abandon reports false if the daemon
// has come back meanwhile.
func Abandon(ctx context.Context, db *mongo.Database, u *Use) (bool, error) {
	r, err := db.Collection(Collection).UpdateOne(ctx,
		bson.D{{Key: "_id", Value: u.Session}, {Key: "beat", Value: u.beat}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "abandoned", Value: true}, {Key: "beat", Value: newBeat()}}}})
	if err != nil {
		return false, fmt.Errorf("abandon session %s: %w", u.Session, err)
	}
	return r.MatchedCount == 1, nil
}
