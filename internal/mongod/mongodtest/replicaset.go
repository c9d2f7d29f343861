package mongodtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/mongod"
)

const (
	replicaSetName = "faults"
	// primaryPatience is how long an election may take on a busy machine.
	primaryPatience = 60 * time.Second
	lookEvery       = 20 * time.Millisecond
)

// A ReplicaSet is three mongods on loopback that elect a primary among
// themselves. Unlike a mongod.Server, a member that dies stays dead until
// Restart. Its methods belong to the goroutine of the test.
type ReplicaSet struct {
	t       testing.TB
	Members [3]*Member
}

// A Member is one mongod of a ReplicaSet.
type Member struct {
	Host string // host:port

	bin, dir string
	client   *mongo.Client
	process  *os.Process
	ended    chan struct{} // closed when the process has ended
}

// StartReplicaSet starts three members and returns when one takes writes. They
// end with the test, or with the test binary however that ends. When a primary
// has been silent for electionTimeout, the others elect a new one; MongoDB's own
// 10 s is long for a test.
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
		m.await(t)
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
	r.Primary()
	r.AwaitHealthy()
	return r
}

// URI for clients; more are the options behind the set's own.
func (r *ReplicaSet) URI(more ...string) string {
	hosts := make([]string, len(r.Members))
	for i, m := range r.Members {
		hosts[i] = m.Host
	}
	return "mongodb://" + strings.Join(hosts, ",") + "/?" + strings.Join(append([]string{"replicaSet=" + replicaSetName}, more...), "&")
}

// Primary waits until a member takes writes, and returns it. One that is
// stopped or dead is not asked.
func (r *ReplicaSet) Primary() *Member {
	r.t.Helper()
	var primary *Member
	r.await("a primary", func(ctx context.Context) bool {
		for _, m := range r.Members {
			if m.state(ctx) == "primary" {
				primary = m
				return true
			}
		}
		return false
	})
	return primary
}

// AwaitHealthy waits until there is a primary and all others follow it.
func (r *ReplicaSet) AwaitHealthy() {
	r.t.Helper()
	r.await("a healthy replica set", func(ctx context.Context) bool {
		states := make(map[string]int)
		for _, m := range r.Members {
			states[m.state(ctx)]++
		}
		return states["primary"] == 1 && states["secondary"] == len(r.Members)-1
	})
}

func (r *ReplicaSet) await(what string, seen func(context.Context) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), primaryPatience)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !seen(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.t.Fatalf("no %s within %v", what, primaryPatience)
		}
	}
}

// StepDown makes the primary a secondary, for long enough that another is
// elected. It fails when there is none that could be.
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
	for _, m := range r.Members {
		if m.process == nil {
			continue
		}
		_ = m.process.Signal(goOnSignal)
		_ = m.process.Kill()
		<-m.ended
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = m.client.Disconnect(ctx)
		cancel()
	}
}

// Kill ends the member as a crash does.
func (m *Member) Kill() {
	_ = m.process.Kill()
	<-m.ended
}

// Restart starts a dead member on its old files, and returns when it answers.
func (m *Member) Restart(t testing.TB) {
	t.Helper()
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
	m.await(t)
}

// Pause stops the member's process: its sockets stay, and what arrives in them
// is carried out after Resume.
func (m *Member) Pause() error { return m.process.Signal(stopSignal) }

// Resume lets a paused member go on.
func (m *Member) Resume() error { return m.process.Signal(goOnSignal) }

// Run carries out an administrative command on this very member.
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
		return "away"
	case hello.IsWritablePrimary:
		return "primary"
	case hello.Secondary:
		return "secondary"
	default:
		return "starting"
	}
}

// await waits until the member answers.
func (m *Member) await(t testing.TB) {
	t.Helper()
	deadline := time.After(primaryPatience)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for m.state(context.Background()) == "away" {
		select {
		case <-tick.C:
		case <-m.ended:
			out, _ := os.ReadFile(filepath.Join(m.dir, "out"))
			t.Fatalf("mongod %s ended: %s", m.Host, out)
		case <-deadline:
			t.Fatalf("mongod %s does not answer", m.Host)
		}
	}
}

// start starts the process; a goroutine waits for its end.
func (m *Member) start() error {
	_, port, err := net.SplitHostPort(m.Host)
	if err != nil {
		return fmt.Errorf("start a member: %w", err)
	}
	if m.client == nil {
		m.client, err = mongo.Connect(options.Client().ApplyURI("mongodb://" + m.Host + "/?directConnection=true").
			SetServerSelectionTimeout(time.Second).SetHeartbeatInterval(time.Second).SetTimeout(operationTimeout))
		if err != nil {
			return fmt.Errorf("connect to a member: %w", err)
		}
	}
	out, err := os.OpenFile(filepath.Join(m.dir, "out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start a member: %w", err)
	}
	defer out.Close()
	cmd := exec.CommandContext(context.Background(), m.bin,
		"--dbpath", m.dir, "--port", port, "--bind_ip", "127.0.0.1", "--nounixsocket", "--quiet",
		"--replSet", replicaSetName, "--oplogSize", "64", "--wiredTigerCacheSizeGB", "0.25",
		"--setParameter", "enableTestCommands=1", "--setParameter", "diagnosticDataCollectionEnabled=false",
		"--setParameter", "minSnapshotHistoryWindowInSeconds=0")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attributes()
	m.ended = make(chan struct{})
	started := make(chan error)
	go func(ended chan struct{}) {
		// The signal at the parent's death comes when the thread ends that
		// started the child, so that thread is kept for as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is for those who ended it
			close(ended)
		}
	}(m.ended)
	if err := <-started; err != nil {
		return errors.Join(fmt.Errorf("start %s", m.bin), err)
	}
	m.process = cmd.Process
	return nil
}
