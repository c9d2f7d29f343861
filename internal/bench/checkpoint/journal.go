package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/bench"
)

// Journal is how long one write took that waits for the one before, by write
// concern, of one topology at one commit interval.
type Journal struct {
	Topology string `json:"topology"`
	// Commit is the commit interval in seconds, as the server tells it.
	Commit    float64                  `json:"commit_interval_seconds"`
	Default   bool                     `json:"default"`         // the commit interval is the server's own
	Latencies map[string]bench.Samples `json:"latency_seconds"` // medians of each repeat
	// FileBytes is the size of a journal file; 0 if it cannot be seen.
	FileBytes float64 `json:"journal_file_bytes"`
}

// The write concerns.
const (
	relaxed  = "w:1, j:false"
	waiting  = "w:1, j:true"
	majority = "w:majority, j:true"
)

func concerns(standalone bool) []string {
	if standalone {
		return []string{relaxed, waiting}
	}
	return []string{relaxed, waiting, majority}
}

func concernOf(name string) *writeconcern.WriteConcern {
	journaled := name != relaxed
	if name == majority {
		return &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}
	}
	return &writeconcern.WriteConcern{W: 1, Journal: &journaled}
}

// commitIntervals are those that are tried, in milliseconds; the server's own is
// among them.
func commitIntervals() []int { return []int{10, 100, 300} }

// topologies are those that can be had: whether it is a standalone.
func topologies(lab *bench.Lab) []bool {
	if lab.Own() {
		return []bool{false, true}
	}
	return []bool{false}
}

// journals measures each topology.
func journals(ctx context.Context, lab *bench.Lab, p *plan) (all []*Journal, err error) {
	for _, standalone := range topologies(lab) {
		some, err := journalsOf(ctx, lab, bench.Setting{Standalone: standalone}, p.batch)
		if all = append(all, some...); err != nil {
			return all, err
		}
	}
	return all, nil
}

func journalsOf(ctx context.Context, lab *bench.Lab, setting bench.Setting, batch time.Duration) (all []*Journal, err error) {
	m, err := lab.Start(ctx, setting)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	own, err := parameter(ctx, m, commitParameter)
	if err != nil {
		return nil, err
	}
	c, err := m.Counters(ctx)
	if err != nil {
		return nil, err
	}
	tried := commitIntervals()
	if !lab.Own() {
		tried = []int{int(own)}
	}
	for _, commit := range tried {
		all = append(all, &Journal{
			Topology: c.Topology, Commit: float64(commit) / 1000, Default: float64(commit) == own && lab.Own(),
			Latencies: make(map[string]bench.Samples),
		})
	}
	for range lab.Repeats {
		lab.Step("write journaled and not, by commit interval, %s", c.Topology)
		for _, j := range all {
			if err := j.measure(ctx, m, batch); err != nil {
				return all, err
			}
		}
	}
	size, err := journalFile(m)
	for _, j := range all {
		j.FileBytes = size
	}
	return all, err
}

// commitParameter has the commit interval in milliseconds.
const commitParameter = "journalCommitInterval"

// measure makes one repeat of each write concern.
func (j *Journal) measure(ctx context.Context, m *bench.MongoDB, batch time.Duration) error {
	standalone := j.Topology == "standalone"
	if err := m.Set(ctx, map[string]any{commitParameter: int(j.Commit*1000 + 0.5)}); err != nil && !errors.Is(err, bench.ErrOwnOnly) {
		return err
	}
	for _, name := range concerns(standalone) {
		coll := m.Database().Collection(documents, options.Collection().SetWriteConcern(concernOf(name)))
		took, err := oneByOne(ctx, coll, batch)
		if err != nil {
			return fmt.Errorf("write with %s: %w", name, err)
		}
		j.Latencies[name] = append(j.Latencies[name], took.Median())
	}
	return nil
}

// leastWrites make a median that one slow write does not move.
const leastWrites = 15

// oneByOne inserts small documents one after the other: nothing is merged, so
// that each waits for its own journal.
func oneByOne(ctx context.Context, coll *mongo.Collection, length time.Duration) (took bench.Samples, err error) {
	for until := time.Now().Add(length); len(took) < leastWrites || time.Now().Before(until); {
		began := time.Now()
		if _, err := coll.InsertOne(ctx, bson.D{{Key: "a", Value: len(took)}}); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began).Seconds())
	}
	return took, nil
}

// parameter reads a number that the server tells.
func parameter(ctx context.Context, m *bench.MongoDB, name string) (float64, error) {
	raw, err := m.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "getParameter", Value: 1}, {Key: name, Value: 1}}).Raw()
	if err != nil {
		return 0, fmt.Errorf("read parameter %s of mongod: %w", name, err)
	}
	v, ok := raw.Lookup(name).AsFloat64OK()
	if !ok {
		return 0, fmt.Errorf("read parameter %s of mongod: %s is no number", name, raw.Lookup(name))
	}
	return v, nil
}

// journalFile is the size of the newest file of the journal; 0 of a user's.
func journalFile(m *bench.MongoDB) (bytes float64, err error) {
	if m.DBPath() == "" {
		return 0, nil
	}
	folder := filepath.Join(m.DBPath(), "journal")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, fmt.Errorf("look at the journal's files: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), "WiredTigerLog.") })
	if len(entries) == 0 {
		return 0, nil
	}
	info, err := entries[len(entries)-1].Info()
	if err != nil {
		return 0, fmt.Errorf("look at the journal's files: %w", err)
	}
	return float64(info.Size()), nil
}
