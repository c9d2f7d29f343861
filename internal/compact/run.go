package compact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/machine"
)

// A Result is the result of compacting a member.
type Result struct {
	Member    string  `json:"member"`
	Role      string  `json:"role"`
	Before    Sizes   `json:"before"`
	After     Sizes   `json:"after"`
	GivenBack int64   `json:"given_back_bytes"` // reduction of the size of all files
	Seconds   float64 `json:"seconds"`          // of all passes
	Passes    []Pass  `json:"passes"`
	// FilesMore is by how much the collection's files grew at most during the compaction. DiskMore
	// is the maximum increase of the space in use in the file system, for whatever reason; null if
	// unknown.
	FilesMore int64    `json:"files_more_bytes"`
	DiskMore  *float64 `json:"disk_more_bytes"`
	CaughtUp  *float64 `json:"caught_up_seconds,omitempty"` // time a secondary took to
	Ended     string   `json:"ended,omitempty"`             // how it ended when it was interrupted
}

// A Pass is one compaction.
type Pass struct {
	Seconds   float64 `json:"seconds"`
	GivenBack int64   `json:"given_back_bytes"`
	Free      int64   `json:"free_bytes"` // in all files, afterwards
}

// Errors of Run.
var (
	// ErrInterrupted means that ctx ended.
	ErrInterrupted = errors.New("interrupted")
	// ErrTimeSeries means that the server cannot compact time-series collections.
	ErrTimeSeries = errors.New("this version of MongoDB compacts no time-series collection")
)

// minGain is how much a pass must return for another one to be tried. Smaller changes may be
// caused by checkpoints.
const minGain = 1 << 20

// Run compacts members one after another, and waits until a secondary has caught up before it
// continues. It inspects each member but the first again, and skips it if there is now a reason
// to. When ctx ends, Run asks the server to end the compaction, and waits for it; when hard ends,
// it returns at once. The results are those up to the error; the last one may be incomplete.
func (c *Compactor) Run(ctx, hard context.Context, d *Deployment, todo []*Member, choice Selection) (results []*Result, left []Skipped, err error) {
	for i, m := range todo {
		if i > 0 {
			m.Unseen, m.Running = "", ""
			c.config.Progress(Progress{Member: m.Host, Note: "inspecting it again"})
			c.inspectMember(ctx, m)
			if ctx.Err() != nil {
				return results, left, ErrInterrupted
			}
			if l := c.skip(m, choice, len(d.Members) > 1); l != nil {
				left = append(left, *l)
				continue
			}
		}
		r, err := c.compact(ctx, hard, d, m)
		if r != nil {
			results = append(results, r)
		}
		if err != nil {
			return results, left, fmt.Errorf("compact %s on %s: %w", d.Collection, m.Host, err)
		}
	}
	return results, left, nil
}

// compact compacts one member. The result is nil if the compaction did not begin.
func (c *Compactor) compact(ctx, hard context.Context, d *Deployment, m *Member) (*Result, error) {
	r := &Result{Member: m.Host, Role: m.Role}
	w := &watch{compactor: c, member: m}
	if err := w.begin(ctx); err != nil {
		if ctx.Err() != nil {
			err = ErrInterrupted
		}
		return nil, err
	}
	r.Before = w.first
	err := c.passes(ctx, hard, r, w)
	r.FilesMore, r.DiskMore, r.After = w.filesMore(), w.diskMore(), w.last
	if err == nil {
		c.config.Progress(w.progress("measuring the result"))
		_ = machine.Pause(ctx, c.measure) // checkpoints may truncate the files
		if after, sizeErr := c.sizes(hard, m); sizeErr == nil {
			r.After = after
		}
	}
	r.GivenBack = r.Before.Files() - r.After.Files()
	if err == nil && m.Role == RoleSecondary {
		var took time.Duration
		if took, err = c.caughtUp(ctx, d, w); err == nil {
			seconds := took.Seconds()
			r.CaughtUp = &seconds
		}
	}
	return r, err
}

// passes compacts repeatedly, as long as a pass returns space and enough is left.
func (c *Compactor) passes(ctx, hard context.Context, r *Result, w *watch) error {
	begun := time.Now()
	defer func() { r.Seconds = time.Since(begun).Seconds() }()
	for w.pass = 1; ; w.pass++ {
		before, at := w.last, time.Now()
		ended, err := c.pass(ctx, hard, w)
		w.sample(hard)
		p := Pass{Seconds: time.Since(at).Seconds(), GivenBack: before.Files() - w.last.Files(), Free: w.last.AllFree()}
		r.Passes, r.Ended = append(r.Passes, p), ended
		switch {
		case err != nil:
			return err
		case p.GivenBack < minGain, c.notWorthwhile(w.last) != "", w.pass == c.config.Passes:
			return nil
		}
	}
}

// caughtUp waits until a member is a secondary that has everything that the primary had when the
// wait began. Only then may another member be compacted.
func (c *Compactor) caughtUp(ctx context.Context, d *Deployment, w *watch) (time.Duration, error) {
	m, begun := w.member, time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it did not catch up with the primary within %s", patience))
	defer cancel()
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	var primary hello
	for {
		if !primary.IsWritablePrimary {
			primary = primaryOf(ctx, d)
		}
		if primary.IsWritablePrimary {
			h, err := askHello(ctx, m.client, readpref.Nearest())
			if err == nil && (h.Secondary || h.IsWritablePrimary) && h.LastWrite.OpTime.TS.Compare(primary.LastWrite.OpTime.TS) >= 0 {
				return time.Since(begun), nil
			}
			c.config.Progress(w.progress("waiting until it has caught up with the primary"))
		} else {
			c.config.Progress(w.progress("waiting for a primary"))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return 0, cause
			}
			return 0, ErrInterrupted
		}
	}
}

// primaryOf returns the primary's reply to hello; the zero value if there is no primary.
func primaryOf(ctx context.Context, d *Deployment) hello {
	for _, m := range d.Members {
		if h, err := askHello(ctx, m.client, readpref.Nearest()); err == nil && h.IsWritablePrimary {
			return h
		}
	}
	return hello{}
}
