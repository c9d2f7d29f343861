package maintain

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	monitor "go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// A haltedMove is that of a process that is stopped right before it sends a command, and
// sends none until it goes on.
type haltedMove struct {
	db      *mongo.Database // as that process has it
	stopped chan struct{}
	goOn    chan struct{}
}

// halting stops at the first command that at tells.
func halting(t *testing.T, db *mongo.Database, at func(context.Context, *monitor.CommandStartedEvent) bool) *haltedMove {
	t.Helper()
	s := &haltedMove{stopped: make(chan struct{}), goOn: make(chan struct{})}
	var once sync.Once
	s.db = monitored(t, db, &monitor.CommandMonitor{
		Started: func(ctx context.Context, e *monitor.CommandStartedEvent) {
			if at(ctx, e) {
				once.Do(func() { close(s.stopped) })
			}
			select {
			case <-s.stopped:
				<-s.goOn
			default:
			}
		},
	})
	return s
}

// moves begins a move in the process, and returns when that stands still.
func (s *haltedMove) moves(t *testing.T, cfg Config) (ended func() error) {
	t.Helper()
	cfg.Database = s.db
	result := make(chan error, 1)
	var moving sync.WaitGroup
	moving.Go(func() {
		_, err := Move(context.WithoutCancel(t.Context()), cfg)
		result <- err
	})
	select {
	case <-s.stopped:
	case err := <-result:
		require.FailNow(t, "the move ended before it stood still", "%v", err)
	}
	return func() error {
		close(s.goOn)
		moving.Wait()
		return <-result
	}
}

// shortLease is soon over.
const shortLease = 4 * time.Second

func TestStalledProcessDoesNotWriteTheCopy(t *testing.T) {
	t.Parallel()
	mongodtest.Native(t, "a move loses its short lease where answers are slow")
	db := database(t)
	coll := stocked(t, db, 3, 5)
	cfg := recompressing(db)
	cfg.Lease, cfg.SameDocuments = shortLease, false // without counting readings
	first := halting(t, db, func(_ context.Context, e *monitor.CommandStartedEvent) bool {
		name, _ := e.Command.Lookup(e.CommandName).StringValueOK()
		return e.CommandName == "delete" && name == newName(testStream)
	})
	ended := first.moves(t, cfg)
	before := everything(t, coll)
	cfg.Lease = 0
	var late error
	cfg.Progress = func(p Progress) {
		if p.Phase == phaseFence && late == nil { // all was compared
			late = ended()
		}
	}
	_, err := Move(t.Context(), cfg)
	require.NoError(t, err)
	require.Error(t, late)
	require.NotErrorIs(t, late, context.Canceled, "the error says why the move was canceled")
	assert.Equal(t, before, everything(t, coll))
}

func TestUnansweredWriteRepeatsTheComparison(t *testing.T) {
	t.Parallel()
	db := database(t)
	stocked(t, db, 40, 60)
	cfg := recompressing(db)
	cfg.SameDocuments = false // without counting readings
	m, err := newMove(t.Context(), cfg, false)
	require.NoError(t, err)
	defer func() { _ = m.giveUp(errors.New("end")) }()
	require.NoError(t, m.begin())
	require.NoError(t, m.prepare())
	require.NoError(t, m.startCopy())
	require.NoError(t, m.copyGroups())
	m.job.state.Phase = phaseVerify
	require.NoError(t, m.verify())
	m.job.state.Verified = &groupKey{"s-9", bson.NewDateTimeFromTime(testStart)} // as of a larger collection

	_, err = m.to.coll.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: movedID("s-1", 1, 0)}})
	require.NoError(t, err)
	m.job.state.Unsure = true
	require.NoError(t, m.exchange())
	require.NoError(t, m.finish())
	n, err := db.Collection(testStream).CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 40*60*2, n)
}

func TestOrphanedWorkIsComparedAgain(t *testing.T) {
	t.Parallel()
	db := database(t)
	stocked(t, db, 5, 5)
	killed(t, recompressing(db), drained())
	// What the killed process had sent is carried out late.
	_, err := db.Collection(stateCollection).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: testStream}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "verified", Value: groupKey{"s-9", bson.NewDateTimeFromTime(testStart)}}}}})
	require.NoError(t, err)
	_, err = db.Collection(newName(testStream)).DeleteOne(t.Context(), bson.D{{Key: "_id", Value: movedID("s-1", 1, 0)}})
	require.NoError(t, err)
	cfg := recompressing(db)
	cfg.SameDocuments = false // without counting readings
	_, err = Move(t.Context(), cfg)
	require.NoError(t, err)
	n, err := db.Collection(testStream).CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 50, n)
}

// halfHours are groups of another span than Identity's.
type halfHours struct{ Identity }

func (halfHours) Span() time.Duration { return 30 * time.Minute }

func TestKillWhileACopyIsBegunAnewIsSurvived(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, Config){
		"the same again": func(t *testing.T, cfg Config) {
			t.Helper()
			_, err := Move(t.Context(), cfg)
			require.NoError(t, err)
		},
		"given up": func(t *testing.T, cfg Config) {
			t.Helper()
			require.NoError(t, Abort(t.Context(), cfg))
			assert.ElementsMatch(t, []string{testStream, stateCollection}, names(t, cfg.Database))
			_, err := Move(t.Context(), cfg)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			coll := stocked(t, db, 3, 5)
			before := everything(t, coll)
			killed(t, recompressing(db), copied())
			other := recompressing(db)
			other.Reshaper = halfHours{}
			killed(t, other, created())
			end(t, other)
			assert.Equal(t, before, everything(t, coll))
		})
	}
}

func TestStalledProcessDoesNotLiftAnotherFence(t *testing.T) {
	t.Parallel()
	mongodtest.Native(t, "a move loses its short lease where answers are slow")
	db := database(t)
	coll := stocked(t, db, 3, 5)
	cfg := recompressing(db)
	cfg.Lease, cfg.FenceLimit = shortLease, shortLease/4
	first := halting(t, db, func(ctx context.Context, e *monitor.CommandStartedEvent) bool {
		if e.CommandName != "count" {
			return false
		}
		<-ctx.Done() // daemons have waited for as long as is allowed
		return true
	})
	ended := first.moves(t, cfg)
	cfg.Lease, cfg.FenceLimit = 0, 0
	var late, refused error
	cfg.Database = comingTo(t, db, drained(), func() {
		late = ended()
		_, refused = coll.InsertOne(context.WithoutCancel(t.Context()), movedPart("s-1", 77, 0))
	})
	_, err := Move(t.Context(), cfg)
	require.NoError(t, err)
	require.Error(t, late)
	require.NotErrorIs(t, late, context.Canceled, "the error says why the move was canceled")
	require.Error(t, refused, "what comes behind the last look at the source would be lost")
	assert.Len(t, everything(t, coll), 30)
}

func TestNamesAreExchangedBehindAFenceOnly(t *testing.T) {
	t.Parallel()
	db := database(t)
	coll := stocked(t, db, 3, 5)
	cfg := recompressing(db)
	cfg.FenceLimit = time.Second
	lifted := false
	cfg.Database = comingTo(t, db, drained(), func() {
		if lifted {
			return
		}
		lifted = true
		ctx := context.WithoutCancel(t.Context())
		assert.NoError(t, liftFence(ctx, db, testStream, validation{}))
		_, err := coll.InsertOne(ctx, movedPart("s-1", 77, 0))
		assert.NoError(t, err)
	})
	_, err := Move(t.Context(), cfg)
	require.NoError(t, err)
	assert.Len(t, everything(t, coll), 31)
}
