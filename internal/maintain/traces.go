package maintain

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Traces are what work on a stream has left in the database, or has there while
// it goes on.
type Traces struct {
	Stream          string
	Kind, To, Phase string // of the work: recompress or migrate; what becomes of the stream; empty: none is noted
	Done            bool   // the work, but for what is kept
	Alive           bool   // a process is at work on it
	Fenced          bool   // the stream's collection refuses writes
	Copy, Old       *Trace // STREAM.brim_new and STREAM.brim_old; nil: they are not there
	// Commands that end the work. Empty: none is noted.
	Again, Abort, DropOld string
}

// A Trace is a collection that work on a stream has made.
type Trace struct {
	Collection string
	Bytes      int64 // on disk, with indexes
}

// LookForTraces looks for what work on a stream has left. It changes nothing.
// An error is that MongoDB did not answer, or did not permit it.
func LookForTraces(ctx context.Context, db *mongo.Database, stream string) (*Traces, error) {
	s, err := readState(ctx, db, stream)
	if err != nil {
		return nil, err
	}
	there, err := lookUpAll(ctx, db, stream, newName(stream), oldName(stream))
	if err != nil {
		return nil, err
	}
	t := &Traces{Stream: stream, Fenced: there[stream] != nil && fenced(there[stream])}
	if t.Copy, err = traceOf(ctx, db, there[newName(stream)]); err != nil {
		return nil, err
	}
	if t.Old, err = traceOf(ctx, db, there[oldName(stream)]); err != nil {
		return nil, err
	}
	if s == nil {
		return t, nil
	}
	t.Kind, t.To, t.Phase, t.Done = s.Kind, s.To, s.Phase, s.Phase == phaseDone
	t.Again, t.Abort, t.DropOld = s.command(""), s.command("--abort"), s.command("--drop-old")
	t.Alive, err = s.alive(ctx, db)
	return t, err
}

func traceOf(ctx context.Context, db *mongo.Database, f *found) (*Trace, error) {
	if f == nil {
		return nil, nil //nolint:nilnil // it is not there
	}
	size, err := statsOf(ctx, db, f.Name)
	if err != nil {
		return nil, err
	}
	return &Trace{Collection: f.Name, Bytes: size.StorageSize + size.IndexSize}, nil
}

// alive reports whether the owner is believed to be at work, by the server's
// clock.
func (s *state) alive(ctx context.Context, db *mongo.Database) (bool, error) {
	if s.Owner.ID == "" || deadHere(s.Owner, hostIdentity()) {
		return false, nil
	}
	var hello struct {
		Now time.Time `bson:"localTime"`
	}
	if err := db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return false, fmt.Errorf("ask for the server's time: %w", err)
	}
	return s.Lease.After(hello.Now), nil
}
