package compact

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

const (
	// sampleInterval is the interval between samples during a compaction; a sample takes a
	// millisecond or two on the server.
	sampleInterval = 250 * time.Millisecond
	// grace is how long to wait for a server that was asked to end a compaction.
	grace = 10 * time.Second
)

// How an interrupted compaction ended.
const (
	endedKilled = "MongoDB has ended it"
	endedDone   = "it was completed before MongoDB could end it"
	endedNot    = "MongoDB was asked to end it, but continues: before MongoDB 6.2, a compaction always runs to completion; db.currentOp() shows it"
)

// pass compacts once. When ctx ends, it asks the server to kill the operation, and returns how
// that ended.
func (c *Compactor) pass(ctx, hard context.Context, w *watch) (ended string, err error) {
	if ctx.Err() != nil {
		return "", ErrInterrupted
	}
	running, cancel := context.WithCancel(hard)
	defer cancel()
	comment := "brim compact " + rand.Text()
	done := make(chan error, 1)
	go func() { done <- c.command(running, w.member, comment) }()
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	interrupted := ctx.Done()
	over := time.NewTimer(0)
	over.Stop() // started when ctx ends
	defer over.Stop()
	for {
		select {
		case err := <-done:
			switch {
			case hard.Err() != nil:
				return endedNot, ErrInterrupted
			case ctx.Err() == nil:
				return "", err
			case err == nil:
				return endedDone, ErrInterrupted
			case store.HasCode(err, codesInterrupted...):
				return endedKilled, ErrInterrupted
			}
			return "", errors.Join(ErrInterrupted, err)
		case <-ticker.C:
			w.sample(hard)
			note := ""
			if interrupted == nil {
				note = "asked MongoDB to end it"
			}
			c.config.Progress(w.progress(note))
		case <-interrupted:
			interrupted = nil
			c.kill(hard, w.member, comment)
			over.Reset(grace)
		case <-over.C:
			cancel()
			<-done //nolint:errcheck // its error does not matter any more
			return endedNot, ErrInterrupted
		}
	}
}

// Error codes of an operation that was killed.
var codesInterrupted = []int{11600, 11601, 11602}

// kill asks the server to kill the operation with this comment. Errors are ignored: the caller
// waits for the operation anyway.
func (c *Compactor) kill(ctx context.Context, m *Member, comment string) {
	found, err := c.operations(ctx, m)
	if err != nil {
		return
	}
	for _, one := range found {
		if one.Command.Comment == comment {
			_ = ask(ctx, m.client.Database("admin"), bson.D{{Key: "killOp", Value: 1}, {Key: "op", Value: one.ID}}, nil)
		}
	}
}

// freeTarget is how much space must be free by default before a server that knows
// freeSpaceTargetMB starts to compact.
const freeTarget = 20 << 20

// command runs the command compact, however long it takes.
func (c *Compactor) command(ctx context.Context, m *Member, comment string) error {
	command := bson.D{{Key: "compact", Value: c.config.Collection}, {Key: "comment", Value: comment}}
	if m.Role == RolePrimary { // a member that has become primary since refuses
		command = append(command, bson.E{Key: "force", Value: true})
	}
	if c.config.LeastBytes < freeTarget && takesFreeTarget(m.Version) {
		command = append(command, bson.E{Key: "freeSpaceTargetMB", Value: int32(max(1, c.config.LeastBytes>>20))}) //nolint:gosec // less than 20
	}
	err := m.client.Database(c.config.Database).RunCommand(ctx, command).Err()
	if err == nil {
		return nil
	}
	return explain(err, m)
}

// takesFreeTarget reports whether a version knows freeSpaceTargetMB: 7.3 and later, according to
// the documentation.
func takesFreeTarget(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	minor, minorErr := strconv.Atoi(parts[1])
	return err == nil && minorErr == nil && (major > 7 || major == 7 && minor >= 3)
}

// Error codes of a server that refuses to compact.
const (
	codeInvalidNamespace = 73
	codeOnView           = 166
)

// explain adds to a refusal what it means.
func explain(err error, m *Member) error {
	switch text := err.Error(); {
	case store.HasCode(err, codeInvalidNamespace, codeOnView), strings.Contains(text, "system namespace"):
		return fmt.Errorf("%w (it is %s): new readings use the free space again; to have it back now, restart the daemons with another --compressor and run `brim move`, which writes the readings into a new collection: %w", ErrTimeSeries, m.Version, err)
	case store.HasCode(err, codeUnauthorized):
		return fmt.Errorf("the user is not allowed to compact; the role dbAdmin on the database allows it: %w", err)
	case m.Role == RoleSecondary && strings.Contains(text, "replica set primary"):
		return fmt.Errorf("it has become the primary meanwhile; run the command again: %w", err)
	}
	return err
}

// A watch samples a member while it is being compacted.
type watch struct {
	compactor *Compactor
	member    *Member
	pass      int
	begun     time.Time
	first     Sizes
	last      Sizes
	files     int64   // the largest total size of the files
	disk      float64 // bytes of the file system in use at first; NaN: unknown
	mostDisk  float64 // the maximum of disk
}

func (w *watch) begin(ctx context.Context) (err error) {
	if w.first, err = w.compactor.sizes(ctx, w.member); err != nil {
		return err
	}
	w.begun, w.last, w.files = time.Now(), w.first, w.first.Files()
	w.disk = w.compactor.diskUsed(ctx, w.member)
	w.mostDisk = w.disk
	return nil
}

// sample keeps the last values if there are no new ones.
func (w *watch) sample(ctx context.Context) {
	if now, err := w.compactor.sizes(ctx, w.member); err == nil {
		w.last, w.files = now, max(w.files, now.Files())
	}
	if used := w.compactor.diskUsed(ctx, w.member); used > w.mostDisk {
		w.mostDisk = used
	}
}

func (w *watch) filesMore() int64 { return w.files - w.first.Files() }

func (w *watch) diskMore() *float64 { return known(w.mostDisk - w.disk) }

func (w *watch) progress(note string) Progress {
	return Progress{
		Member: w.member.Host, Pass: w.pass, Elapsed: time.Since(w.begun), GivenBack: w.first.Files() - w.last.Files(),
		Files: w.last.Files(), Free: w.last.AllFree(), Note: note,
	}
}
