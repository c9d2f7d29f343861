package maintain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
)

// Swap is how the names of the two collections are exchanged.
type Swap string

// The ways.
const (
	SwapAtomic  Swap = "atomic"  // both renames in one command, between which nothing is written
	SwapReplace Swap = "replace" // one rename, which drops the old collection
	SwapRenames Swap = "renames" // two renames, between which no daemon may write
)

// Swaps lists them, the usual one first.
func Swaps() []Swap { return []Swap{SwapAtomic, SwapReplace, SwapRenames} }

func (s *Swap) check() error {
	switch *s {
	case "":
		*s = SwapAtomic
	case SwapAtomic, SwapReplace, SwapRenames:
	default:
		return fmt.Errorf("swap %q is unknown; allowed: %q", *s, Swaps())
	}
	return nil
}

// permitted refuses what would be refused at the very end. A collMod without
// options, and an applyOps of collections that do not exist, do nothing.
func (s *Swap) permitted(ctx context.Context, db *mongo.Database, stream string) error {
	const unauthorized = 13
	if err := db.RunCommand(ctx, bson.D{{Key: "collMod", Value: stream}}).Err(); store.HasCode(err, unauthorized) {
		return refuse("MongoDB does not let this user change the options of collection %q (collMod: %s), which keeps daemons waiting for a moment; give it the role dbAdmin of database %q", stream, codeName(err), db.Name())
	} else if err != nil {
		return fmt.Errorf("try the right to change collection %q: %w", stream, err)
	}
	if *s != SwapAtomic {
		return nil
	}
	return notPermitted(applyRenames(ctx, db, renaming{from: stream + ".brim_none", to: stream + ".brim_nothing"}))
}

// notPermitted says what an operator can do about a refused applyOps.
func notPermitted(err error) error {
	const unauthorized, commandNotFound, commandNotSupported, atlasError = 13, 59, 115, 8000
	if !store.HasCode(err, unauthorized, commandNotFound, commandNotSupported, atlasError) {
		return err
	}
	return refuse("MongoDB does not let this user exchange two collections in one step (applyOps: %s). Either use one with a role that may do anything to any resource, for as long as this takes: "+
		"db.getSiblingDB(\"admin\").createRole({role: \"brimSwap\", privileges: [{resource: {anyResource: true}, actions: [\"anyAction\"]}], roles: []}). "+
		"Or repeat the command with --swap replace, which drops the old collection in the moment in which the new one takes its place, after both were compared. "+
		"Or stop all daemons that write to this stream and repeat it with --swap renames, which keeps the old one", codeName(err))
}

// codeName is what the server calls an error; its words may be long.
func codeName(err error) string {
	var e mongo.CommandError
	if errors.As(err, &e) {
		return e.Name
	}
	return "refused"
}

// A renaming gives a collection another name.
type renaming struct {
	from, to string
	uuid     *bson.Binary // of the collection; nil: whichever has the name
}

// applyRenames renames several collections under one lock.
func applyRenames(ctx context.Context, db *mongo.Database, all ...renaming) error {
	ops := bson.A{}
	for _, r := range all {
		op := bson.D{{Key: "op", Value: "c"}, {Key: "ns", Value: db.Name() + ".$cmd"}, {Key: "o", Value: bson.D{
			{Key: "renameCollection", Value: db.Name() + "." + r.from}, {Key: "to", Value: db.Name() + "." + r.to},
		}}}
		if r.uuid != nil {
			op = append(op, bson.E{Key: "ui", Value: *r.uuid})
		}
		ops = append(ops, op)
	}
	err := db.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "applyOps", Value: ops}, majority()}).Err()
	if err != nil {
		return fmt.Errorf("exchange collections: %w", err)
	}
	return nil
}

// rename renames a collection; drop takes the one away that has the name.
func rename(ctx context.Context, db *mongo.Database, from, to string, drop bool) error {
	command := bson.D{
		{Key: "renameCollection", Value: db.Name() + "." + from}, {Key: "to", Value: db.Name() + "." + to}, {Key: "dropTarget", Value: drop}, majority(),
	}
	if err := db.Client().Database("admin").RunCommand(ctx, command).Err(); err != nil {
		return fmt.Errorf("rename collection %q to %q: %w", from, to, err)
	}
	return nil
}

// swap exchanges the names. What is not certain afterwards, a look tells.
func (m *move) swap() error {
	s := m.job.state
	if err := m.namesStand(true); err != nil {
		return err
	}
	s.Phase, s.Swap = phaseSwap, m.cfg.Swap
	if err := m.save(); err != nil {
		s.Phase = phaseFence // nothing was exchanged, and daemons need not wait
		return err
	}
	return m.order()
}

// order has the names exchanged, as the state says that they are. Where that is
// certain not to have happened, the phase is that of before.
func (m *move) order() error {
	s, db, stream := m.job.state, m.cfg.Database, m.cfg.Stream
	swapped := false
	err := m.again(m.ctx, func() (err error) {
		swapped, err = m.attempt()
		return err
	})
	if err == nil && !swapped {
		err = fmt.Errorf("MongoDB says that it has exchanged the collections of stream %q, and has not", stream)
	}
	if err != nil && !swapped && !transient(err) && s.Phase == phaseSwap {
		if there, looked := lookUp(m.ctx, db, stream); looked == nil && there.is(s.Source) {
			s.Phase = phaseFence // it is certain that nothing has happened
		}
	}
	return notPermitted(err)
}

// attempt exchanges the names once, and looks whether that was done. Repeating
// it does no harm: an applyOps that names collections by their UUID finds them
// where they are to be.
func (m *move) attempt() (swapped bool, err error) {
	err = m.job.send(m.ctx, m.renameBoth)
	if m.ctx.Err() != nil {
		return false, context.Cause(m.ctx)
	}
	swapped, looked := m.settle()
	if looked != nil || swapped {
		return swapped, looked
	}
	return false, err
}

// renameBoth sends what exchanges the names.
func (m *move) renameBoth(ctx context.Context) error {
	s, db, stream := m.job.state, m.cfg.Database, m.cfg.Stream
	switch m.cfg.Swap {
	case SwapReplace:
		return rename(ctx, db, newName(stream), stream, true)
	case SwapRenames:
		if err := rename(ctx, db, stream, oldName(stream), false); err != nil {
			return err
		}
		return rename(ctx, db, newName(stream), stream, false)
	default:
		return applyRenames(ctx, db, renaming{stream, oldName(stream), &s.Source}, renaming{newName(stream), stream, &s.Target})
	}
}

// namesStand checks that the collections have the names that they are known by,
// and, at the last moment, that nothing can have been written to the source.
func (m *move) namesStand(behindFence bool) error {
	s := m.job.state
	there, err := lookUpAll(m.ctx, m.cfg.Database, m.cfg.Stream, newName(m.cfg.Stream), oldName(m.cfg.Stream))
	if err != nil {
		return err
	}
	if there[m.cfg.Stream].is(s.Target) {
		return errExchanged
	}
	if !there[m.cfg.Stream].is(s.Source) || !there[newName(m.cfg.Stream)].is(s.Target) || there[oldName(m.cfg.Stream)] != nil {
		return m.strange(there)
	}
	if behindFence && !fenced(there[m.cfg.Stream]) {
		return errNoFence
	}
	return m.job.check()
}

// present finds out where a move stands that another process may have left in
// any moment, and ends what must not last: daemons do not wait while nothing
// is done.
func (m *move) present() (swapped bool, err error) {
	s := m.job.state
	switch s.Phase {
	case phaseStart:
		return false, nil
	case phaseSwap:
		return m.goForward()
	}
	there, err := lookUpAll(m.ctx, m.cfg.Database, m.cfg.Stream, newName(m.cfg.Stream), oldName(m.cfg.Stream))
	if err != nil {
		return false, err
	}
	if there[m.cfg.Stream].is(s.Target) {
		return true, nil
	}
	if !there[m.cfg.Stream].is(s.Source) || !there[newName(m.cfg.Stream)].is(s.Target) {
		return false, m.strange(there)
	}
	if s.Phase == phaseFence || fenced(there[m.cfg.Stream]) {
		return false, m.lift()
	}
	return false, nil
}

// goForward ends an exchange that another process has ordered. It is not taken
// back while daemons wait: the order may still be on its way, and what they
// wrote until it comes would be in the old collection alone. Ordered twice, it is
// carried out once; both collections have been the same since daemons wait.
func (m *move) goForward() (swapped bool, err error) {
	if swapped, err = m.settle(); err != nil || swapped {
		return swapped, err
	}
	source, err := lookUp(m.ctx, m.cfg.Database, m.cfg.Stream)
	if err != nil {
		return false, err
	}
	s := m.job.state
	if fenced(source) {
		s.Swap = m.cfg.Swap
		if err = m.save(); err == nil {
			err = m.order()
		}
		if err == nil || s.Phase == phaseSwap {
			return err == nil, err
		}
	}
	return false, errors.Join(err, m.lift())
}

// settle looks whether the names are exchanged, and finishes an exchange that
// was interrupted halfway.
func (m *move) settle() (swapped bool, err error) {
	s, stream := m.job.state, m.cfg.Stream
	there, err := lookUpAll(m.ctx, m.cfg.Database, stream, newName(stream), oldName(stream))
	if err != nil {
		return false, err
	}
	switch now := there[stream]; {
	case now.is(s.Target):
		return true, nil
	case now.is(s.Source) && there[newName(stream)].is(s.Target):
		return false, nil
	case !there[oldName(stream)].is(s.Source) || !there[newName(stream)].is(s.Target):
		return false, m.strange(there)
	case now != nil:
		return false, m.stray()
	}
	err = m.job.send(m.ctx, func(ctx context.Context) error { return rename(ctx, m.cfg.Database, newName(stream), stream, false) })
	if err != nil {
		const namespaceExists = 48
		if store.HasCode(err, namespaceExists) {
			return false, m.stray()
		}
		return false, err
	}
	return true, nil
}

// stray says what to do about a collection that a daemon made while none had
// the stream's name.
func (m *move) stray() error {
	stream, db := m.cfg.Stream, m.cfg.Database.Name()
	aside := stream + ".stray"
	return refuse("the exchange of the collections of stream %[1]q stopped halfway, and a daemon has made a collection %[1]q in between. Nothing is lost: the copy, which is complete, is %[2]q, the old collection is %[3]q. "+
		"1. Stop the daemons. 2. Put the new one aside: db.adminCommand({renameCollection: \"%[4]s.%[1]s\", to: \"%[4]s.%[5]s\"}). 3. Repeat this command, which finishes. 4. Start the daemons. "+
		"5. Bring back what is in %[5]q: give a daemon without senders a stream of that name, and send what `brim query` reads from it to stream %[1]q",
		stream, newName(stream), oldName(stream), db, aside)
}

// strange says that the collections are not what the state says.
func (m *move) strange(there map[string]*found) error {
	var what strings.Builder
	for _, name := range []string{m.cfg.Stream, newName(m.cfg.Stream), oldName(m.cfg.Stream)} {
		role := "is missing"
		switch f := there[name]; {
		case f == nil:
		case f.is(m.job.state.Source):
			role = "is the collection that is moved"
		case f.is(m.job.state.Target):
			role = "is its copy"
		default:
			role = "is neither of them"
		}
		fmt.Fprintf(&what, "; %q %s", name, role)
	}
	return refuse("collections were renamed or dropped that `brim %s` works on%s. Give it up with `%s`, which drops only its own copy, and begin anew", m.cfg.Kind, what.String(), m.job.state.command("--abort"))
}
