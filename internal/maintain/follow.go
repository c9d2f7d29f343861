package maintain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
)

// errHistoryLost says that the server does not know any more what changed since
// the copy began: its oplog is too short for how long the copy took.
var errHistoryLost = errors.New("the oplog does not reach back to what was copied last")

// A follower gathers which groups of the source were touched. It watches the
// whole database, and sees there also the signs of life that the job writes
// into its own state: when it has seen one, it has seen all that was written
// before.
type follower struct {
	db     *mongo.Database
	source string // name of the collection
	job    *job
	span   time.Duration

	running sync.WaitGroup
	stop    context.CancelFunc

	mu      sync.Mutex
	touched map[groupKey]struct{}
	seen    int64          // the last sign of life that came by
	heard   time.Time      // when that was
	token   bson.Raw       // behind which the stream goes on
	at      bson.Timestamp // what was read by then, reads see too
	gone    bool           // the source has lost its name
	err     error
	news    chan struct{} // closed and replaced at every change
}

// event is what is asked of a change.
type event struct {
	Operation string `bson:"operationType"`
	NS        struct {
		Collection string `bson:"coll"`
	} `bson:"ns"`
	Key  bson.Raw `bson:"documentKey"`
	Beat int64    `bson:"beat"`
}

// follow begins to watch behind token, or from now on if there is none.
func follow(f *follower, token bson.Raw) error {
	ctx, stop := context.WithCancel(f.job.ctx)
	f.stop, f.touched, f.news, f.token, f.heard = stop, make(map[groupKey]struct{}), make(chan struct{}), token, time.Now()
	session, err := f.db.Client().StartSession()
	if err != nil {
		stop()
		return fmt.Errorf("start a session: %w", err)
	}
	ctx = mongo.NewSessionContext(ctx, session)
	stream, err := f.open(ctx)
	if err != nil {
		session.EndSession(ctx)
		stop()
		return err
	}
	f.running.Go(func() {
		defer session.EndSession(context.WithoutCancel(ctx))
		f.run(ctx, stream, session)
	})
	return nil
}

// close ends the watching.
func (f *follower) close() {
	f.stop()
	f.running.Wait()
}

func (f *follower) open(ctx context.Context) (*mongo.ChangeStream, error) {
	opts := options.ChangeStream()
	if f.token != nil {
		opts.SetResumeAfter(f.token)
	}
	stream, err := f.db.Watch(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "ns.coll", Value: f.source}},
			bson.D{{Key: "operationType", Value: "rename"}, {Key: "to.coll", Value: f.source}},
			bson.D{{Key: "ns.coll", Value: stateCollection}, {Key: "documentKey._id", Value: f.job.state.Stream}},
		}}}}},
		{{Key: "$project", Value: bson.D{
			{Key: "operationType", Value: 1}, {Key: "ns", Value: 1}, {Key: "documentKey", Value: 1},
			{Key: "beat", Value: "$updateDescription.updatedFields.beat"},
		}}},
	}, opts)
	if err != nil {
		return nil, historyLost(fmt.Errorf("watch collection %q: %w", f.source, err))
	}
	if token := stream.ResumeToken(); f.token == nil && token != nil {
		f.token = slices.Clone(token)
	}
	return stream, nil
}

// historyLost adds errHistoryLost to the server's word for it.
func historyLost(err error) error {
	const changeStreamHistoryLost, changeStreamFatal, cappedPositionLost = 286, 280, 136
	if store.HasCode(err, changeStreamHistoryLost, changeStreamFatal, cappedPositionLost) {
		return fmt.Errorf("%w: %w", errHistoryLost, err)
	}
	return err
}

// run reads the stream until ctx ends. Where MongoDB is away, it is opened again
// behind the last token.
func (f *follower) run(ctx context.Context, stream *mongo.ChangeStream, session *mongo.Session) {
	for {
		err := f.read(ctx, stream, session)
		_ = stream.Close(context.WithoutCancel(ctx))
		for {
			if err = historyLost(err); ctx.Err() != nil || !transient(err) {
				f.fail(err)
				return
			}
			if machine.Pause(ctx, retryEvery) != nil {
				f.fail(context.Cause(ctx))
				return
			}
			if stream, err = f.open(ctx); err == nil {
				break
			}
		}
	}
}

func (f *follower) read(ctx context.Context, stream *mongo.ChangeStream, session *mongo.Session) error {
	for stream.Next(ctx) {
		var e event
		if err := stream.Decode(&e); err != nil {
			return fmt.Errorf("read a change of collection %q: %w", f.source, err)
		}
		if err := f.note(&e, stream.ResumeToken(), session.OperationTime()); err != nil {
			return err
		}
	}
	if err := stream.Err(); err != nil {
		return fmt.Errorf("follow collection %q: %w", f.source, err)
	}
	return fmt.Errorf("follow collection %q: the stream of changes ended: was the database dropped?", f.source)
}

// note takes one change in.
func (f *follower) note(e *event, token bson.Raw, at *bson.Timestamp) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.token = slices.Clone(token)
	if at != nil {
		f.at = *at
	}
	switch {
	case e.NS.Collection == stateCollection:
		if e.Beat == 0 {
			return nil
		}
		f.seen, f.heard = e.Beat, time.Now()
	case f.gone:
		return nil
	case e.Operation == "insert" || e.Operation == "update" || e.Operation == "replace" || e.Operation == "delete":
		key, err := groupOf(e.Key.Lookup("_id"), f.span)
		if err != nil {
			return fmt.Errorf("collection %q: %w", f.source, err)
		}
		f.touched[key] = struct{}{}
	case e.Operation == "drop" || e.Operation == "rename" || e.Operation == "dropDatabase":
		f.gone = true // by this process, or the next look at the collection will tell
	}
	close(f.news)
	f.news = make(chan struct{})
	return nil
}

func (f *follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	close(f.news)
	f.news = make(chan struct{})
}

// sync returns when all has been seen that was written before it was called.
func (f *follower) sync(ctx context.Context) error {
	beat, err := f.job.renew(ctx)
	if err != nil {
		return err
	}
	for {
		f.mu.Lock()
		seen, news, err := f.seen, f.news, f.err
		f.mu.Unlock()
		if err != nil || seen >= beat {
			return err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A harvest is what was touched until some moment.
type harvest struct {
	keys  []groupKey // in their order
	token bson.Raw
	at    bson.Timestamp
	gone  bool
}

// take returns what was touched since it was last called. The caller makes all
// of it anew, or gives it back.
func (f *follower) take() (harvest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := harvest{keys: make([]groupKey, 0, len(f.touched)), token: f.token, at: f.at, gone: f.gone}
	for k := range f.touched {
		h.keys = append(h.keys, k)
	}
	clear(f.touched)
	slices.SortFunc(h.keys, groupKey.compare)
	return h, f.err
}

// add has groups made anew that were not touched, or not made anew after all.
func (f *follower) add(keys ...groupKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range keys {
		f.touched[k] = struct{}{}
	}
}

// has reports which of the groups are to be made anew.
func (f *follower) has(keys []groupKey) map[groupKey]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	in := make(map[groupKey]bool)
	for _, k := range keys {
		if _, ok := f.touched[k]; ok {
			in[k] = true
		}
	}
	return in
}

// behind is how long no sign of life has come by, beyond what is usual.
func (f *follower) behind() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(0, time.Since(f.heard)-2*f.job.lease/beatsPerLease)
}
