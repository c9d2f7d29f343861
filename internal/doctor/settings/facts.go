package settings

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// facts are all that the rules judge. What is nil could not be seen, or is not
// there; unseen says which.
type facts struct {
	kind       deployment
	major      int // of the server's version
	user       userName
	database   string // of the streams
	parameters *parameters
	options    *commandLine
	memory     float64 // that mongod may use, in bytes; NaN: not told
	concern    *defaultConcerns
	config     *replicaConfig
	status     *replicaStatus
	look       *Look
	span       span
	streams    []streamFacts

	refusals []refusal
	now      time.Time
}

// A deployment is what kind of server answers.
type deployment string

const (
	standalone deployment = "standalone"
	replicaSet deployment = "replica set"
	sharded    deployment = "sharded" // a mongos
)

type userName struct {
	User string `bson:"user"`
	DB   string `bson:"db"`
}

type parameters struct {
	History       *float64 `bson:"minSnapshotHistoryWindowInSeconds"`
	SyncDelay     *float64 `bson:"syncdelay"`
	JournalCommit *float64 `bson:"journalCommitInterval"`
	Engine        string   `bson:"wiredTigerEngineRuntimeConfig"`
}

type commandLine struct {
	Parsed struct {
		Config  string `bson:"config"` // path of the file
		Storage struct {
			SyncPeriod *float64 `bson:"syncPeriodSecs"`
			Journal    struct {
				Enabled *bool `bson:"enabled"`
			} `bson:"journal"`
			WiredTiger struct {
				Engine struct {
					Config string `bson:"configString"`
				} `bson:"engineConfig"`
			} `bson:"wiredTiger"`
		} `bson:"storage"`
	} `bson:"parsed"`
}

type defaultConcerns struct {
	Write struct {
		W any `bson:"w"`
	} `bson:"defaultWriteConcern"`
	Source string `bson:"defaultWriteConcernSource"`
}

type replicaConfig struct {
	Config struct {
		Journal *bool    `bson:"writeConcernMajorityJournalDefault"`
		Members []member `bson:"members"`
	} `bson:"config"`
}

type member struct {
	Host    string  `bson:"host"`
	Arbiter bool    `bson:"arbiterOnly"`
	Votes   float64 `bson:"votes"`
	Delay   float64 `bson:"secondaryDelaySecs"`
}

type replicaStatus struct {
	Members []struct {
		Name    string    `bson:"name"`
		Health  float64   `bson:"health"`
		State   int       `bson:"state"`
		Text    string    `bson:"stateStr"`
		Applied time.Time `bson:"optimeDate"`
	} `bson:"members"`
}

// streamFacts are of one stream's collection; nil as in facts.
type streamFacts struct {
	Stream
	sizes   *collectionSizes
	indexes []indexUse
	trial   *trial
}

// hasBuckets reports whether a stream's readings are appended to documents.
func (f *facts) hasBuckets() bool {
	return slices.ContainsFunc(f.streams, func(s streamFacts) bool { return s.Storage == store.Bucket })
}

// gather asks for everything, one after the other: each is some ms.
func gather(ctx context.Context, s server, c Config) (*facts, error) {
	f := &facts{memory: math.NaN(), now: c.Now()}
	if c.Database != nil {
		f.database = c.Database.Name()
	}
	g := &gathering{facts: f, server: s}
	if err := g.deployment(ctx); err != nil {
		return nil, err
	}
	if f.kind != sharded {
		g.process(ctx)
		f.look = takeLook(ctx, s)
		g.note(clusterMonitor, "serverStatus", "what the settings cost", f.look.err)
		f.span = spanOf(c.Before, f.look)
	} else {
		f.look = &Look{err: errNoEngine}
		f.span = spanOf(nil, f.look)
	}
	if f.kind == replicaSet {
		f.config = answer[replicaConfig](ctx, g, question{command: bson.D{{Key: "replSetGetConfig", Value: 1}}, need: "the topology"})
		f.status = answer[replicaStatus](ctx, g, question{command: bson.D{{Key: "replSetGetStatus", Value: 1}}, need: "members that lag"})
	}
	if f.kind != standalone {
		f.concern = answer[defaultConcerns](ctx, g, question{command: bson.D{{Key: "getDefaultRWConcern", Value: 1}}, need: "the default write concern"})
	}
	for _, stream := range c.Streams {
		f.streams = append(f.streams, g.stream(ctx, stream, c.Sample))
	}
	return f, ctx.Err()
}

// A gathering fills facts.
type gathering struct {
	facts  *facts
	server server
}

// deployment asks what everybody may ask.
func (g *gathering) deployment(ctx context.Context) error {
	var hello struct {
		Set string `bson:"setName"`
		Msg string `bson:"msg"`
	}
	raw, err := g.server.run(ctx, true, bson.D{{Key: "hello", Value: 1}})
	if err != nil {
		return err
	}
	if err := bson.Unmarshal(raw, &hello); err != nil {
		return fmt.Errorf("read hello: %w", err)
	}
	switch {
	case hello.Msg == "isdbgrid":
		g.facts.kind = sharded
	case hello.Set != "":
		g.facts.kind = replicaSet
	default:
		g.facts.kind = standalone
	}
	var build struct {
		Version string `bson:"version"`
	}
	if raw, err = g.server.run(ctx, true, bson.D{{Key: "buildInfo", Value: 1}}); err != nil {
		return err
	}
	if err := bson.Unmarshal(raw, &build); err != nil {
		return fmt.Errorf("read buildInfo: %w", err)
	}
	major, _, _ := strings.Cut(build.Version, ".")
	g.facts.major, _ = strconv.Atoi(major) // what is no number counts as old
	var status struct {
		Info struct {
			Users []userName `bson:"authenticatedUsers"`
		} `bson:"authInfo"`
	}
	if raw, err = g.server.run(ctx, true, bson.D{{Key: "connectionStatus", Value: 1}}); err == nil &&
		bson.Unmarshal(raw, &status) == nil && len(status.Info.Users) > 0 {
		g.facts.user = status.Info.Users[0]
	}
	return nil
}

// process asks for what belongs to the one process.
func (g *gathering) process(ctx context.Context) {
	g.facts.parameters = answer[parameters](ctx, g, question{command: bson.D{
		{Key: "getParameter", Value: 1}, {Key: "minSnapshotHistoryWindowInSeconds", Value: 1}, {Key: "syncdelay", Value: 1},
		{Key: "journalCommitInterval", Value: 1}, {Key: "wiredTigerEngineRuntimeConfig", Value: 1},
	}, need: "the history window, checkpoints and the journal"})
	g.facts.options = answer[commandLine](ctx, g, question{command: bson.D{{Key: "getCmdLineOpts", Value: 1}}, need: "the checkpoint interval"})
	host := answer[struct {
		System struct {
			Memory float64 `bson:"memSizeMB"`
			Limit  float64 `bson:"memLimitMB"` // of the container
		} `bson:"system"`
	}](ctx, g, question{command: bson.D{{Key: "hostInfo", Value: 1}}, need: "the cache against the machine's memory"})
	if host == nil {
		return
	}
	if mib := host.System.Limit; mib > 0 {
		g.facts.memory = mib * (1 << 20)
	} else if mib := host.System.Memory; mib > 0 {
		g.facts.memory = mib * (1 << 20)
	}
}

// A question is a command and what its answer is needed for.
type question struct {
	command bson.D
	need    string
}

// answer asks on admin; nil: no answer, which is noted.
func answer[T any](ctx context.Context, g *gathering, q question) *T {
	raw, err := g.server.run(ctx, true, q.command)
	if err == nil {
		out := new(T)
		if err = bson.Unmarshal(raw, out); err == nil {
			return out
		}
	}
	g.note(clusterMonitor, q.command[0].Key, q.need, err)
	return nil
}
