package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/queue"
	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/internal/silence"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/memory"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
)

// A home is where one stream rests.
type home interface {
	queue.Store
	read.Source
	// Prepare creates the collection, or checks that the one that is there can
	// take the stream. A *store.MismatchError or *store.ConcernError is final;
	// other errors may pass.
	Prepare(ctx context.Context) error
}

// storage is the queue with the stores behind it.
type storage struct {
	conn  *store.Connection // nil where no stream needs MongoDB
	homes map[string]home
	queue *queue.Queue
	log   *slog.Logger

	silence *silence.Watch

	mu       sync.Mutex
	prepared map[string]error         // by stream: nil once it can take readings
	ready    map[string]chan struct{} // by stream: closed at that moment
}

// storageSetup is what storage needs beside the settings.
type storageSetup struct {
	uri      string // empty where no stream needs MongoDB
	journal  queue.Journal
	faults   *fault.Injector
	logger   *slog.Logger
	registry prometheus.Registerer
}

var errUnprepared = errors.New("its collection has not been looked at yet")

// openStorage wires the stores and the queue, whose lanes start where the
// journal is, each when its stream is prepared. MongoDB may be away.
func openStorage(c *settings, setup storageSetup) (*storage, error) {
	s := &storage{homes: make(map[string]home), log: setup.logger, prepared: make(map[string]error), ready: make(map[string]chan struct{})}
	var database *mongo.Database
	if setup.uri != "" {
		conn, err := store.Connect(store.ConnectionConfig{URI: setup.uri, Database: c.Database, Faults: setup.faults, Logger: setup.logger})
		if err != nil {
			return nil, err
		}
		s.conn, database = conn, conn.Database()
	}
	var err error
	if s.silence, err = newSilence(c, setup); err != nil {
		return nil, errors.Join(err, s.disconnect(context.Background()))
	}
	streams := make(map[string]queue.Stream)
	for _, stream := range c.Streams {
		h, err := stream.home(database, setup)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("set up stream %s: %w", stream.Name, err), s.disconnect(context.Background()))
		}
		ready := make(chan struct{})
		s.homes[stream.Name], s.prepared[stream.Name], s.ready[stream.Name] = h, errUnprepared, ready
		streams[stream.Name] = queue.Stream{Store: h, Granularity: stream.Granularity, Prepared: ready, Arrivals: s.silence.Stream(stream.Name)}
	}
	s.queue, err = queue.New(queue.Config{
		Journal: setup.journal, Streams: streams, Lanes: c.Lanes, FlushInterval: c.FlushInterval, MaxBytes: c.laneBytes(),
		DeadLetters: &queue.DeadLetterFile{Path: filepath.Join(c.DataDir, queue.DeadLettersName)},
		Faults:      setup.faults, Logger: setup.logger, Registerer: setup.registry,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up the queue: %w", err), s.disconnect(context.Background()))
	}
	s.silence.SetKnownUntil(s.queue.ToldUntil)
	return s, nil
}

// home returns the stream's store.
func (s stream) home(database *mongo.Database, setup storageSetup) (home, error) {
	switch s.Storage {
	case store.Bucket:
		return bucket.New(bucket.Config{
			Database: database, Stream: s.Name, Granularity: s.Granularity,
			MaxReadings: s.BucketMaxReadings, MaxBytes: s.BucketMaxBytes, MaxReadingsPerUpdate: s.MaxReadingsPerUpdate,
			Compressor: s.Compressor, Retention: s.Retention, WriteConcern: s.WriteConcern, View: s.View == on,
			Faults: setup.faults, Logger: setup.logger, Registerer: setup.registry,
		})
	case store.TimeSeries:
		return timeseries.New(timeseries.Config{
			Database: database, Stream: s.Name, Granularity: s.Granularity,
			Compressor: s.Compressor, Retention: s.Retention, WriteConcern: s.WriteConcern,
			Faults: setup.faults, Logger: setup.logger, Registerer: setup.registry,
		})
	case store.Memory:
		setup.logger.Warn("a stream is kept in memory only: its readings end with this process, whatever their acknowledgement says", "stream", s.Name)
		return memory.New(memory.Config{Stream: s.Name, Granularity: s.Granularity, Registerer: setup.registry})
	default:
		return nil, fmt.Errorf("storage %q is unknown", s.Storage)
	}
}

// Between two attempts to prepare a stream, and for one.
const (
	firstPause     = 200 * time.Millisecond
	lastPause      = 5 * time.Second
	prepareTimeout = 10 * time.Second
)

// prepare makes all streams ready to be written, trying again for as long as
// MongoDB is away. It returns nil when they are or ctx ends, and an error when
// a stream can never be.
func (s *storage) prepare(ctx context.Context) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		waits, err := s.prepareOnce(ctx)
		if err != nil || !waits || machine.Pause(ctx, pause) != nil {
			return err
		}
	}
}

// prepareOnce tries every stream that is not ready.
func (s *storage) prepareOnce(parent context.Context) (waits bool, err error) {
	for name, home := range s.homes {
		if s.reason(name) == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(parent, prepareTimeout)
		err := home.Prepare(ctx)
		cancel()
		if final(err) {
			return false, fmt.Errorf("prepare stream %s: %w", name, err)
		}
		if parent.Err() == nil { // else the error says nothing about the stream
			s.note(name, err)
		}
		waits = waits || err != nil
	}
	return waits, nil
}

// note remembers what became of a stream, and logs the first of a row of
// failures.
func (s *storage) note(stream string, err error) {
	s.mu.Lock()
	before := s.prepared[stream]
	s.prepared[stream] = err
	s.mu.Unlock()
	switch {
	case err == nil:
		close(s.ready[stream])
		s.log.Info("stream is ready", "stream", stream)
	case errors.Is(before, errUnprepared):
		s.log.Warn("stream waits for MongoDB", "stream", stream, "err", err)
	}
}

// reason returns why a stream cannot take readings, nil if it can.
func (s *storage) reason(stream string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prepared[stream]
}

// admit returns why a stream can take no readings now.
func (s *storage) admit(stream string) error {
	if _, inMemory := s.homes[stream].(*memory.Store); inMemory {
		return nil
	}
	if err := s.available(); err != nil {
		return err
	}
	if err := s.reason(stream); err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	return nil
}

// available returns why MongoDB cannot be used now, nil if it can be or is not
// needed.
func (s *storage) available() error {
	if s.conn == nil {
		return nil
	}
	return s.conn.Available()
}

// readable returns why a stream cannot be read now.
func (s *storage) readable(stream string) error {
	if _, inMemory := s.homes[stream].(*memory.Store); inMemory {
		return nil
	}
	return s.available()
}

func (s *storage) sources() map[string]read.Source {
	sources := make(map[string]read.Source, len(s.homes))
	for name, h := range s.homes {
		sources[name] = watchedSource{h, s.silence.Stream(name)}
	}
	return sources
}

func (s *storage) disconnect(ctx context.Context) error {
	if s.conn == nil {
		return nil
	}
	return s.conn.Close(ctx)
}
