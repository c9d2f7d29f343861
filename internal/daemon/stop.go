package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/brim-telemetry/brim/internal/journal"
)

// A stop has --stop-timeout, 15 s by default. The flush gets six tenths of it,
// so that a MongoDB that is away leaves time for the rest: one tenth for requests to
// get their answers, three for a clean end of mongod, which takes one to three
// seconds after heavy writing.
const (
	flushShare    = 0.6
	requestsShare = 0.1
)

// stop refuses what comes, stores what was taken, and ends everything that the
// daemon has started. When ctx ends it does no more than the ending. It also
// undoes what of the daemon was started when the start went wrong.
func (d *daemon) stop(ctx context.Context) error {
	begin := time.Now()
	left, cancel := context.WithTimeout(ctx, d.current().StopTimeout)
	defer cancel()
	d.draining.Store(true)
	d.supervisor.stops(d.current().StopTimeout)
	d.door.Stop()
	errs := []error{d.drain(left)}
	d.endRequests(left)
	d.disconnect(left)
	if looks := d.looks.Load(); looks != nil {
		looks.end() // until here there is something to see, and mongod takes its metrics with it
	}
	if server := d.mongod.Load(); server != nil {
		if err := server.Close(left); err != nil {
			errs = append(errs, fmt.Errorf("stop the embedded MongoDB: %w", err))
		}
	}
	errs = append(errs, d.admin.Close(), d.listeners.close())
	if d.serving != nil {
		errs = append(errs, d.serving.Wait())
	}
	d.hangUp()
	if err := context.Cause(ctx); err != nil {
		errs = append([]error{err}, errs...)
	}
	level := slog.LevelInfo
	if d.serving == nil {
		level = slog.LevelDebug // it never ran, and why is said by who ends
	}
	d.log.Log(context.Background(), level, "stopped", "took", time.Since(begin).Round(time.Millisecond))
	return errors.Join(errs...)
}

// drain stores what was taken, as far as there is time, and closes the journal,
// which answers those who still wait.
func (d *daemon) drain(ctx context.Context) error {
	j, s := d.journal.Load(), d.storage.Load()
	if j == nil {
		return nil
	}
	(*j).Stop()
	left := 0
	if s != nil {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(flushShare*float64(d.current().StopTimeout)))
		defer cancel()
		left = s.queue.Close(ctx)
	}
	var errs []error
	if err := (*j).Close(); err != nil {
		errs = append(errs, fmt.Errorf("close the journal: %w", err))
	}
	switch {
	case left > 0 && errors.Is((*j).Err(), journal.ErrGone):
		errs = append(errs, fmt.Errorf("stop with %d readings not known to be stored, and %w; they are lost, unless %s was moved: then run `brim journal replay --journal-dir` with its new path",
			left, journal.ErrGone, d.cfg.JournalPath()))
	case left > 0 && d.cfg.journaling():
		d.log.Info("readings stay in the journal and are stored after the next start", "readings", left)
	case left > 0:
		errs = append(errs, fmt.Errorf("stop with %d readings not known to be stored; none of them was acknowledged", left))
	}
	return errors.Join(errs...)
}

// disconnect ends the connections to MongoDB before an embedded one ends. With
// a server that is gone the driver would wait for as long as it may.
func (d *daemon) disconnect(ctx context.Context) {
	s := d.storage.Load()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := s.disconnect(ctx); err != nil {
		d.log.Debug("disconnect from MongoDB", "err", err)
	}
}

// endRequests lets the requests that are under way get their answers, then
// ends the servers of readings.
func (d *daemon) endRequests(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(requestsShare*float64(d.current().StopTimeout)))
	defer cancel()
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		d.grpc.GracefulStop()
	}()
	if err := d.http.Shutdown(ctx); err != nil {
		d.log.Warn("cut off HTTP requests", "err", err)
		_ = d.http.Close() // what is left of the connections says nothing new
	}
	select {
	case <-graceful:
	case <-ctx.Done():
		d.log.Warn("cut off gRPC calls", "err", ctx.Err())
		d.grpc.Stop()
		<-graceful
	}
	d.door.Wait()
}
