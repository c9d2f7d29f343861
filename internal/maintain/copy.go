package maintain

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// roundEvery is how often what has changed is made anew while something else
	// is done: a process that goes on after a kill reads that much again.
	roundEvery = 30 * time.Second
	// mostRounds is how often what has changed is made anew until the daemons are
	// held to be faster.
	mostRounds = 30
	// writeBytes is how much is sent in one write, which has an answer within a
	// lease also on a slow link or a busy server.
	writeBytes = 1 << 20
	// shortRound is quick enough to be done while daemons wait.
	shortRound = 500 * time.Millisecond
)

// copyGroups copies all groups behind the last that was. What changes behind
// its back is made anew on the way; what changes before it gets there, it will
// see.
func (m *move) copyGroups() error {
	s := m.job.state
	for more := true; more; {
		if err := m.roundIfDue(false); err != nil {
			return err
		}
		var groups []group
		err := m.againUnsure(m.ctx, func() (err error) {
			if groups, more, err = m.from.after(m.reading, s.Copied); err != nil || len(groups) == 0 {
				return err
			}
			return m.put(m.ctx, rangeOf(s.Copied, &groups[len(groups)-1].key, m.span), groups)
		})
		if err != nil || len(groups) == 0 {
			return err
		}
		n := int64(0)
		for i := range groups {
			n += groups[i].bytes
			s.Documents += int64(len(groups[i].documents))
		}
		s.Copied = &groups[len(groups)-1].key
		if err := m.save(); err != nil {
			return err
		}
		if err := m.spend(n); err != nil {
			return err
		}
	}
	return nil
}

// spend waits until n more bytes are allowed.
func (m *move) spend(n int64) error {
	m.done += n
	m.tell("")
	return m.throttle.wait(m.ctx, n)
}

// put makes the new collection hold, where the _id is within a range, exactly
// what the groups become. It may be repeated.
func (m *move) put(ctx context.Context, within bson.D, groups []group) error {
	made, err := m.reshape(groups)
	if err != nil {
		return err
	}
	documents := make([]any, len(made))
	for i, d := range made {
		documents[i] = d
	}
	err = m.job.send(ctx, func(ctx context.Context) error {
		_, err := m.to.coll.DeleteMany(ctx, bson.D{{Key: "_id", Value: within}})
		return err
	})
	if err != nil {
		return fmt.Errorf("empty a part of collection %q: %w", m.to.coll.Name(), err)
	}
	for chunk := range bySize(documents, writeBytes) {
		opts := options.InsertMany().SetOrdered(false)
		if m.bypass() {
			opts.SetBypassDocumentValidation(true)
		}
		err := m.job.send(ctx, func(ctx context.Context) error {
			_, err := m.to.coll.InsertMany(ctx, chunk, opts)
			return err
		})
		if err != nil {
			return fmt.Errorf("write to collection %q: %w", m.to.coll.Name(), err)
		}
	}
	return nil
}

// bypass reports whether the copy is to take what its validator would refuse:
// what the source has, it has. That needs a right of its own.
func (m *move) bypass() bool { return m.job.state.Original.Validator != nil }

// reshape returns what groups become.
func (m *move) reshape(groups []group) (documents []bson.Raw, err error) {
	for i := range groups {
		made, err := m.cfg.Reshaper.Reshape(groups[i].documents)
		if err != nil {
			return nil, fmt.Errorf("reshape the documents of sensor %q: %w", groups[i].key.Sensor, err)
		}
		documents = append(documents, made...)
	}
	return documents, nil
}

// bySize cuts documents into pieces of about most bytes.
func bySize(documents []any, most int) func(yield func([]any) bool) {
	return func(yield func([]any) bool) {
		from, size := 0, 0
		for i, d := range documents {
			raw, _ := d.(bson.Raw)
			if size += len(raw); size >= most || i == len(documents)-1 {
				if !yield(documents[from : i+1]) {
					return
				}
				from, size = i+1, 0
			}
		}
	}
}

// roundIfDue makes anew what has changed if that was not done for a while, and
// does not let it take more than a third of the time.
func (m *move) roundIfDue(verified bool) error {
	if time.Since(m.rounded) < max(roundEvery, 2*m.roundTook) {
		return nil
	}
	_, err := m.round(m.ctx, verified)
	return err
}

// catchUp makes anew what has changed until that is quick, or does not get any
// quicker.
func (m *move) catchUp(verified bool) error {
	before := time.Duration(0)
	for range mostRounds {
		if err := m.sync(m.ctx); err != nil {
			return err
		}
		n, err := m.round(m.ctx, verified)
		if err != nil {
			return err
		}
		steady := before > 0 && m.roundTook > before*3/4
		if n == 0 || m.roundTook < shortRound || steady && m.roundTook < m.cfg.FenceLimit/4 {
			return nil
		}
		before = m.roundTook
	}
	return fmt.Errorf("daemons change more in %v than can be copied in that time, again and again: repeat the command when less is written", before.Round(time.Millisecond))
}

// round makes all groups anew that were touched, and reports how many that were.
func (m *move) round(ctx context.Context, verified bool) (int, error) {
	began := time.Now()
	h, err := m.follower.take()
	if err != nil {
		return 0, err
	}
	if h.gone {
		m.follower.add(h.keys...)
		return 0, m.moved()
	}
	if h.at.T > 0 {
		if err := m.session.AdvanceOperationTime(&h.at); err != nil {
			return 0, fmt.Errorf("advance the session: %w", err)
		}
	}
	s := m.job.state
	keys := h.keys
	if s.Phase == phaseCopy {
		keys = slices.DeleteFunc(slices.Clone(keys), func(k groupKey) bool { return s.Copied == nil || k.compare(*s.Copied) > 0 })
	}
	if err := m.remake(ctx, keys, verified); err != nil {
		m.follower.add(h.keys...)
		return 0, err
	}
	s.Token, s.Remade = h.token, s.Remade+int64(len(keys))
	m.rounded, m.roundTook = time.Now(), time.Since(began)
	m.tell("")
	if len(h.keys) == 0 && s.Phase == phaseFence {
		return 0, nil // daemons wait
	}
	return len(keys), m.save()
}

// moved says why the source has lost its name.
func (m *move) moved() error {
	if err := m.namesStand(false); err != nil {
		return err
	}
	return refuse("collection %q was renamed and has its name again; give the move up with `%s`, and begin anew", m.cfg.Stream, m.job.state.command("--abort"))
}

// remake makes groups anew, and looks at what has become of them if verified.
// It does not wait for the rate: what is behind must be caught up with. The copy
// waits longer instead.
func (m *move) remake(ctx context.Context, keys []groupKey, verified bool) error {
	for n := 16; len(keys) > 0; {
		part := keys[:min(n, len(keys))]
		var size int64
		err := m.againUnsure(ctx, func() (err error) {
			size, err = m.remakeSome(ctx, part, verified)
			return err
		})
		if err != nil {
			return err
		}
		m.throttle.charge(size)
		switch keys = keys[len(part):]; {
		case size > chunkBytes:
			n = max(n/2, 1)
		case size < chunkBytes/2:
			n = min(n*2, mostInQuery)
		}
		m.tell("makes anew what has changed")
	}
	return nil
}

func (m *move) remakeSome(ctx context.Context, keys []groupKey, verified bool) (size int64, err error) {
	groups, err := m.from.of(m.within(ctx), keys)
	if err != nil {
		return 0, err
	}
	for i := range groups {
		size += groups[i].bytes
	}
	copies, err := m.amend(ctx, keys, groups)
	if err != nil || !verified {
		return size, err
	}
	return size, m.compare(groups, copies, func(key groupKey, why error) error {
		return fmt.Errorf("what was just written to collection %q is not what sensor %q has at %s; does anything else write there?: %w",
			m.to.coll.Name(), key.Sensor, key.Start.Time().UTC().Format(time.RFC3339), why)
	})
}

// within is ctx for reads that see what the follower has seen.
func (m *move) within(ctx context.Context) context.Context {
	return mongo.NewSessionContext(ctx, m.session)
}

// compare calls differs for each group that the new collection does not hold as
// it should, until that returns an error.
func (m *move) compare(groups, copies []group, differs func(groupKey, error) error) error {
	pairs := make(map[groupKey][2][]bson.Raw, len(groups))
	keys := make([]groupKey, 0, len(groups))
	for side, all := range [][]group{groups, copies} {
		for i := range all {
			pair, known := pairs[all[i].key]
			if !known {
				keys = append(keys, all[i].key)
			}
			pair[side] = all[i].documents
			pairs[all[i].key] = pair
		}
	}
	for _, key := range keys {
		if err := m.cfg.Reshaper.Verify(pairs[key][0], pairs[key][1]); err != nil {
			if err := differs(key, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// first is the token of the moment at which the following began.
func (f *follower) first() bson.Raw {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Clone(f.token)
}
