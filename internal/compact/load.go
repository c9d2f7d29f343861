package compact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/machine"
)

// A Load is the load of a member during the measurement. NaN, which is null in JSON, means
// unknown.
type Load struct {
	Over    time.Duration   // duration of the measurement; 0: none
	Writes  float64         // documents that clients inserted, updated or deleted, per second
	Applied float64         // documents changed by replication, per second
	Reads   float64         // queries per second
	Signals []doctor.Signal // those of the doctor, except free space, which is in Sizes
}

// busyOperations is the number of documents written or queries per second from which a server
// counts as busy. A daemon with 600 sensors that report every 5 s exceeds it. Below it, a
// compaction hardly delays anything.
const busyOperations = 50

// Names of the doctor's signals.
const (
	signalDisk          = "disk_busy"
	signalFragmentation = "fragmentation"
	signalSpace         = "disk_free"
)

// Busy returns the reasons why the member counts as busy; nil if it is not. A member whose load is
// unknown counts as busy.
func (l Load) Busy() []string {
	var why []string
	if l.Over == 0 {
		why = append(why, "how busy it is cannot be seen: the role clusterMonitor permits it")
	}
	if l.Writes >= busyOperations {
		why = append(why, fmt.Sprintf("%.0f documents/s are written", l.Writes))
	}
	if l.Reads >= busyOperations {
		why = append(why, fmt.Sprintf("%.0f queries/s are executed", l.Reads))
	}
	for _, s := range l.Signals {
		if s.Class == doctor.Bottleneck || s.Name == signalDisk && s.Class == doctor.Degrading {
			why = append(why, fmt.Sprintf("%s is at %.3g %s (%s: %s)", strings.ToLower(s.Title), s.Value, s.Unit, s.Class, s.Describe()))
		}
	}
	return why
}

// MarshalJSON writes what is not known as null.
func (l Load) MarshalJSON() ([]byte, error) {
	busy := l.Busy()
	b, err := json.Marshal(struct {
		Seconds float64         `json:"watched_seconds"`
		Writes  *float64        `json:"documents_written_per_second"`
		Applied *float64        `json:"documents_replicated_per_second"`
		Reads   *float64        `json:"queries_per_second"`
		Busy    bool            `json:"busy"`
		Why     []string        `json:"busy_because,omitempty"`
		Signals []doctor.Signal `json:"signals,omitempty"`
	}{l.Over.Seconds(), known(l.Writes), known(l.Applied), known(l.Reads), len(busy) > 0, busy, l.Signals})
	if err != nil {
		return nil, fmt.Errorf("write a load: %w", err)
	}
	return b, nil
}

func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// counters are what a server has done since its start.
type counters struct {
	at         time.Time
	Documents  *documents `bson:"opcounters"`
	Replicated documents  `bson:"opcountersRepl"`
}

type documents struct {
	Insert float64 `bson:"insert"`
	Update float64 `bson:"update"`
	Delete float64 `bson:"delete"`
	Query  float64 `bson:"query"`
}

func (d documents) written() float64 { return d.Insert + d.Update + d.Delete }

// readCounters reads a member's counters.
func (c *Compactor) readCounters(ctx context.Context, m *Member) (counters, error) {
	command := bson.D{{Key: "serverStatus", Value: 1}}
	for _, section := range []string{"metrics", "wiredTiger", "locks", "tcmalloc", "transactions", "repl", "network", "shardingStatistics"} {
		command = append(command, bson.E{Key: section, Value: 0})
	}
	var now counters
	err := ask(ctx, m.client.Database("admin"), command, &now)
	if err == nil && now.Documents == nil {
		err = errors.New("the reply has none")
	}
	if err != nil {
		return counters{}, fmt.Errorf("ask %s for its counters: %w", m.Host, err)
	}
	now.at = time.Now()
	return now, nil
}

// load measures the load of a member.
func (c *Compactor) load(ctx context.Context, m *Member) Load {
	nan := math.NaN()
	l := Load{Writes: nan, Applied: nan, Reads: nan}
	monitor, err := doctor.New(doctor.Config{Database: m.client.Database(c.config.Database), Interval: time.Second})
	if err == nil {
		monitor.Sample(ctx)
	}
	before, beforeErr := c.readCounters(ctx, m)
	if machine.Pause(ctx, c.measure) != nil {
		return l
	}
	now, nowErr := c.readCounters(ctx, m)
	if err == nil {
		monitor.Sample(ctx)
		// Free space is in the sizes; these samples are of the server only.
		l.Signals = slices.DeleteFunc(monitor.Signals(), func(s doctor.Signal) bool { return s.Name == signalFragmentation || s.Name == signalSpace })
	}
	if beforeErr != nil || nowErr != nil {
		return l
	}
	l.Over = now.at.Sub(before.at)
	seconds := l.Over.Seconds()
	l.Writes = (now.Documents.written() - before.Documents.written()) / seconds
	l.Applied = (now.Replicated.written() - before.Replicated.written()) / seconds
	l.Reads = (now.Documents.Query - before.Documents.Query) / seconds
	return l
}
