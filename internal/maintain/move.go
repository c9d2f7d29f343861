package maintain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
)

// Config describes a move of a stream's collection into another form.
type Config struct {
	Database      *mongo.Database // with the concerns of store.Connection.Database
	Stream        string
	Kind          string           // of work, as the command is called: recompress, migrate
	To            string           // what becomes of the stream: zstd, 1h
	Reshaper      Reshaper         // nil: Identity
	Compressor    store.Compressor // of the new collection; empty: that of the old one
	SameDocuments bool             // the new collection has as many documents as the old one
	ExpireAtLeast time.Duration    // an index that removes documents waits at least so long
	DropEarlier   bool             // after a move that is done, begin anew and drop what that kept

	Swap       Swap
	Rate       int64         // bytes before compression that are read in a second; 0: no limit
	FenceLimit time.Duration // how long daemons may be made to wait at a time; 0: 30 s
	Lease      time.Duration // how long a silent process is believed to be alive; 0: 15 s

	Progress func(Progress) // called by Move's goroutine; may be nil
	Logger   *slog.Logger   // may be nil
}

// Result is what a move came to.
type Result struct {
	Stream      string `json:"stream"`
	Kind        string `json:"kind"`
	To          string `json:"to"`
	AlreadyDone bool   `json:"already_done"` // by an earlier run
	Kept        string `json:"kept"`         // collection that has the old documents; empty: none

	Documents   int64         `json:"documents"`    // in the new collection
	BytesBefore int64         `json:"bytes_before"` // on disk, without indexes
	BytesAfter  int64         `json:"bytes_after"`
	Remade      int64         `json:"groups_made_anew"` // because daemons wrote into them meanwhile
	Repaired    int64         `json:"groups_repaired"`  // that differed without having been written to
	Returned    int64         `json:"groups_returned"`  // of which documents were deleted while the names were exchanged, and are back
	Missed      int64         `json:"groups_missed"`    // into which daemons wrote behind the comparison: that is in the old collection only
	Copies      int64         `json:"copies"`           // how often the copy was begun
	Fenced      time.Duration `json:"fenced_ns"`        // daemons waited
	Took        time.Duration `json:"took_ns"`          // since the move was begun
}

const (
	defaultFenceLimit = 30 * time.Second
	// mostCopies is how often one process begins the copy anew.
	mostCopies = 3
)

// A move is one process's work on a move.
type move struct {
	cfg      Config
	span     time.Duration
	job      *job
	ctx      context.Context // the job's
	session  *mongo.Session
	reading  context.Context // ctx, for reads that see what the follower has seen
	follower *follower
	throttle *throttle
	from, to *groupReader

	total     int64 // bytes of the source
	done      int64 // bytes that went through the present phase, in this process
	rounded   time.Time
	roundTook time.Duration
	returned  int64
	missed    int64
}

// Move moves the stream's collection, or goes on with a move that an earlier
// process left behind. Where it fails, daemons go on writing to the old one.
func Move(ctx context.Context, cfg Config) (*Result, error) {
	m, err := newMove(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	result, err := m.run()
	// Losing the work cancels what is under way, whose own error then does not say why.
	if cause := context.Cause(m.ctx); err != nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	if lifted := m.giveUp(err); lifted != nil {
		err = errors.Join(err, lifted)
	}
	return result, err
}

// newMove checks cfg and makes the work this process's.
func newMove(ctx context.Context, cfg Config, existing bool) (*move, error) {
	if cfg.Reshaper == nil {
		cfg.Reshaper = Identity{}
	}
	if cfg.FenceLimit == 0 {
		cfg.FenceLimit = defaultFenceLimit
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	span := cfg.Reshaper.Span()
	if cfg.Rate < 0 || cfg.FenceLimit < 0 || cfg.Lease < 0 || span <= 0 || span%time.Second != 0 {
		return nil, fmt.Errorf("rate %d, fence limit %v, lease %v, span %v: none may be negative, and the span is whole seconds", cfg.Rate, cfg.FenceLimit, cfg.Lease, span)
	}
	if err := cfg.Swap.check(); err != nil {
		return nil, err
	}
	job, err := claim(ctx, claimConfig{
		Database: cfg.Database, Stream: cfg.Stream, Kind: cfg.Kind, To: cfg.To, Existing: existing,
		Lease: cfg.Lease, Tell: cfg.Progress, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &move{cfg: cfg, span: span, job: job, ctx: job.ctx, throttle: newThrottle(cfg.Rate)}, nil
}

// run does what is left to be done.
func (m *move) run() (*Result, error) {
	s := m.job.state
	s.Unsure = s.Unsure || m.job.orphan
	if s.Phase == phaseDone {
		if !m.cfg.DropEarlier {
			return m.result(true)
		}
		if err := m.beginAgain(); err != nil {
			return nil, err
		}
	}
	if s.Phase == phaseStart {
		if err := m.begin(); err != nil {
			return nil, err
		}
	}
	swapped, err := m.present()
	if err != nil {
		return nil, err
	}
	if !swapped {
		if err := m.throughCopy(); err != nil && !errors.Is(err, errExchanged) {
			return nil, err
		}
	}
	if err := m.finish(); err != nil {
		return nil, err
	}
	return m.result(false)
}

// begin checks that the move can be made, and notes what the stream has.
func (m *move) begin() error {
	source, size, err := m.source()
	if err == nil {
		err = m.namesFree()
	}
	if err == nil {
		// A collMod that waits for its lock stops writers, as a fence does.
		ctx, cancel := context.WithTimeout(m.ctx, defaultFenceLimit)
		err = m.cfg.Swap.permitted(ctx, m.cfg.Database, m.cfg.Stream)
		cancel()
	}
	if err != nil {
		if m.job.fresh {
			err = errors.Join(err, m.job.forget())
		}
		return err
	}
	s := m.job.state
	s.Source, s.Original, s.BytesBefore, s.Span = source.Info.UUID, originalOf(source), size.StorageSize, m.span.Milliseconds()
	return m.save()
}

// namesFree refuses to touch what this move has not made.
func (m *move) namesFree() error {
	names := []string{oldName(m.cfg.Stream)}
	if m.job.fresh {
		names = append(names, newName(m.cfg.Stream)) // otherwise it may be of the process before
	}
	there, err := lookUpAll(m.ctx, m.cfg.Database, names...)
	if err != nil {
		return err
	}
	for name := range there {
		return refuse("collection %q is in the way, and nothing is known of where it is from; look at it, and drop or rename it", name)
	}
	return nil
}

// beginAgain drops what an earlier move kept, and makes its state that of a new
// one.
func (m *move) beginAgain() error {
	if _, err := m.dropOld(); err != nil {
		return err
	}
	s := m.job.state
	*s = state{Stream: s.Stream, Kind: s.Kind, To: s.To, Phase: phaseStart, Started: time.Now()}
	return m.save()
}

// throughCopy goes from the copy to the exchange of the names.
func (m *move) throughCopy() error {
	if err := m.prepare(); err != nil {
		return err
	}
	for begun := 0; ; begun++ {
		err := m.advance()
		if !errors.Is(err, errHistoryLost) {
			return err
		}
		if m.job.state.Phase == phaseFence {
			err = errors.Join(err, m.lift())
		}
		if begun == mostCopies {
			return fmt.Errorf("%w; make the oplog larger (replSetResizeOplog), or --rate higher", err)
		}
		m.cfg.Logger.Warn("the copy is begun anew", "err", err)
		m.stopFollowing()
		m.job.state.Phase = phaseStart
	}
}

// prepare opens what the phases before the exchange need.
func (m *move) prepare() error {
	s := m.job.state
	size, err := statsOf(m.ctx, m.cfg.Database, m.cfg.Stream)
	if err != nil {
		return err
	}
	m.total = size.Bytes
	if m.session, err = m.cfg.Database.Client().StartSession(); err != nil {
		return fmt.Errorf("start a session: %w", err)
	}
	m.reading = mongo.NewSessionContext(m.ctx, m.session)
	average := size.Bytes / max(size.Documents, 1)
	m.from = &groupReader{coll: m.cfg.Database.Collection(m.cfg.Stream), span: m.span, size: average}
	m.to = &groupReader{coll: m.cfg.Database.Collection(newName(m.cfg.Stream)), span: m.span, size: average}
	if s.Span != m.span.Milliseconds() {
		s.Phase, s.Span = phaseStart, m.span.Milliseconds()
	}
	return nil
}

// advance goes through the phases, from the one that the state is in.
func (m *move) advance() error {
	s := m.job.state
	if s.Phase == phaseStart {
		if err := m.startCopy(); err != nil {
			return err
		}
	}
	if m.follower == nil {
		if err := m.startFollowing(); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		phase string
		do    func() error
		next  string
	}{
		{phaseCopy, m.copyGroups, phaseFollow},
		{phaseFollow, func() error { return m.catchUp(false) }, phaseVerify},
		{phaseVerify, m.exchange, phaseDone},
	} {
		if s.Phase != step.phase {
			continue
		}
		m.done = 0
		if err := step.do(); err != nil {
			return err
		}
		if step.next == phaseDone {
			return nil
		}
		s.Phase = step.next
		if err := m.save(); err != nil {
			return err
		}
	}
	return fmt.Errorf("the state of the move is in phase %q, which this version of brim does not know", s.Phase)
}

// startCopy makes an empty new collection, from the moment on at which changes
// are followed.
func (m *move) startCopy() error {
	s := m.job.state
	s.Token = nil
	if err := m.startFollowing(); err != nil {
		return err
	}
	source, err := lookUp(m.ctx, m.cfg.Database, m.cfg.Stream)
	if err != nil {
		return err
	}
	if !source.is(s.Source) {
		return refuse("collection %q was dropped or renamed meanwhile", m.cfg.Stream)
	}
	// Of an earlier copy, which is dropped now, nothing may be believed.
	s.Phase, s.Target = phaseStart, bson.Binary{}
	if err := m.save(); err != nil {
		return err
	}
	target, err := m.create(source)
	if err != nil {
		return err
	}
	s.Phase, s.Target, s.Token, s.Copied, s.Verified, s.Documents = phaseCopy, target.Info.UUID, m.follower.first(), nil, nil, 0
	s.Copies++
	return m.save()
}

func (m *move) startFollowing() error {
	f := &follower{db: m.cfg.Database, source: m.cfg.Stream, job: m.job, span: m.span}
	if err := follow(f, m.job.state.Token); err != nil {
		return err
	}
	m.follower, m.rounded = f, time.Now()
	return nil
}

func (m *move) stopFollowing() {
	if m.follower != nil {
		m.follower.close()
		m.follower = nil
	}
}

// tell reports how far the move is.
func (m *move) tell(note string) {
	if m.cfg.Progress == nil {
		return
	}
	s := m.job.state
	p := Progress{Phase: s.Phase, Done: min(m.done, m.total), Total: m.total, Documents: s.Documents, Note: note}
	if m.follower != nil {
		p.Behind = m.follower.behind()
	}
	m.cfg.Progress(p)
}

// giveUp ends the work of this process. Daemons must not wait for one that has
// ended, so a fence is lifted unless the names may have been exchanged.
func (m *move) giveUp(err error) error {
	var lifted error
	if err != nil && m.job.state.Phase == phaseFence && !errors.Is(err, errLost) {
		lifted = m.lift()
	}
	m.stopFollowing()
	if m.session != nil {
		m.session.EndSession(context.WithoutCancel(m.ctx))
	}
	m.job.end()
	return lifted
}

// result tells what the move came to.
func (m *move) result(already bool) (*Result, error) {
	s := m.job.state
	r := &Result{
		Stream: s.Stream, Kind: s.Kind, To: s.To, AlreadyDone: already, BytesBefore: s.BytesBefore,
		Remade: s.Remade, Repaired: s.Repaired, Returned: m.returned, Missed: m.missed, Copies: s.Copies,
		Fenced: time.Duration(s.FencedFor) * time.Millisecond, Took: time.Since(s.Started),
	}
	// What a checkpoint has not written yet has no size; who may not ask for one
	// is told a smaller one.
	_ = m.cfg.Database.Client().Database("admin").RunCommand(m.ctx, bson.D{{Key: "fsync", Value: 1}}).Err()
	old, err := lookUp(m.ctx, m.cfg.Database, oldName(s.Stream))
	if err != nil {
		return nil, err
	}
	if old.is(s.Source) {
		size, err := statsOf(m.ctx, m.cfg.Database, old.Name)
		if err != nil {
			return nil, err
		}
		r.Kept, r.BytesBefore = old.Name, size.StorageSize
	}
	size, err := statsOf(m.ctx, m.cfg.Database, s.Stream)
	if err != nil {
		return nil, err
	}
	r.Documents, r.BytesAfter = size.Documents, size.StorageSize
	return r, nil
}
