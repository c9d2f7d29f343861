package faulttest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// A doctored run is a daemon under light load whose writes are slowed down in one
// way, after it has learned their usual latency.
type doctored struct {
	*scene
	server *mongod.Server
	d      *daemon
	proxy  *faulttest.Proxy // nil: there is none
}

// A doctorVerdict is the output of `brim doctor`.
type doctorVerdict struct {
	Class     string
	Note      string
	WritePath json.RawMessage `json:"write_path"`
	Signals   []struct {
		Name  string
		Class string
	}
	Diagnosis []struct{ Name, Kind, Evidence string }
	stderr    string
}

func (v *doctorVerdict) slow() []string {
	var out []string
	for _, f := range v.Diagnosis {
		if f.Kind == "slow" {
			out = append(out, f.Name)
		}
	}
	return slices.Compact(out)
}

func (v *doctorVerdict) class(signal string) string {
	for _, s := range v.Signals {
		if s.Name == signal {
			return s.Class
		}
	}
	return ""
}

// diagnose runs `brim doctor` on the daemon.
func (x *doctored) diagnose() doctorVerdict {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary.Path(x.t), "doctor", "--admin", strings.TrimPrefix(x.d.Admin, "http://"), "--over", "2s", "--output", "json")
	cmd.Env = brimtest.Env()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // its exit code is the class
	v := doctorVerdict{stderr: stderr.String()}
	if stdout.Len() > 0 {
		require.NoError(x.t, json.Unmarshal(stdout.Bytes(), &v))
	}
	return v
}

// admin runs a command on the server, bypassing the proxy.
func (x *doctored) admin(command bson.D) {
	x.t.Helper()
	require.NoError(x.t, x.db.Client().Database("admin").RunCommand(context.Background(), command).Err())
}

func (x *doctored) set(parameter string, value any) {
	x.t.Helper()
	x.admin(bson.D{{Key: "setParameter", Value: 1}, {Key: parameter, Value: value}})
}

// busily runs a task in n goroutines until the test ends.
func (x *doctored) busily(n int, task func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, n)
	for range n {
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				task(ctx)
			}
		}()
	}
	x.t.Cleanup(func() {
		cancel()
		for range n {
			<-ended
		}
	})
}

// eat keeps CPUs busy with separate processes.
func (x *doctored) eat(n int) {
	for range n {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = endsWithTest()
		require.NoError(x.t, cmd.Start())
		require.NoError(x.t, syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, 5))
		x.t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
}

// renice sets the priority of a process and all its threads: 19 yields to all
// others.
func renice(t testing.TB, pid, priority int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	require.NoError(t, err)
	for _, thread := range threads {
		id, err := strconv.Atoi(filepath.Base(thread))
		require.NoError(t, err)
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, priority) // it may have ended
	}
}

// slowDisk returns a folder on a loop device, and a function that throttles its
// writes: the file beneath is written directly, at a limited rate.
func slowDisk(t testing.TB) (dir string, throttle func(pid int)) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 3<<30))
	command := func(words ...string) (string, error) {
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%v: %w: %s", words, err, out)
		}
		return strings.TrimSpace(string(out)), err
	}
	device, err := command("losetup", "--find", "--show", "--direct-io=on", image)
	if err != nil {
		t.Skip("NOT RUN: a slow disk, which needs a loop device:", err)
	}
	t.Cleanup(func() { _, _ = command("losetup", "--detach", device) })
	_, err = command("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
	require.NoError(t, err)
	dir = t.TempDir()
	require.NoError(t, syscall.Mount(device, dir, "ext4", 0, ""))
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir, func(pid int) {
		var beneath syscall.Stat_t
		require.NoError(t, syscall.Stat(image, &beneath))
		group := "/sys/fs/cgroup/blkio/brim-" + strconv.Itoa(os.Getpid())
		if err := os.Mkdir(group, 0o700); err != nil {
			t.Skip("NOT RUN: a slow disk, which needs the cgroup blkio:", err)
		}
		limit := fmt.Sprintf("%d:%d 25", beneath.Dev>>8&0xfff, beneath.Dev&0xff)
		require.NoError(t, os.WriteFile(filepath.Join(group, "blkio.throttle.write_iops_device"), []byte(limit), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600))
		t.Cleanup(func() {
			_ = os.WriteFile(filepath.Join(group, "blkio.throttle.write_iops_device"), []byte(strings.Fields(limit)[0]+" 0"), 0o600)
			_ = os.WriteFile("/sys/fs/cgroup/blkio/cgroup.procs", []byte(strconv.Itoa(pid)), 0o600)
			_ = os.Remove(group)
		})
	}
}

// TestDoctorSituations slows writes down in ten ways, and checks that the doctor
// names each. It may also name consequences, and a host whose CPU is in fact
// saturated.
func TestDoctorSituations(t *testing.T) {
	if !full() {
		t.Skip("only in full: make test-fault")
	}
	for _, c := range []struct {
		name    string
		data    func(t testing.TB) string // of MongoDB's files; nil: anywhere
		cache   float64                   // GB
		flags   []string
		idle    bool
		make    func(x *doctored)
		found   string   // "": nothing
		follows []string // may be named in addition
		says    string   // on stderr, if MongoDB does not answer
	}{
		{name: "idle", idle: true, make: func(x *doctored) { x.eat(4) }},
		{name: "healthy", make: func(*doctored) {}},
		{name: "CPU eaten by other processes", found: "host_cpu", make: func(x *doctored) {
			renice(x.t, x.server.Pid(), 19)
			x.eat(6)
		}},
		{name: "CPU eaten by mongod", found: "processor", make: func(x *doctored) {
			pipeline := mongo.Pipeline{
				{{Key: "$documents", Value: bson.A{bson.D{{Key: "n", Value: 1}}}}},
				{{Key: "$project", Value: bson.D{{Key: "x", Value: bson.D{{Key: "$reduce", Value: bson.D{
					{Key: "input", Value: bson.D{{Key: "$range", Value: bson.A{0, 300_000}}}}, {Key: "initialValue", Value: 0},
					{Key: "in", Value: bson.D{{Key: "$add", Value: bson.A{"$$value", "$$this"}}}},
				}}}}}}},
			}
			renice(x.t, x.server.Pid(), 0) // make test-fault may have lowered the priority
			x.busily(12, func(ctx context.Context) {
				cursor, err := x.db.Aggregate(ctx, pipeline)
				if ctx.Err() == nil && assert.NoError(x.t, err) {
					_ = cursor.Close(ctx)
				}
			})
		}},
		{name: "stopped mongod", says: "does not answer", make: func(x *doctored) {
			require.NoError(x.t, syscall.Kill(x.server.Pid(), syscall.SIGSTOP))
			x.t.Cleanup(func() { _ = syscall.Kill(x.server.Pid(), syscall.SIGCONT) })
		}},
		{name: "tickets", found: "tickets", make: func(x *doctored) {
			_, err := x.db.Collection("held").InsertOne(context.Background(), bson.D{{Key: "_id", Value: 1}})
			require.NoError(x.t, err)
			x.set("wiredTigerConcurrentWriteTransactions", 5)
			x.busily(20, func(ctx context.Context) {
				_, _ = x.db.Collection("held").UpdateOne(ctx, bson.D{{Key: "$where", Value: "sleep(300) || true"}},
					bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})
			})
		}},
		{name: "network delay", found: "network", make: func(x *doctored) {
			x.proxy.Set(faulttest.Faults{Delay: 200 * time.Millisecond})
		}},
		{name: "cache pressure", found: "cache", follows: []string{"eviction", "processor", "disk_latency", "disk_iops", "disk_throughput", "tickets", "checkpoint"}, flags: []string{"--granularity", "1h", "--max-readings-per-update", "1"}, make: func(x *doctored) {
			x.set("wiredTigerEngineRuntimeConfig", "cache_size=2MB")
			x.produce(x.d, 4, faulttest.ProducerConfig{Batch: 50, Sensors: 400, Rate: 1500, Step: 5 * time.Millisecond})
		}},
		{name: "history window", found: "history_store", follows: []string{"cache", "eviction", "processor", "disk_latency", "disk_iops", "disk_throughput", "tickets", "checkpoint"}, flags: []string{"--granularity", "1h", "--max-readings-per-update", "1"}, make: func(x *doctored) {
			x.set("minSnapshotHistoryWindowInSeconds", 300)
			x.set("wiredTigerEngineRuntimeConfig", "cache_size=8MB")
			x.produce(x.d, 4, faulttest.ProducerConfig{Batch: 50, Sensors: 100, Rate: 1500, Step: 5 * time.Millisecond})
		}},
		{name: "slow disk", found: "disk_iops|disk_latency|disk_throughput", follows: []string{"checkpoint", "cache", "eviction", "tickets"}},
		{name: "full disk", found: "disk_full", says: "disk full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := &doctored{scene: newScene(t)}
			config := mongod.Config{CacheSizeGB: c.cache, Parameters: map[string]string{"minSnapshotHistoryWindowInSeconds": "0"}}
			switch c.name {
			case "slow disk":
				dir, throttle := slowDisk(t)
				config.DataDir = dir
				c.make = func(x *doctored) { throttle(x.server.Pid()) }
			case "full disk":
				config.DataDir = t.TempDir()
				if err := syscall.Mount("none", config.DataDir, "tmpfs", 0, "size=600m"); err != nil {
					t.Skip("NOT RUN: a full disk, which needs a tmpfs:", err)
				}
				t.Cleanup(func() { assert.NoError(t, syscall.Unmount(config.DataDir, syscall.MNT_DETACH)) })
				c.make = func(x *doctored) { // until no space is left
					ballast, err := os.Create(filepath.Join(config.DataDir, "ballast"))
					require.NoError(t, err)
					for err == nil {
						_, err = ballast.Write(make([]byte, 1<<20))
					}
					require.ErrorIs(t, err, syscall.ENOSPC)
					require.NoError(t, ballast.Close())
					t.Cleanup(func() { // so that it can be stopped
						require.NoError(t, os.Remove(ballast.Name()))
						assert.Eventually(t, func() bool { return x.db.Client().Ping(context.Background(), nil) == nil }, patience, 100*time.Millisecond)
					})
				}
			}
			x.server = mongodtest.Start(t, config)
			x.mongo(x.server.URI())
			uri := ""
			if c.found == "network" {
				x.proxy, uri = x.scene.proxy()
			}
			x.d = x.daemon(uri, append([]string{"--server-status-interval", "1s"}, c.flags...)...)
			if !c.idle {
				x.produce(x.d, 2, faulttest.ProducerConfig{Batch: 20, Sensors: 50, Rate: 100})
				x.d.await(func() bool { return x.d.metric("brim_store_write_baseline_seconds") > 0 })
			}
			c.make(x)
			began := time.Now()
			var v doctorVerdict
			allowed := slices.Concat(c.follows, strings.Split(c.found, "|"))
			for looks := 1; ; looks++ {
				v = x.diagnose()
				found := v.slow()
				t.Logf("after %s: class %q, found %v, write path %s, note %q, stderr %q", time.Since(began).Round(time.Second), v.Class, found, v.WritePath, v.Note, v.stderr)
				if v.Class != "" {
					for _, name := range found {
						if name == "host_cpu" && v.class("processor") == "bottleneck" {
							continue // other processes of the host
						}
						if name == "late" && c.found != "" {
							continue // anything that slows writes down makes updates late
						}
						assert.Contains(t, allowed, name, "a false diagnosis")
					}
				}
				right := slices.ContainsFunc(found, func(name string) bool { return slices.Contains(strings.Split(c.found, "|"), name) })
				switch {
				case c.says != "":
					right = right || strings.Contains(v.stderr, c.says)
				case c.found == "":
					right = looks == 5
				}
				if right {
					break
				}
				if c.found == "processor" && time.Since(began) > patience && slices.Contains(found, "host_cpu") {
					t.Skip("NOT RUN: other processes of the host have most of the CPU, and the doctor says so:", v.Diagnosis[0].Evidence)
				}
				require.Less(t, time.Since(began), patience, "not named")
			}
			if c.says != "" && c.found == "" {
				var body string
				require.True(t, x.d.await(func() bool { // it takes half a second more than brim doctor
					code, answer, err := x.d.ask(http.MethodGet, "/readyz")
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, code, "readings are journaled")
					body = answer
					return strings.Contains(body, "MongoDB is away")
				}), "/readyz does not name it")
				assert.Zero(t, x.d.metric("brim_mongodb_up"))
				t.Log(body)
			}
		})
	}
}
