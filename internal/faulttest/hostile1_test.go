package faulttest_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestHOSTILE1 lets attackers with and without a token do what they can think of,
// all at once, while good clients go on. A good client must not lose a reading,
// memory and metrics must stay within their bounds, and nobody's secret may be
// seen.
func TestHOSTILE1(t *testing.T) {
	faultTest{name: "HOSTILE-1", alone: true, run: hostile, sabotages: []sabotage{
		{off: []fault.Protection{fault.Quota}, runs: 1},
		{off: []fault.Protection{fault.InflateLimit}, runs: 1},
	}}.test(t)
}

// What the daemon may take and give. The race detector keeps several bytes for
// each that is used.
var mostMemory = int64(512<<20) * map[bool]int64{false: 1, true: 4}[raceEnabled]

const (
	// preyStream is where attackers may send.
	preyStream = "prey"
	// mostSensors is the quota of each attacker that has a token.
	mostSensors = 2000
	mongoSecret = "canary-of-mongodb"
	unknown     = "brim_canary00000000000000000000000000000000000000"
)

// A siege is the scene with what the hostile test needs of it.
type siege struct {
	*scene

	daemon   *daemon
	secured  *daemon // speaks TLS, and has nothing to do but to be attacked
	attacker *attacker
	tokens   map[string]string // by identity
	broken   []string
}

func hostile(s *scene) outcome {
	s.shared()
	g := &siege{scene: s, tokens: make(map[string]string)}
	g.start()
	good := g.produceGood()
	wait(time.Second)
	before, idle := g.series(), g.daemon.metric("go_goroutines")
	g.besiege(good)
	g.provoke()
	g.checkMemory()
	g.checkSeries(before)
	g.checkGone(idle)
	g.checkCounted()
	g.checkSecrets()
	g.checkQuota()
	out := s.finish(len(g.attacker.attacks()))
	out.broken = append(out.broken, g.broken...)
	return out
}

func (g *siege) fail(format string, args ...any) {
	g.broken = append(g.broken, fmt.Sprintf(format, args...))
}

// start runs the daemon with an access file, and a MongoDB user whose password
// must not be seen.
func (g *siege) start() {
	t := g.t
	err := g.db.RunCommand(context.Background(), bson.D{
		{Key: "createUser", Value: "brim"}, {Key: "pwd", Value: mongoSecret}, {Key: "roles", Value: bson.A{"readWrite", "dbAdmin"}},
	}).Err()
	require.NoError(t, err)
	quota := fmt.Sprintf("    quota: {requests_per_second: 100, readings_per_second: 5000, new_sensors_per_second: 500, active_sensors: %d}\n", mostSensors)
	if slices.Contains(g.off, fault.Quota) {
		quota = ""
	}
	file := "identities:\n"
	for _, one := range []struct{ name, scopes, more string }{
		{"good", "ingest", ""}, {"attacker", "ingest, read", quota}, {"swarm", "ingest", quota}, {"operator", "admin", ""},
	} {
		token, err := access.NewToken()
		require.NoError(t, err)
		g.tokens[one.name] = token
		file += fmt.Sprintf("  - name: %s\n    hash: %s\n    scopes: [%s]\n%s", one.name, access.HashOf(token), one.scopes, one.more)
	}
	dir := t.TempDir()
	accessFile, config := filepath.Join(dir, "access.yaml"), filepath.Join(dir, "brim.yaml")
	require.NoError(t, os.WriteFile(accessFile, []byte(file), 0o600))
	require.NoError(t, os.WriteFile(config, []byte("streams:\n  "+preyStream+": {granularity: 1h}\n"), 0o600))
	uri := strings.Replace(g.uri, "mongodb://", "mongodb://brim:"+mongoSecret+"@", 1)
	uri = strings.Replace(uri, "/?", "/?authSource="+g.db.Name()+"&", 1)
	flags := []string{"--config", config, "--access-file", accessFile}
	if slices.Contains(g.off, fault.InflateLimit) {
		flags = append(flags, "--max-inflated-bytes", "1GiB", "--max-inflate-ratio", "1000000")
	}
	off := make([]string, len(g.off))
	for i, p := range g.off {
		off[i] = "off=" + string(p)
	}
	g.daemon = newDaemon(t, strings.Join(off, ","), append([]string{"--mongo-uri", uri, "--database", g.db.Name()}, flags...)...)
	g.daemon.Token = g.tokens["operator"]
	g.daemons = append(g.daemons, g.daemon)
	g.daemon.start().ready()
	g.secured = g.startSecured(dir, accessFile)
	g.attacker = newAttacker(g.target(1 << 40))
	g.t.Cleanup(g.attacker.close)
}

// startSecured starts a daemon that keeps what it takes in memory.
func (g *siege) startSecured(dir, accessFile string) *daemon {
	t := g.t
	cert, key := accesstest.NewAuthority(t, "test").Server("brim", time.Now().Add(time.Hour)).Write(t, dir)
	d := newDaemon(t, "", "--storage", "memory", "--access-file", accessFile, "--tls-cert", cert, "--tls-key", key)
	d.Token = g.tokens["operator"]
	d.start()
	up := d.await(func() bool {
		text, err := os.ReadFile(d.log)
		return err == nil && strings.Contains(string(text), `"msg":"ready"`)
	})
	require.True(t, up, d.lastWords())
	return d
}

// target is what attackers know; first is the number of their first sensor.
func (g *siege) target(first int) target {
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	return target{
		HTTP: host(g.daemon.HTTP), GRPC: g.daemon.GRPC, Admin: host(g.daemon.Admin), TLS: host(g.secured.HTTP),
		Token: g.tokens["attacker"], Swarm: g.tokens["swarm"], Full: full() && len(g.off) == 0, First: first,
	}
}

// produceGood starts the clients that must not suffer.
func (g *siege) produceGood() *faulttest.Producers {
	cfg := faulttest.ProducerConfig{Token: g.tokens["good"], Sensors: 100, Step: 5 * time.Millisecond}
	lines := cfg
	lines.LineProtocol, lines.Batch, lines.Rate = true, 10, 200
	g.produce(g.daemon, 2, lines)
	stored := cfg
	stored.Ack, stored.FirstSensor, stored.Batch, stored.Rate = "stored", 1000, 5, 50
	g.produce(g.daemon, 2, stored)
	cfg.Batch, cfg.Rate, cfg.FirstSensor, cfg.Timed = 5, 1000, 2000, true
	return g.produce(g.daemon, 4, cfg)
}

// besiege lets all attacks run at once, and rest, in turn, and holds that good
// clients feel little of it.
func (g *siege) besiege(good *faulttest.Producers) {
	plan, attackers := g.plan(), g.startAttackers(g.target(0))
	var quiet, under []time.Duration
	used := make(map[string]float64) // processor time of the sieges
	add := func(sign float64) {
		used["the daemon"] += sign * g.daemon.processorTime("")
		used["the one with TLS"] += sign * g.secured.processorTime("")
		used["good clients"] += sign * g.daemon.processorTime("self")
		used["attackers"] += sign * g.daemon.processorTime(strconv.Itoa(attackers.cmd.Process.Pid))
	}
	sensors := 0
	for round := range plan.rounds {
		good.Counts.Took()
		wait(plan.quiet)
		quiet = append(quiet, good.Counts.Took()...)
		add(-1)
		profiled := g.profile(plan.siege, round)
		sensors = attackers.attack(func() { wait(plan.siege) })
		profiled()
		add(1)
		under = append(under, good.Counts.Took()...)
	}
	const slowest = 0.01
	alone, besieged := faulttest.Slowest(quiet, slowest), faulttest.Slowest(under, slowest)
	g.t.Logf("99 %% of %d requests of good clients were answered within %v without attackers, of %d within %v with them: %.2f times as long",
		len(quiet), alone, len(under), besieged, besieged.Seconds()/alone.Seconds())
	g.t.Logf("%d times %v of siege, attackers of the lowest priority on the same %d processors; seconds of processor time: %v; %d different sensors sent",
		plan.rounds, plan.siege, runtime.NumCPU(), used, sensors)
	g.t.Log(g.attacker.String())
	if !full() || len(g.off) > 0 {
		return
	}
	if besieged > 2*max(alone, time.Millisecond) {
		g.fail("good clients waited %v, without attackers %v", besieged, alone)
	}
	if most := 1e6 * plan.siege.Minutes() * float64(plan.rounds) / 10; float64(sensors) < most {
		g.fail("%d different sensors were sent, and not %.0f", sensors, most)
	}
}

// profileTo, in the environment, is a file for a profile of the daemon in the
// second siege.
const profileTo = "BRIM_FAULT_PROFILE"

// profile begins a profile, if one is asked for; the result waits for it.
func (g *siege) profile(d time.Duration, round int) (done func()) {
	path := os.Getenv(profileTo)
	if path == "" || round != 1 {
		return func() {}
	}
	var running sync.WaitGroup
	running.Go(func() {
		_, body, err := g.daemon.askFor(2*d, http.MethodGet, fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(d.Seconds())-1)))
		assert.NoError(g.t, err)
		assert.NoError(g.t, os.WriteFile(path, []byte(body), 0o600))
	})
	return running.Wait
}

// provoke makes sure that each answer was given that the daemon must have
// counted: on a busy machine a short siege may end before some are.
func (g *siege) provoke() {
	a, ctx := g.attacker, context.Background()
	a.post(ctx, "", nil)
	a.readyBombs()
	a.sendBomb(ctx)
	for range mostSensors / 400 * 2 {
		a.newSensors(ctx)
	}
}

// checkMemory looks for the most that the daemons ever had.
func (g *siege) checkMemory() {
	for what, d := range map[string]*daemon{"the daemon": g.daemon, "the one with TLS": g.secured} {
		highest := d.highestRSS()
		g.t.Logf("memory of %s: at most %d MiB", what, highest>>20)
		if highest > mostMemory {
			g.fail("memory of %s grew to %d MiB", what, highest>>20)
		}
	}
}

// series are the names and labels of all metrics.
func (g *siege) series() map[string]bool {
	_, body, err := g.daemon.ask(http.MethodGet, "/metrics")
	require.NoError(g.t, err)
	out := make(map[string]bool)
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") {
			name, _, _ := strings.Cut(line, "} ")
			name, _, _ = strings.Cut(name, " ")
			out[name] = true
		}
	}
	require.Greater(g.t, len(out), 100)
	return out
}

func (g *siege) checkSeries(before map[string]bool) {
	after := g.series()
	g.t.Logf("%d series before, %d after", len(before), len(after))
	maps.DeleteFunc(after, func(name string, _ bool) bool { return before[name] })
	if len(after) > 0 {
		g.fail("%d new series, such as %s", len(after), slices.Sorted(maps.Keys(after))[0])
	}
}

// checkGone waits until nothing of the attackers is left in the daemon.
func (g *siege) checkGone(idle float64) {
	now := 0.0
	gone := g.daemon.await(func() bool {
		now = g.daemon.metric("go_goroutines")
		return now > 0 && now <= idle+50
	})
	g.t.Logf("%.0f goroutines before, %.0f after", idle, now)
	if !gone {
		g.fail("%.0f goroutines, %.0f before the attack", now, idle)
	}
}

// checkCounted holds that an operator sees in the metrics what attackers were
// told.
func (g *siege) checkCounted() {
	_, body, err := g.daemon.ask(http.MethodGet, "/metrics")
	require.NoError(g.t, err)
	for _, code := range []string{"401", "413", "429"} {
		seen, counted := g.attacker.seen(code), sumOf(body, "brim_ingest_requests_total", `code="`+code+`"`)
		if seen == 0 && (code != "429" || !slices.Contains(g.off, fault.Quota)) {
			g.fail("no attacker was answered with %s", code)
		}
		if counted < seen {
			g.fail("%.0f answers with %s, and %.0f counted", seen, code, counted)
		}
	}
}

// sumOf adds up the series of a family that have a label.
func sumOf(metrics, family, label string) (sum float64) {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, family+"{") && strings.Contains(line, label) {
			var v float64
			_, _ = fmt.Sscan(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:], &v)
			sum += v
		}
	}
	return sum
}

// checkSecrets looks for what nobody may see wherever somebody may look.
func (g *siege) checkSecrets() {
	log, err := os.ReadFile(g.daemon.log)
	require.NoError(g.t, err)
	shown := map[string]string{"the log": string(log), "an answer": g.attacker.answers()}
	for _, path := range []string{"/metrics", "/status", "/", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline"} {
		code, body, err := g.daemon.ask(http.MethodGet, path)
		require.NoError(g.t, err)
		if code != http.StatusOK {
			g.fail("%s: %d", path, code)
		}
		shown[path] = body
	}
	secrets := map[string]string{"the password of MongoDB": mongoSecret, "a token of nobody": unknown}
	for name, token := range g.tokens {
		secrets["the token of "+name] = token
	}
	for where, text := range shown {
		for what, secret := range secrets {
			// Neither whole nor its random part.
			if strings.Contains(text, secret) || strings.Contains(text, strings.TrimPrefix(secret, "brim_")) {
				g.fail("%s is in %s", what, where)
			}
		}
	}
}

// checkQuota holds that no more of the swarm's sensors are stored than their
// quota has.
func (g *siege) checkQuota() {
	g.flush(g.daemon)
	var sensors []string
	err := g.db.Collection(preyStream).Distinct(context.Background(), "sensorId", bson.D{{Key: "sensorId", Value: bson.D{{Key: "$regex", Value: "^m-"}}}}).Decode(&sensors)
	require.NoError(g.t, err)
	g.t.Logf("%d sensors of the swarm are stored", len(sensors))
	if len(sensors) == 0 {
		g.fail("the swarm could store nothing")
	}
	if len(sensors) > mostSensors {
		g.fail("%d sensors of an attacker who may have %d", len(sensors), mostSensors)
	}
}

// rest lets time pass, or the context end.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
