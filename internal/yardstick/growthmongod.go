package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// A growthMongod is a mongod with the settings of the daemon's own, and a
// client of it that tells the round trips.
type growthMongod struct {
	server *mongod.Server
	client *mongo.Client
	trips  *trips
	dir    string
	note   func(format string, args ...any)
}

func (y *yardstick) startGrowthMongod(ctx context.Context) (m *growthMongod, err error) {
	m = &growthMongod{dir: filepath.Join(y.dir, "growth"), trips: &trips{}, note: y.note}
	m.server, err = mongod.Start(ctx, mongod.Config{
		Bin: os.Getenv("BRIM_MONGOD_BIN"), DataDir: m.dir, DieWithParent: true, Progress: y.progress,
	})
	if err != nil {
		return nil, fmt.Errorf("start a mongod: %w", err)
	}
	y.setting.Mongod = m.server.Version()
	m.client, err = mongo.Connect(options.Client().ApplyURI(m.server.URI()).SetMonitor(m.trips.monitor()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to mongod: %w", err), m.close())
	}
	return m, nil
}

func (m *growthMongod) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var disconnected error
	if m.client != nil {
		disconnected = m.client.Disconnect(ctx)
	}
	return errors.Join(disconnected, m.server.Close(ctx), os.RemoveAll(m.dir))
}

// database has the concerns of the daemon's.
func (m *growthMongod) database() *mongo.Database {
	journaled := true
	return m.client.Database("growth", options.Database().SetReadConcern(readconcern.Majority()).
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}))
}

// Caps of a part, as the daemon's.
const (
	growthPartReadings = 1000
	growthPartBytes    = 256 << 10
)

// store makes the collection of hourly buckets.
func (m *growthMongod) store(ctx context.Context) (*bucket.Store, error) {
	s, err := bucket.New(bucket.Config{
		Database: m.database(), Stream: collection, Granularity: time.Hour,
		MaxReadings: growthPartReadings, MaxBytes: growthPartBytes, Registerer: prometheus.NewRegistry(),
		Compressor: store.Snappy,
	})
	if err != nil {
		return nil, err
	}
	return s, s.Prepare(ctx)
}

// settle makes mongod write its checkpoint and waits until it is quiet.
func (m *growthMongod) settle(ctx context.Context) error {
	if err := m.client.Database("admin").RunCommand(ctx, bson.D{{Key: "fsync", Value: 1}}).Err(); err != nil {
		return fmt.Errorf("make mongod write a checkpoint: %w", err)
	}
	rest := machine.Quiet{Share: quietShare, Looks: quietLooks, Most: quietTimeout}
	_, err := rest.Await(ctx, func() (time.Duration, error) { return machine.CPU(m.server.Pid()) })
	return err // the measurement begins all the same
}

// usage is the processor time of mongod and of this process so far.
func (m *growthMongod) usage() (c cpu, err error) {
	if c.mongod, err = machine.CPU(m.server.Pid()); err != nil {
		return c, err
	}
	c.generator, err = machine.CPU(os.Getpid())
	return c, err
}

// sizes counts the bucket documents, their bytes before compression, and the
// readings in them.
func (m *growthMongod) sizes(ctx context.Context) (documents, bytes, readings int64, err error) {
	coll := m.database().Collection(collection)
	for _, sum := range []struct {
		of   any
		into *int64
	}{{1, &documents}, {bson.D{{Key: "$bsonSize", Value: "$$ROOT"}}, &bytes}, {"$count", &readings}} {
		if *sum.into, err = sumOf(ctx, coll, sum.of); err != nil {
			return 0, 0, 0, err
		}
	}
	return documents, bytes, readings, nil
}

// trips are the round trips of commands that update.
type trips struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *trips) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName != "update" {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.all = append(t.all, e.Duration)
	}}
}

// take returns the round trips since it was last called.
func (t *trips) take() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.all
	t.all = nil
	return all
}
