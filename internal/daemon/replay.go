package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/scrape"
)

// Replayed is the result of `brim journal replay`.
type Replayed struct {
	Journal string             `json:"journal"` // its folder
	Taken   []ReplayedReadings `json:"taken"`   // not known to be stored at the start
	Keys    int                `json:"keys"`    // idempotency keys that only the journal has

	Stored  uint64  `json:"stored"`       // or found to be stored already
	Found   uint64  `json:"found"`        // of Stored: stored already when they were about to be sent, or to be sent again
	Letters uint64  `json:"dead_letters"` // of Stored: refused by MongoDB, and kept in the dead-letter file
	Left    int     `json:"left"`         // still in the journal
	Seconds float64 `json:"seconds"`
}

// ReplayedReadings are the readings of one stream that one process accepted.
type ReplayedReadings struct {
	Session  string `json:"session"`
	Stream   string `json:"stream"`
	Readings uint64 `json:"readings"`
}

// Replay stores what the journal holds.
func Replay(ctx context.Context, c *Config, o Options, retarget bool) (done Replayed, err error) {
	if !c.journaling() {
		return done, config.Usage(errors.New("--journal off: there is no journal to replay"))
	}
	logger := newLogger(o.Stderr, logLevel(c.LogLevel), c.LogFormat)
	running, stopping, release := watchSignals(ctx, logger, stopSignals())
	defer release()
	d := &daemon{cfg: c, log: logger, stderr: o.Stderr, session: batch.NewSession(), began: time.Now(), memory: memoryLimit("/"), registry: prometheus.NewRegistry()}
	found, err := InspectJournal(c.JournalPath())
	if err != nil {
		return done, err
	}
	done = Replayed{Journal: found.Dir, Taken: []ReplayedReadings{}, Keys: found.Keys}
	for _, u := range found.Unapplied {
		done.Taken = append(done.Taken, ReplayedReadings{Session: u.Session, Stream: u.Stream, Readings: u.Readings})
	}
	j, err := d.openJournal(retarget)
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
	s, err := d.openStorage(uri, j, retarget)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, s.disconnect(stopping)) }()
	watched, end := context.WithCancel(running)
	var watching sync.WaitGroup
	watching.Go(func() { watchReplay(watched, j, s.queue, logger) })
	if s.conn != nil {
		watching.Go(func() { s.claims.Run(watched) })
	}
	preparing, prepared := context.WithCancel(running)
	err = s.keepPrepared(preparing, prepared)
	prepared()
	if err == nil {
		err = s.queue.Flush(running)
	}
	end()
	watching.Wait()
	done.Left, done.Seconds = s.queue.Close(watched), time.Since(d.began).Seconds() // it does not wait: watched has ended
	metrics, countErr := scrape.Gather(d.registry)
	count := func(name string) uint64 {
		if n := metrics.Value(name, nil); n > 0 {
			return uint64(n)
		}
		return 0
	}
	done.Stored = s.queue.Status().Released
	done.Found, done.Letters = count("brim_store_duplicates_prevented_total"), count("brim_queue_dead_letters_total")
	if err == nil {
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
