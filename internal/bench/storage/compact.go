package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/machine"
)

// A compaction is what one of a collection did, from which a quarter of the
// documents was deleted, while it was written to.
type compaction struct {
	Pattern   string  `json:"pattern"` // of the deletion
	Documents int64   `json:"documents"`
	Full      sizes   `json:"full"`    // before the deletion
	Deleted   sizes   `json:"deleted"` // after it, and before the compaction
	After     sizes   `json:"after"`
	Peak      number  `json:"file_peak_bytes"`      // of the collection's file meanwhile
	FilesMore number  `json:"all_files_more_bytes"` // of all of mongod's files meanwhile, at most
	Took      number  `json:"took_seconds"`
	Before    writing `json:"before"`
	During    writing `json:"during"`
	Later     writing `json:"later"` // when it was done

	timeline timeline
}

// sizes are a collection's, in bytes.
type sizes struct {
	Data number `json:"data_bytes"` // before compression
	File number `json:"file_bytes"`
	Free number `json:"free_bytes"` // in the file
}

// writing is how long writes took, in seconds.
type writing struct {
	Writes int    `json:"writes"`
	P50    number `json:"p50_seconds"`
	P99    number `json:"p99_seconds"`
}

func writingOf(took sorted) writing {
	return writing{len(took), number(took.p50()), number(took.p99())}
}

// A timeline is what a drawing of a compaction shows.
type timeline struct {
	at, p99, file []float64 // s, s, bytes
	begin, end    float64   // of the compaction, s
}

// Patterns of deletion.
const (
	scattered  = "every fourth document"
	contiguous = "a quarter in one piece"
)

// A compactConfig says how much there is to compact.
type compactConfig struct {
	documents int
	readings  int           // in each
	window    time.Duration // before and after
	patterns  []string
}

const (
	moderate      = 200 // writes/s: while something else is measured
	writerLanes   = 4   // as one daemon has
	writerSensors = 500
	sampleEvery   = 50 * time.Millisecond
)

// background are writers for a moderate load on a collection that is there.
func background(ctx context.Context, m *bench.MongoDB, stream string, seed uint64) (*writers, error) {
	w, err := newWriters(ctx, writersConfig{
		database: m.Database(), stream: stream, prefix: "w-", sensors: writerSensors, lanes: writerLanes, granularity: time.Hour, seed: seed,
	})
	if err != nil {
		return nil, err
	}
	return w, w.fill(ctx, readingsPerUpdate)
}

// steadily is the schedule of a moderate load that lasts until it is ended.
func steadily() schedule { return schedule{{moderate, time.Hour}} }

// compactAll fills a collection, deletes a quarter and compacts, by each pattern
// in turn.
func compactAll(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, c compactConfig) (all []*compaction, err error) {
	for i := range lab.Repeats {
		for j, pattern := range c.patterns {
			lab.Step("compact: fill %d buckets, delete %s, compact while writing", c.documents, pattern)
			one, err := c.once(ctx, lab, m, compactRun{pattern, fmt.Sprintf("compact_%d_%d", i+1, j+1)})
			if err != nil {
				return all, err
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// A compactRun is one of the repeats.
type compactRun struct{ pattern, stream string }

// once fills a collection of its own, which is gone afterwards.
func (c compactConfig) once(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, r compactRun) (*compaction, error) {
	filled, err := newWriters(ctx, writersConfig{
		database: m.Database(), stream: r.stream, prefix: "s-", sensors: c.documents, lanes: writerLanes, granularity: time.Hour, seed: lab.Seed,
	})
	if err != nil {
		return nil, err
	}
	if err := filled.fill(ctx, c.readings); err != nil {
		return nil, err
	}
	load, err := background(ctx, m, r.stream, lab.Seed)
	if err != nil {
		return nil, err
	}
	one, err := compactOnce(ctx, m, load, compactPlan{r.pattern, c.window})
	if err != nil {
		return nil, err
	}
	if err := load.collection.Drop(ctx); err != nil {
		return nil, fmt.Errorf("drop a compacted collection: %w", err)
	}
	return one, nil
}

// A compactPlan is what one compaction is to be like.
type compactPlan struct {
	pattern string
	window  time.Duration
}

// compactOnce deletes a quarter and compacts.
func compactOnce(ctx context.Context, m *bench.MongoDB, w *writers, plan compactPlan) (_ *compaction, err error) {
	c := &compaction{Pattern: plan.pattern}
	if err := flush(ctx, m); err != nil {
		return nil, err
	}
	if c.Full, err = measure(ctx, w.collection); err != nil {
		return nil, err
	}
	if c.Documents, err = deleteQuarter(ctx, w.collection, plan.pattern); err != nil {
		return nil, err
	}
	if err := m.Settle(ctx); err != nil { // only then is the space free for reuse
		return nil, err
	}
	if c.Deleted, err = measure(ctx, w.collection); err != nil {
		return nil, err
	}
	if err := c.whileWriting(ctx, m, w, plan.window); err != nil {
		return nil, err
	}
	if err := m.Settle(ctx); err != nil {
		return nil, err
	}
	if c.After, err = measure(ctx, w.collection); err != nil {
		return nil, err
	}
	return c, c.afterwards(ctx, w, plan.window)
}

// flush makes sizes those of all that was written, where that may be asked for.
func flush(ctx context.Context, m *bench.MongoDB) error {
	if m.DBPath() == "" {
		return nil
	}
	return m.Checkpoint(ctx)
}

// whileWriting compacts in the middle of a moderate load.
func (c *compaction) whileWriting(ctx context.Context, m *bench.MongoDB, w *writers, window time.Duration) (err error) {
	watch, err := newWatch(ctx, m, w.collection)
	if err != nil {
		return err
	}
	t := w.begin(ctx, steadily())
	defer func() {
		err = errors.Join(err, t.end())
		c.timeline = watch.timeline(t, c.timeline)
	}()
	if err := watch.until(t, warm+window); err != nil {
		return err
	}
	begin := t.now()
	done := make(chan error, 1)
	go func() { done <- compact(t.ctx, w.collection) }()
	err = watch.while(t, done)
	end := t.now()
	if err != nil {
		return err
	}
	c.Took, c.Peak, c.FilesMore = number((end - begin).Seconds()), watch.peak(), watch.more()
	c.timeline.begin, c.timeline.end = begin.Seconds(), end.Seconds()
	if err := watch.until(t, end+window/2); err != nil {
		return err
	}
	c.Before, c.During = writingOf(t.took.between(warm, begin)), writingOf(t.took.between(begin, end))
	return nil
}

// afterwards writes again as before the compaction. What was kept waiting by it
// is over then.
func (c *compaction) afterwards(ctx context.Context, w *writers, window time.Duration) (err error) {
	t := w.begin(ctx, steadily())
	defer func() { err = errors.Join(err, t.end()) }()
	if err := machine.Pause(t.ctx, warm+window); err != nil {
		return err
	}
	c.Later = writingOf(t.took.between(warm, warm+window))
	return nil
}

// warm is how long writers write before it counts.
const warm = 500 * time.Millisecond

// errRefused is that the server does not compact, by its own word.
var errRefused = errors.New("MongoDB does not compact here")

// compact compacts a collection; force is what a replica set's primary asks for.
func compact(ctx context.Context, coll *mongo.Collection) error {
	err := coll.Database().RunCommand(ctx, bson.D{{Key: "compact", Value: coll.Name()}, {Key: "force", Value: true}}).Err()
	var said mongo.CommandError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said) && said.Code != 0 && !said.HasErrorLabel("NetworkError"):
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return fmt.Errorf("compact %s: %w", coll.Name(), err)
}
