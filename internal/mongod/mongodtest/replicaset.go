//go:build unix

package mongodtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/mongod"
)

const (
	replicaSetName = "faults"
	// electionPatience is how long an election may take on a busy machine.
	electionPatience = 60 * time.Second
)

// A ReplicaSet is three mongods on loopback, one of which is elected primary.
// Unlike a mongod.Server, a member that dies stays dead until Restart. Its methods
// may be called from the test's goroutine only.
type ReplicaSet struct {
	t       testing.TB
	Members [3]*Member
}

// A Member is one mongod of a ReplicaSet.
type Member struct {
	Host string // host:port

	bin, dir string
	client   *mongo.Client
	process  *mongod.Process
}

// StartReplicaSet starts three members and returns when one accepts writes. They
// end with the test, or with the test binary. When a primary has not answered for
// electionTimeout, the others elect a new one; MongoDB's own 10 s is long for a test.
func StartReplicaSet(t testing.TB, electionTimeout time.Duration) *ReplicaSet {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	binary, err := mongod.Obtain(ctx, Defaults(mongod.Config{}))
	if err != nil {
		giveUp(t, err)
	}
	r := &ReplicaSet{t: t}
	config := bson.A{}
	for i := range r.Members {
		host := net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t)))
		r.Members[i] = &Member{Host: host, bin: binary.Path, dir: t.TempDir()}
		config = append(config, bson.D{{Key: "_id", Value: i}, {Key: "host", Value: host}})
	}
	t.Cleanup(r.end) // before their directories are removed
	for _, m := range r.Members {
		if err := m.start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range r.Members {
		m.awaitAnswer(t)
	}
	initiate := bson.D{{Key: "replSetInitiate", Value: bson.D{
		{Key: "_id", Value: replicaSetName}, {Key: "members", Value: config},
		{Key: "settings", Value: bson.D{
			{Key: "electionTimeoutMillis", Value: electionTimeout.Milliseconds()},
			{Key: "heartbeatIntervalMillis", Value: 200},
			{Key: "catchUpTimeoutMillis", Value: 5000},
		}},
	}}}
	if err := r.Members[0].Run(ctx, initiate); err != nil {
		t.Fatalf("initiate the replica set: %v", err)
	}
	await(r.t, "primary", func(ctx context.Context) bool {
		// Without this, the first election would start only after electionTimeout.
		_ = r.Members[0].Run(ctx, bson.D{{Key: "replSetStepUp", Value: 1}}) // refused while it starts
		return r.primary(ctx) != nil
	})
	r.AwaitHealthy()
	return r
}

// URI for clients, with further options.
func (r *ReplicaSet) URI(more ...string) string {
	hosts := make([]string, len(r.Members))
	for i, m := range r.Members {
		hosts[i] = m.Host
	}
	return "mongodb://" + strings.Join(hosts, ",") + "/?" + strings.Join(append([]string{"replicaSet=" + replicaSetName}, more...), "&")
}

// Primary waits until a member accepts writes, and returns it.
func (r *ReplicaSet) Primary() *Member {
	r.t.Helper()
	var primary *Member
	await(r.t, "primary", func(ctx context.Context) bool {
		primary = r.primary(ctx)
		return primary != nil
	})
	return primary
}

// primary returns the member that accepts writes, or nil.
func (r *ReplicaSet) primary(ctx context.Context) *Member {
	for _, m := range r.Members {
		if m.state(ctx) == "primary" {
			return m
		}
	}
	return nil
}

// AwaitHealthy waits until there is a primary that all others follow.
func (r *ReplicaSet) AwaitHealthy() {
	r.t.Helper()
	await(r.t, "healthy replica set", func(ctx context.Context) bool {
		states := make(map[string]int)
		for _, m := range r.Members {
			states[m.state(ctx)]++
		}
		return states["primary"] == 1 && states["secondary"] == len(r.Members)-1
	})
}

// await calls seen until it returns true.
func await(t testing.TB, what string, seen func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), electionPatience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !seen(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("no %s within %v", what, electionPatience)
		}
	}
}

// StepDown makes the primary a secondary long enough for another to be elected.
// It fails if there is no candidate.
func (r *ReplicaSet) StepDown() error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	err := r.Primary().Run(ctx, bson.D{
		{Key: "replSetStepDown", Value: 3}, {Key: "secondaryCatchUpPeriodSecs", Value: 2}, {Key: "force", Value: true},
	})
	if err != nil {
		return fmt.Errorf("step the primary down: %w", err)
	}
	return nil
}

func (r *ReplicaSet) end() {
	var all sync.WaitGroup
	for _, m := range r.Members {
		if m.process == nil {
			continue
		}
		all.Go(func() {
			_ = m.Resume()
			m.Kill()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = m.client.Disconnect(ctx)
		})
	}
	all.Wait()
}

// Kill ends the member like a crash.
func (m *Member) Kill() {
	_ = m.process.Kill()
	<-m.process.Ended
}

// Restart starts a stopped member, and returns once it answers.
func (m *Member) Restart(t testing.TB) {
	t.Helper()
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
	m.awaitAnswer(t)
}

func (m *Member) awaitAnswer(t testing.TB) {
	t.Helper()
	await(t, "answer from "+m.Host, func(ctx context.Context) bool {
		select {
		case <-m.process.Ended:
			out, _ := os.ReadFile(filepath.Join(m.dir, "out"))
			t.Fatalf("mongod %s ended: %s", m.Host, out)
		default:
		}
		return m.state(ctx) != "down"
	})
}

// Pause stops the member's process: its sockets stay open, and what they receive
// is processed after Resume.
func (m *Member) Pause() error { return m.process.Signal(syscall.SIGSTOP) }

// Resume continues a paused member.
func (m *Member) Resume() error { return m.process.Signal(syscall.SIGCONT) }

// Run runs an administrative command on this member.
func (m *Member) Run(ctx context.Context, command bson.D) error {
	return m.client.Database("admin").RunCommand(ctx, command).Err()
}

// SetFailPoint switches a fail point on or off; mode is alwaysOn, off, or a
// document such as {times: 3}.
func (m *Member) SetFailPoint(ctx context.Context, name string, mode any) error {
	if err := m.Run(ctx, bson.D{{Key: "configureFailPoint", Value: name}, {Key: "mode", Value: mode}}); err != nil {
		return fmt.Errorf("set fail point %s: %w", name, err)
	}
	return nil
}

// state is primary, secondary, or something else.
func (m *Member) state(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var hello struct {
		IsWritablePrimary bool `bson:"isWritablePrimary"`
		Secondary         bool `bson:"secondary"`
	}
	err := m.client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	switch {
	case err != nil:
		return "down"
	case hello.IsWritablePrimary:
		return "primary"
	case hello.Secondary:
		return "secondary"
	}
	return "starting"
}

func (m *Member) start() error {
	_, port, err := net.SplitHostPort(m.Host)
	if err == nil && m.client == nil {
		m.client, err = mongo.Connect(options.Client().ApplyURI("mongodb://" + m.Host + "/?directConnection=true").
			SetServerSelectionTimeout(time.Second).SetHeartbeatInterval(time.Second).SetTimeout(operationTimeout))
	}
	if err != nil {
		return fmt.Errorf("connect to a member: %w", err)
	}
	m.process, err = mongod.Spawn(m.bin, []string{
		"--dbpath", m.dir, "--port", port, "--bind_ip", "127.0.0.1", "--nounixsocket", "--quiet",
		"--replSet", replicaSetName, "--oplogSize", "64", "--wiredTigerCacheSizeGB", "0.25",
		"--setParameter", "enableTestCommands=1", "--setParameter", "diagnosticDataCollectionEnabled=false",
		"--setParameter", "minSnapshotHistoryWindowInSeconds=0",
	}, filepath.Join(m.dir, "out"), true)
	return err
}
