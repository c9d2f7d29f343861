package settings

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/store"
)

// recorded is a server that answers from a file.
type recorded struct {
	answers   bson.D
	documents []bson.Raw // that a sample finds
	sampled   mongo.Pipeline
	from      string // the collection of the last sample
}

// scene reads one of testdata.
func scene(t *testing.T, name string) *recorded {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	r := &recorded{}
	require.NoError(t, bson.UnmarshalExtJSON(data, false, &r.answers))
	return r
}

func (r *recorded) run(_ context.Context, admin bool, command bson.D) (bson.Raw, error) {
	name := command[0].Key
	if !admin {
		stage := command[1].Value.(mongo.Pipeline)[0][0].Key
		name = fmt.Sprintf("%s %s", stage, command[0].Value)
	}
	for _, e := range r.answers {
		if e.Key != name {
			continue
		}
		answer := e.Value.(bson.D)
		if answer[0].Key == "error" {
			of := answer[0].Value.(bson.D)
			return nil, mongo.CommandError{Code: of[0].Value.(int32), Message: of[1].Value.(string)}
		}
		if answer[0].Key == "docs" {
			answer = bson.D{{Key: "cursor", Value: bson.D{{Key: "firstBatch", Value: answer[0].Value}}}}
		}
		return bson.Marshal(answer)
	}
	return nil, mongo.CommandError{Code: 26, Message: "ns not found"}
}

func (r *recorded) sample(_ context.Context, collection string, pipeline mongo.Pipeline, maxBytes int) ([]bson.Raw, error) {
	r.sampled, r.from = pipeline, collection
	for i, bytes := 0, 0; i < len(r.documents); i++ {
		if bytes += len(r.documents[i]); bytes >= maxBytes {
			return r.documents[:i+1], nil
		}
	}
	return r.documents, nil
}

// set changes an answer. A step of the path is a name, or a position in an
// array.
func (r *recorded) set(value any, path ...any) { r.answers = put(r.answers, value, path).(bson.D) }

func put(in, value any, path []any) any {
	if len(path) == 0 {
		return value
	}
	switch step := path[0].(type) {
	case int:
		in.(bson.A)[step] = put(in.(bson.A)[step], value, path[1:])
		return in
	case string:
		d, _ := in.(bson.D)
		for i := range d {
			if d[i].Key == step {
				d[i].Value = put(d[i].Value, value, path[1:])
				return d
			}
		}
		return append(d, bson.E{Key: step, Value: put(nil, value, path[1:])})
	}
	panic("a path has names and positions")
}

// streams of the recorded servers.
var streams = []Stream{{Name: "readings", Storage: store.Bucket}, {Name: "series", Storage: store.TimeSeries}}

// recordedAt is within the hour after the files were recorded, so that no index
// is unused for long.
var recordedAt = time.Date(2026, 11, 21, 20, 30, 0, 0, time.UTC)

func ask(t *testing.T, r *recorded, table []rule, before *Look) []doctor.Finding {
	t.Helper()
	out, err := check(t.Context(), r, Config{Streams: streams, Before: before, Now: func() time.Time { return recordedAt }}, table)
	require.NoError(t, err)
	return out
}
