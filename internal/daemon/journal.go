package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/crash"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/queue"
	"github.com/brim-telemetry/brim/internal/store"
)

// openJournal opens the journal, on disk or in memory. With retarget, it replays readings that
// were accepted for another target.
func (d *daemon) openJournal(retarget bool) (*journal.Journal, error) {
	c := &d.cfg.Settings
	streams := make(map[string]journal.Stream, len(c.Streams))
	for _, one := range c.Streams {
		streams[one.Name] = c.journaled(one)
	}
	tail, _ := c.queueParts(d.memory)
	cfg := journal.Config{
		Dir: c.JournalPath(), Session: d.session, Streams: streams,
		MaxBytes: c.JournalMaxBytes, TailBytes: tail, StoredTimeout: c.StoredTimeout,
		KeyWindow: c.IdempotencyWindow, MaxKeys: c.IdempotencyKeys, AcceptLoss: c.JournalCorruption == quarantine,
		Interner: d.known,
		Files:    crash.Files(journal.Disk()), Logger: d.log, Registerer: d.registry,
	}
	if !c.journaling() {
		cfg.Memory, cfg.MaxBytes, cfg.Admit = true, cmp.Or(c.QueueMaxBytes, leastQueue), d.admit
	}
	j, err := journal.Open(cfg)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	if err := c.checkUnapplied(j.Unapplied(), retarget); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// checkForgotten returns an error if a journal that is no longer used has acknowledged
// readings: the one of --journal-dir if the journal is off, and the one in --data-dir if
// --journal-dir is another directory.
func (c *Settings) checkForgotten() error {
	if !c.journaling() {
		if err := checkStored(c.JournalPath(), "journal is off", "with the journal on", "--journal on"); err != nil {
			return err
		}
	}
	inData := (&Settings{DataDir: c.DataDir}).JournalPath()
	if sameFolder(inData, c.JournalPath()) {
		return nil
	}
	return checkStored(inData, "the journal is now in "+c.JournalPath(), "with --journal-dir "+inData, "--journal-dir "+inData)
}

// checkStored returns an error unless everything in the journal in dir is stored. why, how and
// flag are for the error: why the journal is not used, and how it could be.
func checkStored(dir, why, how, flag string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	report, err := journal.Inspect(dir, nil)
	if err != nil {
		return fmt.Errorf("%s: read the earlier one: %w", why, err)
	}
	readings := uint64(0)
	for _, u := range report.Unapplied {
		readings += u.Readings
	}
	if readings == 0 && !report.Damaged() {
		return nil
	}
	return fmt.Errorf("%s, and the journal in %s holds %d readings that are not known to be stored, or is damaged (see `brim journal inspect --journal-dir %s`); "+
		"start once more %s, or run `brim journal replay` with the current settings and %s", why, dir, readings, dir, how, flag)
}

// sameFolder reports whether two paths lead to the same folder.
func sameFolder(a, b string) bool {
	atA, errA := os.Stat(a)
	atB, errB := os.Stat(b)
	return filepath.Clean(a) == filepath.Clean(b) || errA == nil && errB == nil && os.SameFile(atA, atB)
}

// journaled returns the settings of a stream that are recorded in the journal, for a later
// process that stores its readings.
func (c *Settings) journaled(s Stream) journal.Stream {
	out := journal.Stream{Storage: string(s.Storage), Compressor: string(s.Compressor), Granularity: s.Granularity}
	switch {
	case s.Storage == store.Memory:
		out.Target = "memory"
	case c.MongoURI != "":
		out.Target = config.Deployment(c.MongoURI) + "/" + c.Database
	default:
		// Both folders may be moved together.
		place, err := filepath.Rel(c.JournalPath(), c.DataDir)
		if err != nil {
			place = c.DataDir
		}
		out.Target = "the embedded mongod, database " + c.Database + ", data in " + place + " of the journal's folder"
	}
	return out
}

// checkUnapplied returns an error if the journal has readings that were accepted for another
// target, unless retarget is set: some may be stored there already, and would be stored twice.
// It also returns an error for readings of a stream that is not configured any more.
func (c *Settings) checkUnapplied(left []journal.Unapplied, retarget bool) error {
	var problems []error
	for _, u := range left {
		at := slices.IndexFunc(c.Streams, func(s Stream) bool { return s.Name == u.Stream })
		var now journal.Stream
		if at >= 0 {
			now = c.journaled(c.Streams[at])
		}
		if at >= 0 && (retarget || now.Target == u.Settings.Target) {
			continue
		}
		present, otherwise := "is not configured any more", "configure it, if only for `brim journal replay --retarget`"
		if at >= 0 {
			present = "is now stored " + placeOf(now)
			otherwise = "if the former location is the current one under another name or is gone forever, run `brim journal replay --retarget` with the current settings"
		}
		problems = append(problems, fmt.Errorf(
			"the journal in %s holds %d readings that are not known to be stored, of stream %s, which was stored %s and %s; "+
				"start once more with the former settings until `brim journal inspect` shows none, or, %s",
			c.JournalPath(), u.Readings, u.Stream, placeOf(u.Settings), present, otherwise))
	}
	return errors.Join(problems...)
}

// placeOf describes where readings are stored.
func placeOf(s journal.Stream) string {
	if s.Storage == string(store.Memory) {
		return "in memory"
	}
	return "as " + s.Storage + " at " + s.Target
}

// InspectJournal inspects a journal, which must exist: for a mistyped path it would seem as if
// everything were stored.
func InspectJournal(dir string) (report journal.Report, err error) {
	if _, err := os.Stat(dir); err != nil {
		return report, fmt.Errorf("find a journal: %w", err)
	}
	if report, err = journal.Inspect(dir, nil); err != nil {
		return report, err
	}
	if report.Marked || len(report.Segments) > 0 {
		return report, nil
	}
	inside := filepath.Join(dir, "journal")
	if within, err := journal.Inspect(inside, nil); err == nil && (within.Marked || len(within.Segments) > 0) {
		return report, fmt.Errorf("find a journal: there is none in %s; did you mean --journal-dir %s, or --data-dir %s?", dir, inside, dir)
	}
	return report, fmt.Errorf("find a journal: there is none in %s; specify the folder that holds its segments", dir)
}

// replayReport is how often the progress of a replay is logged.
const replayReport = 5 * time.Second

// watchReplay logs the progress of storing an earlier process's readings, until all are stored
// or ctx ends.
func watchReplay(ctx context.Context, j *journal.Journal, q *queue.Queue, logger *slog.Logger) {
	oldest, end := j.Oldest(), j.End()
	if oldest >= end {
		return
	}
	total := q.Status().Readings
	logger.Info("replaying the journal", "readings", total)
	began := time.Now()
	ticker := time.NewTicker(replayReport)
	defer ticker.Stop()
	stored := make(chan error, 1)
	go func() { stored <- q.Wait(ctx, end) }()
	for {
		select {
		case err := <-stored:
			if err != nil {
				return
			}
			took := time.Since(began)
			logger.Info("journal replayed", "readings", total, "took", took.Round(time.Millisecond), "readings_per_second", int(float64(total)/took.Seconds()))
			return
		case <-ticker.C:
			s := q.Status()
			done := float64(s.Rest-oldest) / float64(end-oldest)
			logger.Info("replaying the journal", "percent", int(100*done), "readings_stored", s.Released,
				"readings_per_second", int(float64(s.Released)/time.Since(began).Seconds()))
		}
	}
}
