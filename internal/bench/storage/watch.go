package storage

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/machine"
)

// A watch looks at the size of a collection's file, and of all files of its
// mongod, while there is traffic. Of a user's MongoDB it sees nothing.
type watch struct {
	mongodb *bench.MongoDB
	file    string // empty: not to be seen
	seen    []filesSize
	first   int // of seen, in what is watched for its peak
}

type filesSize struct {
	at        time.Duration
	file, all int64
}

func newWatch(ctx context.Context, m *bench.MongoDB, coll *mongo.Collection) (*watch, error) {
	file, err := fileOf(ctx, m, coll)
	return &watch{mongodb: m, file: file}, err
}

// look notes the sizes now.
func (w *watch) look(t *traffic) error {
	s := filesSize{at: t.now()}
	if w.file != "" {
		info, err := os.Stat(w.file)
		if err != nil {
			return fmt.Errorf("look at a collection's file: %w", err)
		}
		s.file = info.Size()
		if s.all, err = w.mongodb.Files(); err != nil {
			return fmt.Errorf("look at mongod's files: %w", err)
		}
	}
	w.seen = append(w.seen, s)
	return nil
}

// until looks again and again until a moment of the traffic.
func (w *watch) until(t *traffic, moment time.Duration) error {
	for {
		if err := w.look(t); err != nil {
			return err
		}
		left := moment - t.now()
		if left <= 0 {
			return nil
		}
		if err := machine.Pause(t.ctx, min(left, sampleEvery)); err != nil {
			return err
		}
	}
}

// while looks again and again until something is done, and returns what came of
// it. When the looking fails it waits for the end all the same.
func (w *watch) while(t *traffic, done <-chan error) error {
	w.first = len(w.seen)
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	err := w.look(t)
	for {
		select {
		case result := <-done:
			if err == nil {
				err = w.look(t)
			}
			if result != nil {
				return result
			}
			return err
		case <-ticker.C:
			if err == nil {
				err = w.look(t)
			}
		}
	}
}

// peak is the largest size of the file since while began, in bytes.
func (w *watch) peak() number {
	if w.file == "" {
		return unknown()
	}
	most := int64(0)
	for _, s := range w.seen[w.first:] {
		most = max(most, s.file)
	}
	return number(most)
}

// more is by how much all files were larger, at most, since while began.
func (w *watch) more() number {
	if w.file == "" {
		return unknown()
	}
	most := int64(0)
	for _, s := range w.seen[w.first:] {
		most = max(most, s.all-w.seen[w.first].all)
	}
	return number(most)
}

// timeline completes one: p99 of every quarter of a second, and the file.
func (w *watch) timeline(t *traffic, of timeline) timeline {
	const every = 250 * time.Millisecond
	for i := 0; i < len(w.seen); {
		from := w.seen[i].at
		file := math.NaN()
		for ; i < len(w.seen) && w.seen[i].at < from+every; i++ {
			if w.file != "" {
				file = float64(w.seen[i].file)
			}
		}
		of.at = append(of.at, (from + every/2).Seconds())
		of.p99 = append(of.p99, t.took.between(from, from+every).p99())
		of.file = append(of.file, file)
	}
	return of
}
