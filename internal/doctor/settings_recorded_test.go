package doctor

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
)

// A recording is a server that answers from a file.
type recording struct {
	answers   bson.D
	documents []bson.Raw // the answer to a sample
	sampled   mongo.Pipeline
	from      string // the collection of the last sample
}

// scene reads a recording from testdata.
func scene(t *testing.T, name string) *recording {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "settings", name+".json"))
	require.NoError(t, err)
	r := &recording{}
	require.NoError(t, bson.UnmarshalExtJSON(data, false, &r.answers))
	return r
}

// answer returns the answer recorded under a name, or the recorded error.
func (r *recording) answer(name string) (bson.D, error) {
	for _, e := range r.answers {
		if e.Key != name {
			continue
		}
		answer := e.Value.(bson.D)
		if answer[0].Key == "error" {
			of := answer[0].Value.(bson.D)
			return nil, mongo.CommandError{Code: of[0].Value.(int32), Message: of[1].Value.(string)}
		}
		return answer, nil
	}
	return nil, mongo.CommandError{Code: 26, Message: "ns not found"}
}

func (r *recording) run(_ context.Context, command bson.D) (bson.Raw, error) {
	answer, err := r.answer(command[0].Key)
	if err != nil {
		return nil, err
	}
	return bson.Marshal(answer)
}

func (r *recording) aggregate(_ context.Context, collection string, pipeline mongo.Pipeline, maxBytes int) (out []bson.Raw, err error) {
	documents := r.documents
	if stage := pipeline[0][0].Key; stage == "$indexStats" || stage == "$collStats" {
		answer, err := r.answer(stage + " " + collection)
		if err != nil {
			return nil, err
		}
		documents = nil
		for _, d := range answer[0].Value.(bson.A) {
			raw, err := bson.Marshal(d)
			if err != nil {
				return nil, err
			}
			documents = append(documents, raw)
		}
	} else {
		r.sampled, r.from = pipeline, collection
	}
	for bytes := 0; len(out) < len(documents) && bytes < maxBytes; bytes += len(out[len(out)-1]) {
		out = append(out, documents[len(out)])
	}
	return out, nil
}

// look returns the sample that a monitor would have taken of the server.
func (r *recording) look(t *testing.T) sample {
	t.Helper()
	out := sample{at: recordedAt, answered: true, serverWhy: whyNotPermitted, disk: unseenDisk(whyElsewhere), collections: make(map[string]collection)}
	if raw, err := r.run(t.Context(), bson.D{{Key: "serverStatus"}}); err == nil {
		out.server, out.serverWhy = parseStatus(raw, recordedAt)
		out.at = recordedAt.Add(time.Duration(out.server.uptime * float64(time.Second)))
	}
	if raw, err := r.run(t.Context(), bson.D{{Key: "hostInfo"}}); err == nil {
		out.memory = memoryOf(raw)
	}
	for _, s := range streams {
		out.collections[s.Name] = unseenCollection(whyNoRead)
		if shards, err := r.aggregate(t.Context(), s.Name, mongo.Pipeline{{{Key: "$collStats"}}}, math.MaxInt); err == nil {
			out.collections[s.Name] = parseCollection(shards, s.Storage == store.TimeSeries)
		}
		c := out.collections[s.Name]
		c.name = s.Name
		out.collections[s.Name] = c
	}
	return out
}

// set changes an answer. A step of the path is a name or an array index.
func (r *recording) set(value any, path ...any) { r.answers = put(r.answers, value, path).(bson.D) }

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

// streams are the streams on the recorded servers.
var streams = []Stream{{Name: "readings", Storage: store.Bucket}, {Name: "series", Storage: store.TimeSeries}}

// recordedAt is within the hour after the files were recorded, so that no index
// is unused for long.
var recordedAt = time.Date(2026, 11, 21, 20, 30, 0, 0, time.UTC)

// facts are the server's now, with before as the previous sample.
func (r *recording) facts(t *testing.T, before *recording) *facts {
	t.Helper()
	var first view
	if before != nil {
		first = *newView(before.look(t), view{}, nil)
	}
	return &facts{server: r, view: newView(r.look(t), first, nil), streams: streams, now: recordedAt, sampleTime: time.Minute}
}

func ask(t *testing.T, r *recording, table []settingRule, before *recording) []Finding {
	t.Helper()
	f := r.facts(t, before)
	require.NoError(t, f.gather(t.Context()))
	return f.judge(table)
}

// copy is the recording as it is now.
func (r *recording) copy(t *testing.T) *recording {
	t.Helper()
	raw, err := bson.Marshal(r.answers)
	require.NoError(t, err)
	out := &recording{}
	require.NoError(t, bson.Unmarshal(raw, &out.answers))
	return out
}
