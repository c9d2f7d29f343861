package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// An Other is another process that holds claims.
type Other struct {
	Holder

	Unreachable []string // addresses of processes that it could not reach recently
}

// otherClaims is what is known about the claims of other processes.
type otherClaims struct {
	mu    sync.Mutex
	read  time.Time           // when they were read; zero: never
	beats map[string]heldBeat // by session
}

// A heldBeat is a beat, and when it was first seen.
type heldBeat struct {
	beat  string
	since time.Time
}

// Others reads the claims of other processes, and returns the processes whose beat changed within
// expireAfter. A process that was killed is still listed for that long, even if it ended before
// the first call. A process that ended cleanly has no claims. A process without Daemon is listed
// once for each of its sessions.
func (c *Claims) Others(ctx context.Context) ([]Other, error) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	found, err := store.FindAll[claimed](ctx, c.cfg.Database.Collection(Collection), bson.D{})
	if err != nil {
		return nil, fmt.Errorf("read the claims of other daemons: %w", err)
	}
	return c.others.updateLive(found, &c.cfg.Holder, c.cfg.Now()), nil
}

// updateLive records the beats, and returns the live holders except own.
func (o *otherClaims) updateLive(found []claimed, own *Holder, now time.Time) (out []Other) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// While the claims could not be read, their holders may have been unable to renew them.
	fresh := now.Sub(o.read) > expireAfter/2
	before := o.beats
	o.read, o.beats = now, make(map[string]heldBeat, len(found))
	for i := range found {
		f := &found[i]
		if own.isProcess(&f.Holder) || f.Stopped || f.Abandoned || isLease(f.Session) {
			continue
		}
		seen, known := before[f.Session]
		if !known || fresh || seen.beat != f.Beat {
			seen = heldBeat{beat: f.Beat, since: now}
		}
		o.beats[f.Session] = seen
		listed := f.Daemon != "" && slices.ContainsFunc(out, func(one Other) bool { return one.Daemon == f.Daemon })
		if now.Sub(seen.since) < expireAfter && !listed {
			out = append(out, Other{Holder: f.Holder, Unreachable: f.Unreachable})
		}
	}
	return out
}

// isProcess reports whether other is the same process, or an earlier process with the same
// journal, which has ended.
func (h *Holder) isProcess(other *Holder) bool {
	return h.Daemon != "" && h.Daemon == other.Daemon || h.sameLock(other)
}
