package timeseries

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
)

// state is what is remembered of a share between writes.
type state struct {
	doubt bool // some rows may be stored already
}

func stateOf(share *batch.Share) *state {
	if st, ok := share.State.(*state); ok {
		return st
	}
	st := &state{doubt: share.Recovered}
	share.State = st
	return st
}

// Write inserts the rows of all shares, unordered and with as few commands as
// are quick to make, after looking for those that an earlier attempt may have
// stored. What is left in a share is not stored, or not known to be, and its
// verdict says what to do.
func (s *Store) Write(ctx context.Context, shares []*batch.Share) {
	to := s.target.Now()
	if to == nil {
		for _, share := range shares {
			share.Verdict, share.Err = batch.Unsent, store.ErrNotPrepared
		}
		return
	}
	in := s.inserts.get()
	defer s.inserts.put(in)
	s.lookWhereInDoubt(ctx, shares)
	for _, share := range shares {
		if share.Verdict == batch.Wait {
			continue
		}
		for _, r := range share.Rows {
			in.readings = append(in.readings, reading{share: share, ref: r})
		}
	}
	if len(in.readings) > 0 {
		s.insert(ctx, in, to)
	}
}

// insert sends the readings of in, all on one logical session.
func (s *Store) insert(ctx context.Context, in *insert, to *store.Prepared) {
	session, err := s.startSession()
	if err != nil {
		unsent(in.readings, err)
		return
	}
	ctx = mongo.NewSessionContext(ctx, session)
	for readings := in.readings; len(readings) > 0; {
		if err := store.Permitted(ctx); err != nil {
			unsent(readings, err)
			break
		}
		n := oneCommand(readings)
		if err := s.command(ctx, in, readings[:n], to); err != nil {
			s.unanswered.add(session, readings[:n])
			// What ended one command would end the next, after another wait.
			unsent(readings[n:], err)
			return
		}
		readings = readings[n:]
	}
	session.EndSession(ctx)
}

func unsent(readings []reading, err error) {
	for _, r := range readings {
		r.share.Verdict, r.share.Err = batch.Unsent, err
	}
}

// command sends some of the readings and settles their shares. An error says
// that the outcome of all is unknown.
func (s *Store) command(ctx context.Context, in *insert, readings []reading, to *store.Prepared) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WriteTimeout)
	defer cancel()
	s.cfg.Faults.At(fault.BeforeBulk)
	took, err := in.send(ctx, s.live.Load().into, readings, to)
	s.cfg.Faults.At(fault.AfterBulk)
	s.target.Wrote(to, err)
	return s.settle(readings, err, took)
}

// lookWhereInDoubt takes the rows away that an earlier attempt stored. A share
// for which that cannot be found out is told to wait.
func (s *Store) lookWhereInDoubt(ctx context.Context, shares []*batch.Share) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WriteTimeout)
	defer cancel()
	waited := false
	for _, share := range shares {
		share.Verdict, share.Err = batch.Stored, nil
		// Rows that an earlier process sent may come in several rounds.
		if !stateOf(share).doubt && !share.Recovered || s.cfg.Faults.Off(fault.SeriesLook) {
			continue
		}
		// So that a majority read misses nothing that was applied, or will be.
		var err error
		if session := s.unanswered.session(share); session != nil {
			err = s.fence(ctx, session)
			waited = err == nil
		} else if !waited {
			err = store.WriteConcern{}.Fence(ctx, s.cfg.Database)
			waited = err == nil
		}
		if err == nil {
			err = s.dropStored(ctx, share)
		}
		if err != nil {
			share.Verdict, share.Err = batch.Wait, err
		}
	}
}

// settle gives every share its outcome, and returns an error where that of all
// is unknown. A share's readings stand together, in the order of its rows.
func (s *Store) settle(readings []reading, err error, took time.Duration) error {
	var bulk mongo.BulkWriteException
	known := err == nil || errors.As(err, &bulk) && bulk.WriteConcernError == nil
	refused := make(map[int]mongo.WriteError, len(bulk.WriteErrors))
	for _, e := range bulk.WriteErrors {
		refused[e.Index] = e.WriteError
	}
	for at := 0; at < len(readings); {
		share := readings[at].share
		n := len(share.Rows)
		switch {
		case known && len(refused) == 0:
			s.settleStored(share, took)
		case known:
			s.settleShare(share, refused, at, took)
		default:
			s.metrics.Unknown.Inc()
			stateOf(share).doubt = true
			share.Verdict, share.Err = batch.Wait, err
		}
		at += n
	}
	if known {
		return nil
	}
	return err
}

// settleStored is settleShare where nothing was refused.
func (s *Store) settleStored(share *batch.Share, took time.Duration) {
	newest := share.Start
	for _, r := range share.Rows {
		newest = max(newest, r.Row().Time)
	}
	s.metrics.Wrote(took, len(share.Rows), store.Fill(newest, share.Start, share.Granularity, 0))
	share.Drop(len(share.Rows))
	stateOf(share).doubt = false
}

// settleShare keeps the refused rows of a share whose documents begin at the
// given place; those refused for their content come first.
func (s *Store) settleShare(share *batch.Share, refused map[int]mongo.WriteError, at int, took time.Duration) {
	var poison, wait []batch.Ref
	newest, n := int64(math.MinInt64), 0
	kept := make(map[batch.Ref]bool)
	for i, r := range share.Rows {
		e, bad := refused[at+i]
		switch {
		case !bad:
			n++
			newest = max(newest, r.Row().Time)
			continue
		case store.ContentError(e.Code) || store.TooLarge(e.Code):
			poison = append(poison, r)
			share.Err = e
		default:
			wait = append(wait, r)
			stateOf(share).doubt = true
			if len(poison) == 0 {
				share.Err = e
			}
		}
		kept[r] = true
	}
	if n > 0 {
		s.metrics.Wrote(took, n, store.Fill(newest, share.Start, share.Granularity, 0))
	}
	share.DropWhere(func(r batch.Ref) bool { return !kept[r] })
	copy(share.Rows, slices.Concat(poison, wait))
	switch {
	case len(poison) > 0:
		share.Verdict = batch.Poison
	case len(wait) > 0:
		share.Verdict = batch.Wait
	default:
		stateOf(share).doubt = false
	}
}

// dropStored takes the rows away that are in the collection already.
func (s *Store) dropStored(ctx context.Context, share *batch.Share) error {
	oldest, newest := int64(math.MaxInt64), int64(math.MinInt64)
	ids := make([]bson.ObjectID, len(share.Rows))
	for i, r := range share.Rows {
		oldest, newest = min(oldest, r.Row().Time), max(newest, r.Row().Time)
		ids[i] = collectionID(batch.ReadingID(share.Session, r.Seq()))
	}
	cursor, err := s.coll.Find(ctx, bson.D{
		{Key: metaField + ".id", Value: share.Sensor},
		{Key: timeField, Value: bson.D{{Key: "$gte", Value: bson.DateTime(oldest)}, {Key: "$lte", Value: bson.DateTime(newest)}}},
		{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}},
	}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return fmt.Errorf("look for stored readings: %w", err)
	}
	var found []struct {
		ID bson.ObjectID `bson:"_id"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return fmt.Errorf("look for stored readings: %w", err)
	}
	if len(found) > 0 {
		if err := s.live.Load().WriteConcern.Confirm(ctx, s.cfg.Database); err != nil {
			return err
		}
	}
	stored := make(map[bson.ObjectID]bool, len(found))
	for _, f := range found {
		stored[f.ID] = true
	}
	n := share.DropWhere(func(r batch.Ref) bool {
		return stored[collectionID(batch.ReadingID(share.Session, r.Seq()))]
	})
	share.Found += n
	s.metrics.Duplicates.Add(float64(n))
	stateOf(share).doubt = false
	return nil
}
