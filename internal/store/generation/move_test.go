package generation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/claim"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// form is a daemon's way to store readings.
type form struct {
	Target

	format store.Format
	sealed bool // sealed after each write
}

func documents() form { return form{Target: snappy()} }
func columns() form   { return form{Target: zstd(), format: store.Columns} }
func native() form    { return form{Target: series()} }

// direction is a move from one form to another.
type direction struct {
	name       string
	from, into form
}

// directions are all kinds of moves.
func directions() []direction {
	return []direction{
		{"buckets into buckets", documents(), columns()},
		{"sealed buckets into buckets", form{Target: zstd(), format: store.Columns, sealed: true}, documents()},
		{"buckets into a time series", form{Target: zstd(), format: store.Columns, sealed: true}, native()},
		{"a time series into buckets", native(), documents()},
		{"a time series into columns", native(), columns()},
		{"a time series into a time series", native(), form{Target: Target{store.TimeSeries, store.Zstd}}},
	}
}

// history is a stream and its acknowledged readings.
type history struct {
	t    *testing.T
	db   *mongo.Database
	log  *faulttest.Log
	next int64                          // number of the next reading
	want map[string][]telemetry.Reading // by sensor
	// perWrite is the number of readings per sensor and generation.
	perWrite int
}

func newHistory(t *testing.T) *history {
	t.Helper()
	return &history{t: t, db: mongodtest.Database(t), log: faulttest.NewLog(), want: make(map[string][]telemetry.Reading), perWrite: 8}
}

// moved returns a history of two generations, the first of which is to be moved into the second.
func moved(t *testing.T, d direction) *history {
	t.Helper()
	h := newHistory(t)
	h.write(d.from, "a", "b/é", "c")
	h.write(d.into, "b/é", "c", "d")
	return h
}

// maxPart is the number of readings per part, so that windows have several.
const maxPart = 3

// store returns a daemon's store.
func (h *history) store(f form) *Store {
	h.t.Helper()
	s, err := New(Config{
		Config: store.Config{
			Database: h.db, Stream: storetest.Stream, Granularity: store.MaxGranularity, Compressor: f.Compressor,
			Format: f.format, MaxReadings: maxPart, MaxBytes: 100 << 10, Registerer: prometheus.NewRegistry(),
		},
		Storage: f.Storage,
	})
	require.NoError(h.t, err)
	s.registry.pause = 0 // others that read the list do not know it yet
	return s
}

// write stores readings of the sensors through a daemon, several with the same time.
func (h *history) write(f form, sensors ...string) {
	h.t.Helper()
	s := h.store(f)
	require.NoError(h.t, s.Prepare(h.t.Context()))
	var readings []telemetry.Reading
	first := h.next
	for _, sensor := range sensors {
		for i := range h.perWrite {
			mark := faulttest.Mark{Producer: 1, Number: h.next}
			at := time.Duration(i/3)*time.Minute + time.Duration(i/6)*time.Hour
			r := telemetry.Reading{Sensor: sensor, Time: storetest.Base.Add(at), Tags: mark.Tags(sensor), Fields: []telemetry.Field{
				{Name: "number", Value: telemetry.IntValue(mark.Number)}, {Name: "producer", Value: telemetry.IntValue(mark.Producer)},
				{Name: "v", Value: telemetry.FloatValue(float64(h.next) / 4)}, {Name: "x", Value: telemetry.TextValue("text")}, {Name: "y", Value: telemetry.BoolValue(true)},
			}}
			readings = append(readings, r)
			h.want[sensor] = append(h.want[sensor], r)
			h.next++
		}
	}
	storetest.WriteAll(h.t, s, storetest.Pending(storetest.Batch(h.t, batch.NewSession(), 1, readings...), store.MaxGranularity))
	h.log.Note(faulttest.Entry{Event: "attempt", Producer: 1, From: first, Count: len(readings)})
	h.log.Note(faulttest.Entry{Event: "answer", Producer: 1, From: first, Count: len(readings), Code: 200})
	if !f.sealed {
		return
	}
	of := s.Bucket()
	for doc, err := range of.Unsealed(h.t.Context(), sensors[0], 0, 1<<50, 0) {
		require.NoError(h.t, err)
		one, err := of.NewSealer().Seal(slices.Clone(doc), storetest.Base)
		require.NoError(h.t, err)
		_, err = of.ApplySeals(h.t.Context(), []bucket.Seal{one})
		require.NoError(h.t, err)
	}
}

func always(sensor string) telemetry.Query { return telemetry.Query{Sensor: sensor, To: 1 << 50} }

func byName(r telemetry.Reading) telemetry.Reading {
	r.Fields = slices.SortedFunc(slices.Values(r.Fields), func(a, b telemetry.Field) int { return strings.Compare(a.Name, b.Name) })
	return r
}

func all[T any](t require.TestingT, seq iter.Seq2[T, error]) (out []T) {
	for item, err := range seq {
		require.NoError(t, err)
		out = append(out, item)
	}
	return out
}

// answered checks that every kind of answer has each reading once.
func (h *history) answered(s *Store) {
	h.t.Helper()
	ctx := context.Background()
	var sensors []telemetry.SensorSeen
	for _, sensor := range slices.Sorted(maps.Keys(h.want)) {
		want := h.want[sensor]
		got := all(h.t, s.Readings(ctx, always(sensor)))
		require.True(h.t, slices.IsSortedFunc(got, func(a, b telemetry.Reading) int { return a.Time.Compare(b.Time) }))
		for i := range got {
			got[i] = byName(got[i])
		}
		slices.SortFunc(got, func(a, b telemetry.Reading) int { return cmp.Compare(a.Fields[0].Value.Int(), b.Fields[0].Value.Int()) })
		require.Equal(h.t, want, got, sensor)
		numbers := telemetry.FieldSummary{Name: "number"}
		for _, r := range want {
			numbers.N++
			numbers.Sum += float64(r.Fields[0].Value.Int())
		}
		sums := all(h.t, s.Summary(ctx, telemetry.SummaryQuery{Query: always(sensor)}))
		require.Len(h.t, sums, 1, sensor)
		require.EqualValues(h.t, len(want), sums[0].Count, sensor)
		require.Equal(h.t, "number", sums[0].Fields[0].Name)
		require.Equal(h.t, numbers.N, sums[0].Fields[0].N)
		require.InDelta(h.t, numbers.Sum, sums[0].Fields[0].Sum, 1e-9)
		last := slices.MaxFunc(want, func(a, b telemetry.Reading) int { return a.Time.Compare(b.Time) }).Time
		latest, found, err := s.Latest(ctx, sensor, nil)
		require.NoError(h.t, err)
		require.True(h.t, found)
		require.Equal(h.t, last, latest.Time)
		require.Contains(h.t, want, byName(latest))
		newest, found, err := s.Newest(ctx, sensor)
		require.NoError(h.t, err)
		require.True(h.t, found)
		require.Equal(h.t, last.UnixMilli(), newest)
		sensors = append(sensors, telemetry.SensorSeen{Sensor: sensor, Newest: last.UnixMilli()})
	}
	require.Equal(h.t, sensors, all(h.t, s.Sensors(ctx, telemetry.SensorQuery{})))
}

// isGone checks that no answer has anything of the sensor.
func (h *history) isGone(s *Store, sensor, when string) {
	h.t.Helper()
	ctx := h.t.Context()
	require.Empty(h.t, all(h.t, s.Readings(ctx, always(sensor))), when)
	require.Empty(h.t, all(h.t, s.Summary(ctx, telemetry.SummaryQuery{Query: always(sensor)})), when)
	_, found, err := s.Latest(ctx, sensor, nil)
	require.NoError(h.t, err)
	require.False(h.t, found, "latest; "+when)
	_, found, err = s.Newest(ctx, sensor)
	require.NoError(h.t, err)
	require.False(h.t, found, "newest; "+when)
}

// checked checks that the documents in these collections are correct and hold each reading once.
func (h *history) checked(collections ...string) {
	h.t.Helper()
	result, err := faulttest.Check(h.t.Context(), faulttest.CheckConfig{Log: h.log, Database: h.db, Stream: storetest.Stream, MaxReadings: maxPart})
	require.NoError(h.t, err)
	require.Zero(h.t, result.Wrong(), result.Report())
	names, err := h.db.ListCollectionNames(h.t.Context(), bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: "^readings"}}}})
	require.NoError(h.t, err)
	require.ElementsMatch(h.t, collections, names)
	found, err := Read(h.t.Context(), h.db, storetest.Stream)
	require.NoError(h.t, err)
	require.Len(h.t, found.Generations, len(collections))
}

// mover moves what daemons stored to where others of the form f write, without waiting for daemons
// and queries.
func (h *history) mover(f form) *Mover {
	m := NewMover(MoveConfig{
		Config: store.Config{Database: h.db, Stream: storetest.Stream, Granularity: store.MaxGranularity, Format: f.format, MaxReadings: maxPart, MaxBytes: 100 << 10},
		Claims: h.db, Place: "here", Pause: time.Nanosecond,
	})
	m.registry.pause = 0
	return m
}

// commands calls hooks around the commands of one client.
type commands struct {
	before, after func(command bson.Raw) // nil: none
}

// watched returns the history's database through a separate client.
func (h *history) watched() (*mongo.Database, *commands) {
	h.t.Helper()
	var c commands
	var sent bson.Raw
	client, err := mongo.Connect(options.Client().ApplyURI(mongodtest.URI(h.t)).SetMaxPoolSize(1).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if sent = e.Command; c.before != nil {
				c.before(sent)
			}
		},
		Succeeded: func(context.Context, *event.CommandSucceededEvent) {
			if c.after != nil {
				c.after(sent)
			}
		},
	}))
	require.NoError(h.t, err)
	h.t.Cleanup(func() { require.NoError(h.t, client.Disconnect(context.Background())) })
	return client.Database(h.db.Name()), &c
}

func TestPausesWhileMoving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := NewMover(MoveConfig{Share: 0.25})
		m.resumed = time.Now()
		pauseAfter := func(worked time.Duration) time.Duration {
			<-time.After(worked)
			began := time.Now()
			require.NoError(t, m.throttle(t.Context(), 1))
			return time.Since(began)
		}
		assert.Zero(t, pauseAfter(workTime/2), "it goes on for a while")
		assert.Equal(t, 3*workTime, pauseAfter(workTime/2))
		assert.Equal(t, 300*time.Millisecond, pauseAfter(100*time.Millisecond), "a command that takes longer has a longer pause")
		assert.Equal(t, maxPause, pauseAfter(time.Minute))
		m.cfg.Share = 1
		assert.Zero(t, pauseAfter(time.Minute))
		m.cfg.Share = 0
		assert.Zero(t, pauseAfter(time.Minute))
	})
}

// TestEachReadingIsAnsweredOnceWhileAStreamIsMoved, even by daemons that read the list a moment
// earlier.
func TestEachReadingIsAnsweredOnceWhileAStreamIsMoved(t *testing.T) {
	t.Parallel()
	for _, d := range directions() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			h := moved(t, d)
			readers := []*Store{h.store(d.into), h.store(d.from), h.store(d.into)}
			h.answered(readers[0])
			m := h.mover(d.into)
			m.registry.pause, m.cfg.Pause = listTTL/2, listTTL+listTTL/4
			done := make(chan []MovedCollection, 1)
			go func() {
				out, err := m.Run(context.Background())
				assert.NoError(t, err)
				done <- out
			}()
			looks := 0
			for moving := true; moving; looks++ {
				h.answered(readers[looks%len(readers)])
				select {
				case out := <-done:
					moving = false
					assert.Equal(t, []MovedCollection{{"readings", "readings.g2", int64(3 * h.perWrite)}}, out)
				default:
				}
			}
			t.Logf("%d times looked at", looks)
			h.checked("readings.g2")
			for _, s := range readers {
				h.answered(s)
			}
			nothing, err := h.mover(d.into).Run(t.Context())
			require.NoError(t, err)
			require.Empty(t, nothing)
		})
	}
}

// TestAChainOfMoves ends with a collection of the first kind, and a move of two collections.
func TestAChainOfMoves(t *testing.T) {
	t.Parallel()
	for name, kinds := range map[string][]form{
		"buckets":               {documents(), columns(), documents()},
		"through a time series": {documents(), native(), columns()},
		"back to a time series": {native(), documents(), native()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(t)
			for i, f := range kinds {
				h.write(f, "a", "b", "c"+f.String())
				out, err := h.mover(f).Run(t.Context())
				require.NoError(t, err)
				require.Len(t, out, min(i, 1))
			}
			h.checked("readings.g3")
			h.answered(h.store(kinds[2]))
			// Two moves at once, into the first of three, which daemons write to.
			h.write(kinds[1], "b", "d")
			h.write(form{Target: Target{store.TimeSeries, store.Zstd}}, "b", "e")
			h.use("s", func(u *holder) { u.writes, u.place = kinds[2].Target, "readings.g3" })
			out, err := h.mover(kinds[2]).Run(t.Context())
			require.NoError(t, err)
			require.Len(t, out, 2)
			h.checked("readings.g3")
			h.answered(h.store(kinds[2]))
		})
	}
}

// TestAMoveIsInterruptedAtEachCommand and resumed: before and after the first command, the second,
// and so on to the end.
func TestAMoveIsInterruptedAtEachCommand(t *testing.T) {
	t.Parallel()
	for _, d := range directions() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			h := moved(t, d)
			db, of := h.watched()
			last, n := errors.New("not begun"), 0
			for last != nil {
				n++
				require.Less(t, n, 200, "%v", last)
				ctx, cancel := context.WithCancel(t.Context())
				seen := 0
				count := func(bson.Raw) {
					if seen++; seen == n {
						cancel()
					}
				}
				if of.before, of.after = count, nil; n%2 == 0 { // the previous one, after its execution
					seen, of.before, of.after = 1, nil, count
				}
				m := h.mover(d.into)
				m.cfg.Database, m.registry.database = db, db
				_, last = m.Run(ctx)
				cancel()
				if n%5 == 0 {
					h.answered(h.store(d.into))
				}
			}
			t.Logf("interrupted at %d commands", n-1)
			h.checked("readings.g2")
		})
	}
}

// TestSensorsAreDeletedWhileAStreamIsMoved and do not come back, whichever command of the move
// coincides: a sensor being copied, one already copied, and one not yet copied.
func TestSensorsAreDeletedWhileAStreamIsMoved(t *testing.T) {
	t.Parallel()
	for _, d := range directions() {
		for _, interrupted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, interrupted: %t", d.name, interrupted), func(t *testing.T) {
				t.Parallel()
				deletions(t, d, interrupted)
			})
		}
	}
}

// deletions deletes a sensor at each command of a move, and at every seventh while it copies sensor
// by sensor, which covers all commands. If interrupted, the move stops after a deletion, each time
// a few commands later.
func deletions(t *testing.T, d direction, interrupted bool) {
	t.Helper()
	h := newHistory(t)
	h.perWrite = 4
	var left []string // that will be deleted
	for i := range 24 {
		left = append(left, fmt.Sprintf("s%02d", i))
	}
	h.write(d.from, append([]string{"s", "t"}, left...)...)
	h.write(d.into, append([]string{"t"}, left[8:16]...)...)
	db, of := h.watched()
	deleter := h.store(d.into)
	n, end, copying, deleted := 0, 4, "", make(map[string]string)
	cancel := func() {}
	of.before = func(command bson.Raw) {
		n++
		both := d.from.Storage == store.Bucket && d.into.Storage == store.Bucket
		if len(left) == 0 || copying != "" && !both && n%7 != 0 && !interrupted || interrupted && n != end {
			return
		}
		at := 0
		switch i, found := slices.BinarySearch(left, copying); {
		case n%3 == 0 && found:
			at = i
		case n%3 == 1:
			at = len(left) - 1
		}
		sensor := left[at]
		deleted[sensor] = fmt.Sprintf("deleted before command %d, %s, while %q was copied", n, command.Index(0), copying)
		left = slices.Delete(left, at, at+1)
		_, err := deleter.Delete(context.Background(), sensor)
		assert.NoError(t, err)
		if interrupted {
			cancel()
		}
	}
	for runs := 1; ; runs++ {
		require.Less(t, runs, 100)
		if interrupted {
			n, end = 0, end+7
		}
		var ctx context.Context
		ctx, cancel = context.WithCancel(t.Context())
		m := h.mover(d.into)
		m.cfg.Database, m.registry.database = db, db
		m.cfg.Progress = func(p MoveProgress) { copying = p.Sensor }
		_, err := m.Run(ctx)
		cancel()
		if err == nil {
			t.Logf("%d deletions, %d commands in run %d", len(deleted), n, runs)
			break
		}
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NotEmpty(t, deleted)
	s := h.store(d.into)
	for sensor, when := range deleted {
		h.isGone(s, sensor, when)
		delete(h.want, sensor)
	}
	h.answered(s)
}

// holder is a daemon that claims a session.
type holder struct {
	session, dir string
	writes       Target
	place        string // where the session's readings go
	older        bool   // a release without moves
	kept         bool   // stops with readings in its journal
	lost         []string
	claims       *claim.Claims
}

// use claims a session.
func (h *history) use(session string, change func(*holder)) *holder {
	h.t.Helper()
	u := &holder{session: session, dir: "/" + session, place: "readings", writes: snappy()}
	change(u)
	h.claim(u)
	require.NoError(h.t, u.claims.Ensure(h.t.Context()))
	return u
}

// claim creates a process's claims.
func (h *history) claim(u *holder) {
	cfg := claim.Config{
		Database: h.db, Sessions: func() []string { return []string{u.session} },
		OnLost: func(session string) error { u.lost = append(u.lost, session); return nil },
		Holder: claim.Holder{Host: "host", Dir: u.dir, Lock: "lock of " + u.dir, Daemon: "daemon " + u.dir, Moves: !u.older, Writes: map[string]string{storetest.Stream: u.writes.String()}},
	}
	if !u.older {
		cfg.Places = func(string) map[string]string { return map[string]string{storetest.Stream: u.place} }
	}
	if u.kept {
		cfg.Unstored = cfg.Sessions
	}
	u.claims = claim.New(cfg)
}

// age makes all claims as old as those of killed processes.
func (h *history) age() {
	h.t.Helper()
	_, err := h.db.Collection(claim.Collection).UpdateMany(h.t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "renewed", Value: time.Now().Add(-time.Minute)}}}})
	require.NoError(h.t, err)
}

// TestAStreamThatDaemonsUseIsNotMoved: nothing is changed, and the message says what to do.
func TestAStreamThatDaemonsUseIsNotMoved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		use  func(h *history)
		says []string
	}{
		"a daemon writes it": {
			func(h *history) { h.use("s", func(*holder) {}) },
			nil, // it is moved into
		},
		"one writes it, and one the other": {
			func(h *history) {
				h.use("s", func(*holder) {})
				h.use("t", func(u *holder) { u.writes, u.place = zstd(), "readings.g2" })
			},
			[]string{`daemons write both "readings" (bucket/snappy) and "readings.g2" (bucket/zstd): restart them all with the same --storage and --compressor`},
		},
		"one has readings for it": {
			func(h *history) { h.use("s", func(u *holder) { u.writes = zstd() }) },
			[]string{`collection "readings" of stream "readings" is still in use`, "with the journal in /s", "has readings for it in its journal and is storing them: try again in a moment"},
		},
		"one is starting": {
			func(h *history) {
				h.use("s", func(u *holder) { u.writes, u.place = zstd(), snappy().String() })
			},
			[]string{"is starting: try again in a moment"},
		},
		"one stopped with readings": {
			func(h *history) {
				h.use("s", func(u *holder) { u.kept = true }).claims.Close(context.Background())
			},
			[]string{"has stopped with readings for it in its journal: start that daemon again, or give its readings up with --abandon host:/s"},
		},
		"one was killed": {
			func(h *history) { h.use("s", func(*holder) {}); h.age() },
			[]string{"was killed, so its journal may hold readings for it: start that daemon again, or give its readings up with --abandon host:/s"},
		},
		"two were killed": {
			func(h *history) { h.use("s", func(*holder) {}); h.use("t", func(*holder) {}); h.age() },
			[]string{"--abandon host:/s", "--abandon host:/t"},
		},
		"one is of an earlier release": {
			func(h *history) { h.use("s", func(u *holder) { u.older, u.writes = true, zstd() }) },
			[]string{"is of an earlier release, whose queries would count copies: upgrade it"},
		},
		"one of an earlier release was killed": {
			func(h *history) { h.use("s", func(u *holder) { u.older, u.writes = true, zstd() }); h.age() },
			[]string{"is of an earlier release, whose queries would count copies: upgrade it: start that daemon again, or give its readings up with --abandon host:/s"},
		},
		"one that uses the other": {
			func(h *history) {
				h.use("s", func(u *holder) { u.writes, u.place = zstd(), "readings.g2" })
				h.use("t", func(u *holder) { u.writes, u.place, u.kept = zstd(), "readings.g2", true }).claims.Close(context.Background())
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(t)
			h.write(documents(), "a")
			h.write(columns(), "a", "b")
			c.use(h)
			before := list(t, h.db)
			_, err := h.mover(columns()).Run(t.Context())
			h.answered(h.store(columns()))
			if c.says == nil {
				require.NoError(t, err)
				require.Len(t, list(t, h.db), 1)
				return
			}
			var busy *BusyError
			require.ErrorAs(t, err, &busy)
			for _, want := range c.says {
				require.ErrorContains(t, err, want)
			}
			require.Equal(t, before, list(t, h.db))
			h.write(documents(), "a") // not fenced
		})
	}
}

// TestAnAbandonedJournalIsNotReplayed: a running daemon cannot be abandoned, and one that comes
// back has lost its unstored readings.
func TestAnAbandonedJournalIsNotReplayed(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.write(documents(), "a")
	h.write(columns(), "a")
	abandon := func() error {
		m := h.mover(columns())
		m.cfg.Abandon = []string{"host:/s"}
		_, err := m.Run(t.Context())
		return err
	}
	require.ErrorContains(t, abandon(), `no daemon "host:/s" has readings for stream "readings"`)
	u := h.use("s", func(u *holder) { u.writes = zstd() })
	require.ErrorContains(t, abandon(), "runs, or did until some seconds ago, so it cannot be abandoned: stop it first")
	h.age()
	require.NoError(t, abandon())
	h.checked("readings.g2")
	h.claim(u) // it comes back
	require.NoError(t, u.claims.Ensure(t.Context()))
	require.Error(t, u.claims.Lost("s"))
	require.Equal(t, []string{"s"}, u.lost)
	uses, err := claim.Uses(t.Context(), h.db, storetest.Stream)
	require.NoError(t, err)
	require.Empty(t, uses)
}

// meanwhile makes the mover call do once while it waits for all daemons to learn of the mark.
func meanwhile(m *Mover, do func()) {
	m.cfg.Progress = func(p MoveProgress) {
		if p.Note == "waiting until all daemons know" {
			do()
		}
	}
}

// TestADaemonThatStartsWhileAGenerationIsMarked may have read the list before, and writes to it; or
// after, and adds another one.
func TestADaemonThatStartsWhileAGenerationIsMarked(t *testing.T) {
	t.Parallel()
	t.Run("read before", func(t *testing.T) {
		t.Parallel()
		h := newHistory(t)
		h.write(documents(), "a")
		early := h.store(documents())
		require.NoError(t, early.Prepare(t.Context()))
		h.write(columns(), "a")
		m := h.mover(columns())
		meanwhile(m, func() { h.use("s", func(*holder) {}) })
		_, err := m.Run(t.Context())
		var busy *BusyError
		require.ErrorAs(t, err, &busy)
		require.ErrorContains(t, err, "writes it: restart it with --storage bucket --compressor zstd")
		found, err := Read(t.Context(), h.db, storetest.Stream)
		require.NoError(t, err)
		require.Nil(t, found.Generations[0].Moving, "the mark is taken back")
		put(t, early, "s", 1) // and the fence
		require.Equal(t, []string{"readings bucket/snappy open", "readings.g2 bucket/zstd open"}, list(t, h.db))
	})
	t.Run("read after", func(t *testing.T) {
		t.Parallel()
		h := newHistory(t)
		h.write(documents(), "a")
		h.write(columns(), "a")
		m := h.mover(columns())
		var u *holder
		meanwhile(m, func() {
			u = h.use("s", func(u *holder) { u.place = snappy().String() }) // claims come before the list is read
			h.write(documents(), "a", "b")
		})
		_, err := m.Run(t.Context())
		var busy *BusyError
		require.ErrorAs(t, err, &busy)
		require.ErrorContains(t, err, "is starting: try again in a moment")
		require.Equal(t, []string{"readings bucket/snappy open", "readings.g2 bucket/zstd open", "readings.g3 bucket/snappy open"}, list(t, h.db))
		found, err := Read(t.Context(), h.db, storetest.Stream)
		require.NoError(t, err)
		require.Equal(t, 2, found.find(snappy()), "what was accepted for the target is not written elsewhere")
		require.NotNil(t, found.Generations[0].Moving)
		h.answered(h.store(documents()))
		u.place = "readings.g3"
		require.NoError(t, u.claims.Ensure(t.Context()))
		u.claims.Close(t.Context())
		u = h.use("t", func(u *holder) { u.place = "readings.g3" })
		_, err = h.mover(documents()).Run(t.Context())
		require.NoError(t, err)
		h.checked("readings.g3")
		h.answered(h.store(documents()))
	})
}

// comeBack stores readings in two forms. tryMove moves those of the first form, and finds that a
// daemon has come back during the copying: early is its store. leave ends that daemon.
func (h *history) comeBack(from, into form, as func(*holder)) (early *Store, tryMove, leave func()) {
	h.t.Helper()
	h.write(from, "a")
	early = h.store(from)
	require.NoError(h.t, early.Prepare(h.t.Context()))
	h.write(into, "a")
	m := h.mover(into)
	var u *holder
	m.cfg.Progress = func(p MoveProgress) {
		if p.Sensor != "" && u == nil {
			u = h.use("s", as)
		}
	}
	tryMove = func() {
		h.t.Helper()
		_, err := m.Run(h.t.Context())
		var busy *BusyError
		require.ErrorAs(h.t, err, &busy)
		require.ErrorContains(h.t, err, "writes it")
	}
	return early, tryMove, func() { u.claims.Close(h.t.Context()) }
}

// TestADaemonThatComesBackWhileAGenerationIsCopied may write to a time series, which cannot be
// fenced, so claims are checked again.
func TestADaemonThatComesBackWhileAGenerationIsCopied(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	early, tryMove, leave := h.comeBack(native(), documents(), func(u *holder) { u.writes = series() })
	tryMove()
	late := storetest.Reading("late", 0, 1)
	storetest.WriteAll(t, early, storetest.Pending(storetest.Batch(t, "s", 1, late), store.MaxGranularity))
	leave()
	_, err := h.mover(documents()).Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"readings.g2 bucket/snappy open"}, list(t, h.db))
	now := h.store(documents())
	require.Equal(t, []telemetry.Reading{late}, all(t, now.Readings(t.Context(), always("late"))))
	h.want["late"] = []telemetry.Reading{late}
	require.Len(t, all(t, now.Readings(t.Context(), always("a"))), 2*h.perWrite)
}

// TestADaemonThatComesBackWhileBucketsAreCopied cannot write to them, however often the move is
// retried: after the copying, new readings would be lost.
func TestADaemonThatComesBackWhileBucketsAreCopied(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	early, tryMove, leave := h.comeBack(documents(), columns(), func(*holder) {})
	for range 2 {
		tryMove()
		late := storetest.Pending(storetest.Batch(t, "s", 1, storetest.Reading("a", 0, 1)), store.MaxGranularity)
		for range 5 { // the first attempts look for the part
			early.Write(t.Context(), late)
		}
		require.NotEqual(t, batch.Stored, late[0].Verdict)
	}
	leave()
	_, err := h.mover(columns()).Run(t.Context())
	require.NoError(t, err)
	h.checked("readings.g2")
	h.answered(h.store(columns()))
}

// TestADelayedUpdateIsRefused if it arrives from an ended process during the copying.
func TestADelayedUpdateIsRefused(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.write(documents(), "a")
	early := h.store(documents())
	require.NoError(t, early.Prepare(t.Context()))
	h.write(columns(), "b")
	m := h.mover(columns())
	sent := 0
	m.cfg.Progress = func(p MoveProgress) {
		if p.Sensor == "" || sent > 0 {
			return
		}
		sent++
		late := storetest.Pending(storetest.Batch(t, "late", 1, storetest.Reading("a", 0, 1)), store.MaxGranularity)
		for range 5 { // the first attempts look for the part
			early.Write(context.Background(), late)
		}
		assert.NotEqual(t, batch.Stored, late[0].Verdict, "the update is executed")
		assert.Len(t, late[0].Rows, 1)
	}
	_, err := m.Run(t.Context())
	require.NoError(t, err)
	require.Positive(t, sent)
	h.checked("readings.g2")
	h.answered(h.store(columns()))
}

// TestTwoMovers do not run at the same time.
func TestTwoMovers(t *testing.T) {
	t.Parallel()
	h := moved(t, directions()[0])
	m := h.mover(columns())
	meanwhile(m, func() {
		_, err := h.mover(columns()).Run(t.Context())
		assert.ErrorContains(t, err, "another `brim move` of stream \"readings\" runs on this machine")
	})
	_, err := m.Run(t.Context())
	require.NoError(t, err)
	h.checked("readings.g2")

	// A mover on another machine renews its claim.
	elsewhere := h.claims("elsewhere")
	require.NoError(t, elsewhere.Ensure(t.Context()))
	db, of := h.watched()
	of.before = func(command bson.Raw) {
		if name, _ := command.Index(0).Value().StringValueOK(); name == claim.Collection {
			_, err := h.db.Collection(claim.Collection).UpdateByID(context.Background(), claim.Lease(storetest.Stream), bson.D{{Key: "$set", Value: bson.D{{Key: "beat", Value: fmt.Sprint(time.Now().UnixNano())}}}})
			assert.NoError(t, err)
		}
	}
	m = h.mover(columns())
	m.cfg.Claims = db
	_, err = m.Run(t.Context())
	require.ErrorContains(t, err, "another `brim move` of stream \"readings\" runs: process 0 on elsewhere")
}

// claims are those of a mover on another machine.
func (h *history) claims(host string) *claim.Claims {
	return claim.New(claim.Config{
		Database: h.db, Holder: claim.Holder{Host: host}, OnLost: func(string) error { return nil },
		Sessions: func() []string { return []string{claim.Lease(storetest.Stream)} },
	})
}

// TestRetentionWhileAStreamIsMoved: originals expire just after or while their copies are made,
// including in a move that is then interrupted.
func TestRetentionWhileAStreamIsMoved(t *testing.T) {
	t.Parallel()
	for _, d := range directions() {
		for insert := range 2 {
			t.Run(fmt.Sprintf("%s, insert %d", d.name, insert), func(t *testing.T) {
				t.Parallel()
				expired(t, d, insert, insert == 0)
			})
		}
	}
}

// expired makes the first hour expire when copies are inserted for the first or second time.
func expired(t *testing.T, d direction, insert int, interrupted bool) {
	t.Helper()
	h := newHistory(t)
	h.write(d.from, "a", "b")
	h.write(d.into, "c")
	db, of := h.watched()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hour := storetest.Base.Add(time.Hour)
	seen := 0
	of.after = func(command bson.Raw) {
		into, _ := command.Lookup("insert").StringValueOK()
		if into != "readings.g2" {
			return
		}
		if seen++; seen != insert+1 {
			return
		}
		name, old := "readings", bson.D{{Key: "bucketStart", Value: storetest.Base}}
		if d.from.Storage == store.TimeSeries {
			name, old = "system.buckets.readings", bson.D{{Key: "control.max.ts", Value: bson.D{{Key: "$lt", Value: hour}}}}
		}
		_, err := h.db.Collection(name).DeleteMany(context.Background(), old)
		assert.NoError(t, err)
		if interrupted {
			cancel()
		}
	}
	for {
		m := h.mover(d.into)
		if m.cfg.Database, m.registry.database = db, db; d.into.format == store.Columns {
			m.cfg.Granularity = 24 * time.Hour // remaining readings form other parts than all of them
		}
		_, err := m.Run(ctx)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, t.Context().Err())
		ctx = t.Context()
	}
	young := func(readings []telemetry.Reading) (out []telemetry.Reading) {
		for _, r := range readings {
			if !r.Time.Before(hour) {
				out = append(out, byName(r))
			}
		}
		return out
	}
	for _, sensor := range []string{"a", "b"} {
		got := all(t, h.store(d.into).Readings(t.Context(), always(sensor)))
		require.ElementsMatch(t, young(h.want[sensor]), young(got))
	}
	h.log.Forgive() // expired readings may be present, once
	h.checked("readings.g2")
}

// TestALongReadOfAStreamThatIsMoved has each reading once, or ends with an error that says why not.
func TestALongReadOfAStreamThatIsMoved(t *testing.T) {
	t.Parallel()
	for _, d := range directions() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			// More than MongoDB's first batch.
			const n = 160
			h := newHistory(t)
			h.fill(d.from, n)
			before := h.store(d.from)
			h.learns(before)
			h.fill(d.into, n)
			both := h.store(d.into)
			began := begin(h, both, telemetry.Query{Sensor: "s", To: 1 << 50})
			copied := begin(h, both, telemetry.Query{Sensor: "s", To: 1 << 50})
			limited := begin(h, both, telemetry.Query{Sensor: "s", To: 1 << 50, Limit: 2 * n})
			old := begin(h, before, telemetry.Query{Sensor: "s", To: 1 << 50})
			m := h.mover(d.into)
			ctx, cancel := context.WithCancel(t.Context())
			m.cfg.Progress = func(p MoveProgress) {
				if strings.HasPrefix(p.Note, "copied") {
					cancel()
				}
			}
			_, err := m.Run(ctx)
			require.ErrorIs(t, err, context.Canceled)
			values, err := copied.rest()
			require.NoError(t, err)
			require.Len(t, values, 2*n)
			_, err = h.mover(d.into).Run(t.Context())
			require.NoError(t, err)
			for name, r := range map[string]*reading{"both": began, "with a limit": limited, "the first alone": old} {
				_, err := r.rest()
				var says *telemetry.Error
				require.ErrorAs(t, err, &says, name)
				require.Equal(t, "stream_moved", says.Code, name)
			}
			values, err = begin(h, h.store(d.into), telemetry.Query{Sensor: "s", To: 1 << 50}).rest()
			require.NoError(t, err)
			require.Len(t, values, 2*n)
		})
	}
}

// fill stores n readings of sensor s, each in its own window.
func (h *history) fill(f form, n int) {
	h.t.Helper()
	s := h.store(f)
	require.NoError(h.t, s.Prepare(h.t.Context()))
	var readings []telemetry.Reading
	for i := range n {
		h.next++
		readings = append(readings, storetest.Reading("s", time.Duration(i)*time.Hour, float64(h.next)))
	}
	storetest.WriteAll(h.t, s, storetest.Pending(storetest.Batch(h.t, batch.NewSession(), 1, readings...), store.MaxGranularity))
}

// learns makes a store read the list.
func (h *history) learns(s *Store) {
	h.t.Helper()
	list, err := Read(h.t.Context(), h.db, storetest.Stream)
	require.NoError(h.t, err)
	_, err = s.setSnapshot(list, time.Now())
	require.NoError(h.t, err)
}

// reading is a long read in progress.
type reading struct {
	values []float64
	next   func() (telemetry.Reading, error, bool)
	stop   func()
}

// begin starts a read and takes one reading.
func begin(h *history, s *Store, q telemetry.Query) *reading {
	h.t.Helper()
	if s.snapshot.Load() == nil {
		h.learns(s)
	}
	s.snapshot.Load().at = time.Now()
	var r reading
	r.next, r.stop = iter.Pull2(s.Readings(h.t.Context(), q))
	h.t.Cleanup(r.stop)
	first, err, some := r.next()
	require.NoError(h.t, err)
	require.True(h.t, some)
	r.values = append(r.values, first.Fields[0].Value.Float())
	s.snapshot.Load().at = time.Now().Add(-time.Hour) // long ago
	return &r
}

// rest reads the remaining ones, and checks that none is repeated.
func (r *reading) rest() ([]float64, error) {
	for {
		one, err, some := r.next()
		if err != nil || !some {
			slices.Sort(r.values)
			if len(slices.Compact(slices.Clone(r.values))) < len(r.values) {
				err = errors.New("readings come twice")
			}
			return r.values, err
		}
		r.values = append(r.values, one.Fields[0].Value.Float())
	}
}

// TestAFormerCollectionThatDoesNotExist was removed by hand, or the daemon that added it was killed
// before creating it.
func TestAFormerCollectionThatDoesNotExist(t *testing.T) {
	t.Parallel()
	for _, d := range directions() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(t)
			h.write(d.from, "a")
			h.write(d.into, "b")
			require.NoError(t, h.db.Collection("readings").Drop(t.Context()))
			delete(h.want, "a")
			h.log.Forgive()
			ctx, cancel := context.WithCancel(t.Context())
			m := h.mover(d.into)
			m.cfg.Progress = func(p MoveProgress) {
				if strings.HasPrefix(p.Note, "copied") {
					cancel()
				}
			}
			_, err := m.Run(ctx)
			require.ErrorIs(t, err, context.Canceled)
			out, err := h.mover(d.into).Run(t.Context())
			require.NoError(t, err)
			require.Len(t, out, 1)
			h.checked("readings.g2")
			h.answered(h.store(d.into))
		})
	}
}
