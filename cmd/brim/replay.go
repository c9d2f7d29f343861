package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/batch"
)

// newJournalReplay returns `brim journal replay`, a daemon without its doors:
// what the journal holds goes to MongoDB, and that is all.
func newJournalReplay(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Store what a journal holds, without taking new readings",
		Long: "Store what a journal holds, without taking new readings. No daemon may run on the journal meanwhile;\n" +
			"others may go on writing the same sensors.\n\n" +
			"It takes the flags of serve. Use it to empty the journal of a daemon that will not come back, or before\n" +
			"its settings are changed. It may be ended at any moment, and run again: nothing is stored twice. Readings\n" +
			"that MongoDB refuses go to the dead-letter file in --data-dir.",
		Example: "  brim journal replay --data-dir ./brim-data\n" +
			"  brim journal replay --data-dir /mnt/dead/brim-data --mongo-uri mongodb://a,b,c/?replicaSet=rs\n" +
			"  brim journal replay --journal-dir /mnt/old/journal --mongo-uri mongodb://db/ --retarget",
		Args: cobra.NoArgs,
	}
	retarget := cmd.Flags().Bool("retarget", false, "store readings where the settings say, also if they were taken for another MongoDB, database or storage; those stored there already are then stored here, too")
	output := outputFlag(cmd, "text", "json")
	flags := settingFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags(p).load()
		if err != nil {
			return err
		}
		if !c.journaling() {
			return usageError{errors.New("--journal off: there is no journal to replay")}
		}
		done, err := replayJournal(cmd.Context(), c, p, *retarget)
		if err != nil {
			return err
		}
		if *output == "json" {
			return printJSON(p.stdout, done)
		}
		return printReplayed(p.stdout, &done)
	}
	return cmd
}

// replayJournal brings the journal to the stores.
func replayJournal(ctx context.Context, c *configuration, p *process, retarget bool) (done replayed, err error) {
	logger := newLogger(p.stderr, c.LogLevel, c.LogFormat)
	running, stopping, release := watchSignals(ctx, logger, nil)
	defer release()
	injector, err := faults(p.env)
	if err != nil {
		return done, usageError{err}
	}
	d := &daemon{cfg: c, log: logger, stderr: p.stderr, faults: injector, session: batch.NewSession(), began: time.Now(), registry: prometheus.NewRegistry()}
	found, err := inspectJournal(c.journalDir())
	if err != nil {
		return done, err
	}
	done = replayedOf(&found)
	j, err := openJournal(&c.settings, journalSetup{session: d.session, retarget: retarget, faults: injector, logger: logger, registry: d.registry})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	j.Stop()
	uri, err := d.findMongoDB(running)
	if err != nil {
		return done, err
	}
	if server := d.mongod.Load(); server != nil {
		defer func() {
			ctx, cancel := context.WithTimeout(stopping, c.StopTimeout)
			defer cancel()
			err = errors.Join(err, server.Close(ctx))
		}()
	}
	s, err := openStorage(&c.settings, storageSetup{uri: uri, journal: j, faults: injector, logger: logger, registry: d.registry})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, s.disconnect(stopping)) }()
	watched, end := context.WithCancel(running)
	var watching sync.WaitGroup
	watching.Go(func() { watchReplay(watched, j, s.queue, logger) })
	watching.Go(func() { s.keepClaims(watched) })
	err = s.prepare(running)
	if err == nil {
		err = s.queue.Flush(running)
	}
	end()
	watching.Wait()
	done.Left, done.Seconds = s.queue.Close(cancelledContext()), time.Since(d.began).Seconds()
	if countErr := done.count(s.queue.Status().Released, d.registry); err == nil {
		err = countErr
	}
	if err == nil && done.Left > 0 {
		err = fmt.Errorf("%d readings could not be stored and stay in the journal", done.Left)
	}
	if running.Err() != nil {
		err = fmt.Errorf("stopped after %d readings; %d stay in the journal", done.Stored, done.Left)
	}
	return done, err
}

// cancelledContext is for a Close that is not to wait.
func cancelledContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
