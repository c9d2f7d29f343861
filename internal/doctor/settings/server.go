package settings

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// A server answers what is asked of a MongoDB.
type server interface {
	// run carries out a command that reads, on admin or on the streams'
	// database.
	run(ctx context.Context, admin bool, command bson.D) (bson.Raw, error)
	// sample reads documents of a collection until it has maxBytes of them, or
	// all that the pipeline gives, or ctx ends, which is no error.
	sample(ctx context.Context, collection string, pipeline mongo.Pipeline, maxBytes int) ([]bson.Raw, error)
}

// patience bounds one command, on a server that may be as slow as it is said to be.
const patience = 10 * time.Second

// mongoServer is the primary of a real one.
type mongoServer struct {
	database, admin *mongo.Database
}

func newServer(db *mongo.Database) mongoServer {
	opts := options.Database().SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Primary())
	return mongoServer{database: db.Client().Database(db.Name(), opts), admin: db.Client().Database("admin", opts)}
}

func (s mongoServer) run(ctx context.Context, admin bool, command bson.D) (bson.Raw, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db := s.database
	if admin {
		db = s.admin
	}
	raw, err := db.RunCommand(ctx, command, options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
	if err != nil {
		return nil, fmt.Errorf("ask MongoDB for %s: %w", command[0].Key, err)
	}
	return raw, nil
}

func (s mongoServer) sample(ctx context.Context, collection string, pipeline mongo.Pipeline, maxBytes int) ([]bson.Raw, error) {
	cursor, err := s.database.Collection(collection).Aggregate(ctx, pipeline, options.Aggregate().SetBatchSize(sampleBatch))
	if err != nil {
		return nil, sampleError(ctx, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	var out []bson.Raw
	for bytes := 0; bytes < maxBytes && cursor.Next(ctx); bytes += len(cursor.Current) {
		out = append(out, append(bson.Raw(nil), cursor.Current...))
	}
	return out, sampleError(ctx, cursor.Err())
}

// sampleBatch documents are asked for at once: of full buckets, some MiB.
const sampleBatch = 32

// sampleError is nil when only the time for it is over.
func sampleError(ctx context.Context, err error) error {
	if err == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("read a sample of documents: %w", err)
}

// missing reports whether err is that a collection, or a replica set, is not
// there, which is an answer too.
func missing(err error) bool {
	const (
		namespaceNotFound    = 26
		noReplicationEnabled = 76
		noStandalone         = 51300 // of getDefaultRWConcern
	)
	var said mongo.ServerError
	return errors.As(err, &said) &&
		(said.HasErrorCode(namespaceNotFound) || said.HasErrorCode(noReplicationEnabled) || said.HasErrorCode(noStandalone))
}

// refused reports whether err is that the user may not ask.
func refused(err error) bool { return doctor.NotPermitted(err) }
