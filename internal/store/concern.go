package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A WriteConcern says how many members of a replica set must have a write before it counts as
// stored. The zero value is what exactly-once storage needs: a majority has journaled the write.
type WriteConcern struct {
	Members     int  // 0: a majority
	Unjournaled bool // in memory is enough
}

// MajorityName stands for a majority in commands and settings.
const MajorityName = "majority"

// MaxMembers is MongoDB's limit on the members of a replica set.
const MaxMembers = 50

// String names the number of members, and whether they need not journal.
func (w WriteConcern) String() string {
	members := MajorityName
	if w.Members > 0 {
		members = strconv.Itoa(w.Members)
	}
	if w.Unjournaled {
		return members + ", not journaled"
	}
	return members
}

// Writes returns the collection to write readings to. Everything else uses the concerns of db,
// because a lookup of stored readings, or an update that closes a part, is reliable only if a
// majority has confirmed it.
func (w WriteConcern) Writes(db *mongo.Database, name string) *mongo.Collection {
	if w == (WriteConcern{}) {
		return db.Collection(name)
	}
	journaled := !w.Unjournaled
	concern := &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}
	if w.Members > 0 {
		concern.W = w.Members
	}
	return db.Collection(name, options.Collection().SetWriteConcern(concern))
}

// Append appends the element of a command that asks for the write concern.
func (w WriteConcern) Append(command []byte) []byte {
	at, command := bsoncore.AppendDocumentElementStart(command, "writeConcern")
	if w.Members > 0 {
		command = bsoncore.AppendInt32Element(command, "w", int32(w.Members)) //nolint:gosec // at most MaxMembers
	} else {
		command = bsoncore.AppendStringElement(command, "w", MajorityName)
	}
	command = bsoncore.AppendBooleanElement(command, "j", !w.Unjournaled)
	command, _ = bsoncore.AppendDocumentEnd(command, at) // fails only for an offset beyond command
	return command
}

// answersOf returns the collection to read answers from. The primary shows all confirmed writes. A
// majority read may not: if fewer members than a majority confirm a write, or for a moment after an
// election, while the new primary does not know yet what a majority has.
func answersOf(db *mongo.Database, name string) *mongo.Collection {
	return db.Collection(name, options.Collection().SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Primary()))
}

// A ConcernError says that a deployment can never confirm a stream's writes. Retrying does not
// help.
type ConcernError struct {
	Stream  string
	Members int // that the stream asks for
	Have    int // that hold data
}

// Error implements error.
func (e *ConcernError) Error() string {
	return fmt.Sprintf("stream %q asks for a write-concern of %d, but only %d of MongoDB's members hold data: every write would wait forever; allowed: majority and 1 to %d",
		e.Stream, e.Members, e.Have, e.Have)
}

// FenceName is a collection with one document, which counts fences.
const FenceName = "brim_fence"

// Fence waits until everything that the primary has applied so far is confirmed with write concern
// w. It modifies a document, so that in a logical session its transaction number is in the oplog:
// a primary that is elected later knows it, and refuses older writes of the session.
func (w WriteConcern) Fence(ctx context.Context, db *mongo.Database) error {
	filter, update := fence()
	_, err := w.Writes(db, FenceName).UpdateOne(ctx, filter, update, options.UpdateOne().SetUpsert(true))
	if err != nil {
		return fmt.Errorf("wait for the write concern %s: update collection %s: %w", w, FenceName, err)
	}
	return nil
}

func fence() (filter, update bson.D) {
	return bson.D{{Key: "_id", Value: "fences"}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "count", Value: int64(1)}}}}
}

// FenceCommand is the command of a Fence, without a write concern.
func FenceCommand() bson.D {
	filter, update := fence()
	return bson.D{
		{Key: "update", Value: FenceName},
		{Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: filter}, {Key: "u", Value: update}, {Key: "upsert", Value: true}}}},
	}
}

// Confirm waits until the result of a majority read is confirmed with this write concern. Only a
// number of members can require more than a majority.
func (w WriteConcern) Confirm(ctx context.Context, db *mongo.Database) error {
	if w.Members <= 1 {
		return nil
	}
	return w.Fence(ctx, db)
}

// Check returns a *ConcernError unless the deployment has as many members. If MongoDB does not
// list the members, because it is a sharded cluster or the user lacks the privilege, Check only
// logs that. Writes that cannot be confirmed then wait, with the reason.
func (w WriteConcern) Check(ctx context.Context, db *mongo.Database, stream string, log *slog.Logger) error {
	if w.Members <= 1 {
		return nil
	}
	var reply struct {
		Config struct {
			Members []struct {
				Arbiter bool `bson:"arbiterOnly"`
			} `bson:"members"`
		} `bson:"config"`
	}
	// hello would leave hidden members out.
	err := db.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "replSetGetConfig", Value: 1}}).Decode(&reply)
	const notReplicated = 76
	var refused mongo.ServerError
	have := 0
	switch {
	case HasCode(err, notReplicated):
		have = 1
	case errors.As(err, &refused) && !mongo.IsNetworkError(err) && !mongo.IsTimeout(err):
		log.Warn("the daemon may not see whether MongoDB has as many members as the stream's write-concern asks for; with too few its readings wait in the journal. "+
			"Grant the right to replSetGetConfig, which the role brimServe of deploy/mongodb/roles.js has", "stream", stream, "write_concern", w.String(), "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("list the members of MongoDB: %w", err)
	}
	for _, m := range reply.Config.Members {
		if !m.Arbiter {
			have++
		}
	}
	if w.Members <= have {
		return nil
	}
	return &ConcernError{Stream: stream, Members: w.Members, Have: have}
}
