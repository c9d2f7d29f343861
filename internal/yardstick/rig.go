package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/machine"
)

const (
	storedTimeout = 15 * time.Minute // in which all that was taken must be stored
	closeTimeout  = 10 * time.Second
	quietTimeout  = 30 * time.Second
	removeLook    = 250 * time.Millisecond
	quietLooks    = 3    // in a row in which mongod used next to nothing
	quietShare    = 0.08 // of a processor
)

// A rig is a daemon with its own mongod, in a fresh directory.
type rig struct {
	*launch.Daemon
	mongod embedded
	client *mongo.Client // straight to that mongod, majority
	dir    string
	note   func(format string, args ...any) // to whoever waits
	begun  int                              // stretches
	each   any                              // readings in a document of the default stream, as an expression
}

// Event time of the first stretch lies so far back that later ones, each a
// month after the one before, have passed as well.
const (
	monthsBack = 12
	month      = 30 * 24 * time.Hour
)

// begin returns where the event time of the next stretch begins. No two share a
// bucket.
func (r *rig) begin() time.Time {
	begin := time.Now().Truncate(time.Hour).Add(month * time.Duration(r.begun-monthsBack))
	r.begun++
	return begin
}

// status is what is read of the daemon's /status.
type status struct {
	Version  string   `json:"version"`
	Database string   `json:"database"`
	MongoURI string   `json:"mongo_uri"`
	Mongod   embedded `json:"mongod"`
}

type embedded struct {
	Version string `json:"version"`
	Pid     int    `json:"pid"`
}

// newRig starts a daemon with these flags.
func (y *yardstick) newRig(ctx context.Context, args ...string) (r *rig, err error) {
	dir, err := os.MkdirTemp(y.dir, "rig-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the daemon: %w", err)
	}
	r = &rig{dir: dir, note: y.note, each: "$count"}
	r.Daemon, err = launch.Start(ctx, launch.Config{
		Brim: y.brim, Args: append([]string{"--data-dir", filepath.Join(dir, "data"), "--mongod-auth", "off"}, args...), Out: y.progress,
	})
	if err != nil {
		return nil, errors.Join(err, r.remove())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	var s status
	if err := r.Get(ctx, "/status", &s); err != nil {
		return nil, err
	}
	if s.Mongod.Pid == 0 {
		return nil, errors.New("the daemon tells no mongod of its own in /status")
	}
	r.mongod = s.Mongod
	y.setting.Brim, y.setting.Mongod = s.Version, s.Mongod.Version
	r.client, err = mongo.Connect(options.Client().ApplyURI(s.MongoURI).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return nil, fmt.Errorf("connect to the daemon's mongod: %w", err)
	}
	return r, nil
}

// close ends the daemon and its mongod, and removes what they stored.
func (r *rig) close() error {
	var disconnected error
	if r.client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		disconnected = r.client.Disconnect(ctx)
	}
	return errors.Join(disconnected, r.Stop(), r.remove())
}

// remove deletes the directory. A mongod that died with its daemon may still
// be at it.
func (r *rig) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for {
		err := os.RemoveAll(r.dir)
		if err == nil || machine.Pause(ctx, removeLook) != nil {
			return err
		}
	}
}

// cpu is what all have used so far.
func (r *rig) cpu() (c cpu, err error) {
	if c.brim, err = machine.CPU(r.Pid()); err != nil {
		return c, err
	}
	if c.mongod, err = machine.CPU(r.mongod.Pid); err != nil {
		return c, err
	}
	c.generator, err = machine.CPU(os.Getpid())
	return c, err
}

// settle makes mongod write its checkpoint and waits until it and the daemon
// are quiet, so that one measurement does not pay for the one before.
func (r *rig) settle(ctx context.Context) error {
	if err := r.client.Database("admin").RunCommand(ctx, bson.D{{Key: "fsync", Value: 1}}).Err(); err != nil {
		return fmt.Errorf("make mongod write a checkpoint: %w", err)
	}
	// The daemon and its mongod may each do next to nothing.
	rest := machine.Quiet{Share: 2 * quietShare, Looks: quietLooks, Most: quietTimeout}
	quiet, err := rest.Await(ctx, func() (time.Duration, error) {
		used, err := r.cpu()
		return used.mongod + used.brim, err
	})
	if err == nil && !quiet {
		r.note("mongod did not come to rest in %v; the measurement begins all the same\n", quietTimeout)
	}
	return err
}
