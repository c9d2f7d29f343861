package faulttest_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/brimtest/mosquitto"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestHOSTILE1 runs many attacks concurrently, with and without a token, while good
// clients continue. No reading may be lost, memory and metrics must stay within their
// bounds, and no secret may leak.
func TestHOSTILE1(t *testing.T) {
	alone(t)
	s := newScene(t)
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
	s.finish("HOSTILE-1", len(g.attacker.attacks()))
}

// mostMemory limits the daemon's memory. The race detector needs several bytes per
// byte.
var mostMemory = int64(512<<20) * map[bool]int64{false: 1, true: 4}[brimtest.Race]

const (
	// preyStream is the stream that attackers may write to.
	preyStream = "prey"
	// mostSensors is the quota of each attacker with a token.
	mostSensors = 2000
	mongoSecret = "canary-of-mongodb"
	unknown     = "brim_canary00000000000000000000000000000000000000"
)

// A siege is the scene of the hostile test.
type siege struct {
	*scene

	daemon   *daemon
	secured  *daemon // speaks TLS; its only load is the attack
	attacker *attacker
	broker   *mosquitto.Broker // nil: mosquitto is not installed
	tokens   map[string]string // by identity
}

// start runs the daemon with an access file, and a MongoDB user whose password
// must not leak.
func (g *siege) start() {
	t := g.t
	err := g.db.RunCommand(context.Background(), bson.D{
		{Key: "createUser", Value: "brim"}, {Key: "pwd", Value: mongoSecret}, {Key: "roles", Value: bson.A{"readWrite", "dbAdmin"}},
	}).Err()
	require.NoError(t, err)
	quota := fmt.Sprintf("    quota: {requests_per_second: 100, readings_per_second: 5000, new_sensors_per_second: 500, active_sensors: %d}\n", mostSensors)
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
	settings := "streams:\n  " + preyStream + ": {granularity: 1h}\n"
	if _, err := exec.LookPath("mosquitto"); err == nil || os.Getenv("BRIM_REQUIRE_PROGRAMS") != "" {
		g.broker = mosquitto.Start(t)
		settings += "mqtt-url: " + g.broker.URL() + "\nmqtt-stream: " + preyStream + "\nmqtt:\n  bad: {topic: 'hostile/{sensorId}'}\n  plant: {topic: 'spBv1.0/#'}\n"
	}
	require.NoError(t, os.WriteFile(config, []byte(settings), 0o600))
	uri := strings.Replace(g.uri, "mongodb://", "mongodb://brim:"+mongoSecret+"@", 1)
	uri = strings.Replace(uri, "/?", "/?authSource="+g.db.Name()+"&", 1)
	g.daemon = newDaemon(t, "--mongo-uri", uri, "--database", g.db.Name(), "--config", config, "--access-file", accessFile)
	g.daemon.Token = g.tokens["operator"]
	g.daemons = append(g.daemons, g.daemon)
	g.daemon.start().ready()
	g.secured = g.startSecured(dir, accessFile)
	g.attacker = newAttacker(g.target(1 << 40))
	g.t.Cleanup(g.attacker.close)
}

// startSecured starts a daemon with TLS and in-memory storage.
func (g *siege) startSecured(dir, accessFile string) *daemon {
	t := g.t
	cert, key := accesstest.NewAuthority(t, "test").Server("brim", time.Now().Add(time.Hour)).Write(t, dir)
	d := newDaemon(t, "--storage", "memory", "--access-file", accessFile, "--tls-cert", cert, "--tls-key", key)
	d.Token = g.tokens["operator"]
	d.start()
	up := d.await(func() bool {
		text, err := os.ReadFile(d.log)
		return err == nil && strings.Contains(string(text), `"msg":"ready"`)
	})
	require.True(t, up, d.lastWords())
	return d
}

// target is the attackers' knowledge; first is the number of their first sensor.
func (g *siege) target(first int) target {
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	mqtt := ""
	if g.broker != nil {
		mqtt = g.broker.Address
	}
	return target{
		MQTT: mqtt, HTTP: host(g.daemon.HTTP), GRPC: g.daemon.GRPC, Admin: host(g.daemon.Admin), TLS: host(g.secured.HTTP),
		Token: g.tokens["attacker"], Swarm: g.tokens["swarm"], Full: full(), First: first,
	}
}

// produceGood starts the clients that must not be affected.
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

// besiege alternates between all attacks and none, and checks that good clients are
// hardly slower.
func (g *siege) besiege(good *faulttest.Producers) {
	plan, attackers := g.plan(), g.startAttackers(g.target(0))
	var quiet, under []time.Duration
	used := make(map[string]float64) // CPU time during sieges
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
	g.t.Logf("%d times %v of siege, attackers of the lowest priority on the same %d processors; seconds of CPU time: %v; %d different sensors sent",
		plan.rounds, plan.siege, runtime.NumCPU(), used, sensors)
	g.t.Log(g.attacker.String())
	if !full() {
		return
	}
	if besieged > 2*max(alone, time.Millisecond) {
		g.t.Errorf("good clients waited %v, without attackers %v", besieged, alone)
	}
	if most := 1e6 * plan.siege.Minutes() * float64(plan.rounds) / 10; float64(sensors) < most {
		g.t.Errorf("%d different sensors were sent, and not %.0f", sensors, most)
	}
}

// profileTo names the environment variable with the file for a profile of the
// daemon in the second siege.
const profileTo = "BRIM_FAULT_PROFILE"

// profile starts a profile if requested; done waits for it.
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

// provoke makes sure that the daemon gave each answer that it must count: on a busy
// machine, a short siege may be too short.
func (g *siege) provoke() {
	a, ctx := g.attacker, context.Background()
	a.post(ctx, "", nil)
	a.readyBombs()
	a.sendBomb(ctx)
	for _, one := range a.inputAttacks() {
		one.once(ctx)
	}
	for range mostSensors / fewSensors * 2 {
		a.newSensors(ctx, fewSensors)
	}
}

// checkMemory checks the daemons' peak memory.
func (g *siege) checkMemory() {
	for what, d := range map[string]*daemon{"the daemon": g.daemon, "the one with TLS": g.secured} {
		highest := d.highestRSS()
		g.t.Logf("memory of %s: at most %d MiB", what, highest>>20)
		if highest > mostMemory {
			g.t.Errorf("memory of %s grew to %d MiB", what, highest>>20)
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
		g.t.Errorf("%d new series, such as %s", len(after), slices.Sorted(maps.Keys(after))[0])
	}
}

// checkGone waits until the daemon holds nothing of the attackers.
func (g *siege) checkGone(idle float64) {
	now := 0.0
	gone := g.daemon.await(func() bool {
		now = g.daemon.metric("go_goroutines")
		return now > 0 && now <= idle+50
	})
	g.t.Logf("%.0f goroutines before, %.0f after", idle, now)
	if !gone {
		g.t.Errorf("%.0f goroutines, %.0f before the attack", now, idle)
	}
}

// checkCounted checks that the metrics count the attackers' answers.
func (g *siege) checkCounted() {
	_, body, err := g.daemon.ask(http.MethodGet, "/metrics")
	require.NoError(g.t, err)
	if g.broker != nil {
		sent, counted := g.attacker.seen("mqtt published"), sumOf(body, "brim_mqtt_refused_total", "")
		g.t.Logf("%.0f bad messages refused", counted)
		if sent == 0 || counted < sent {
			g.t.Errorf("%.0f bad messages published, %.0f counted as refused", sent, counted)
		}
		if up := sumOf(body, "brim_mqtt_connected", ""); up != 2 {
			g.t.Errorf("%.0f of 2 subscriptions are connected", up)
		}
	}
	for _, protocol := range []string{"otlp_http", "remote_write"} {
		if sumOf(body, "brim_ingest_requests_total", `protocol="`+protocol+`"`) == 0 {
			g.t.Errorf("no request of %s is counted", protocol)
		}
	}
	for _, code := range []string{"401", "413", "429"} {
		seen, counted := g.attacker.seen(code), sumOf(body, "brim_ingest_requests_total", `code="`+code+`"`)
		if seen == 0 {
			g.t.Errorf("no attacker was answered with %s", code)
		}
		if counted < seen {
			g.t.Errorf("%.0f answers with %s, and %.0f counted", seen, code, counted)
		}
	}
}

// sumOf sums the series of a family with a label.
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

// checkSecrets searches all readable output for secrets.
func (g *siege) checkSecrets() {
	log, err := os.ReadFile(g.daemon.log)
	require.NoError(g.t, err)
	shown := map[string]string{"the log": string(log), "an answer": g.attacker.answers()}
	for _, path := range []string{"/metrics", "/status", "/", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline"} {
		code, body, err := g.daemon.ask(http.MethodGet, path)
		require.NoError(g.t, err)
		if code != http.StatusOK {
			g.t.Errorf("%s: %d", path, code)
		}
		shown[path] = body
	}
	secrets := map[string]string{"the password of MongoDB": mongoSecret, "an unknown token": unknown}
	for name, token := range g.tokens {
		secrets["the token of "+name] = token
	}
	for where, text := range shown {
		for what, secret := range secrets {
			// Neither the whole secret nor its random part.
			if strings.Contains(text, secret) || strings.Contains(text, strings.TrimPrefix(secret, "brim_")) {
				g.t.Errorf("%s is in %s", what, where)
			}
		}
	}
}

// checkQuota checks that the swarm has no more stored sensors than its quota.
func (g *siege) checkQuota() {
	g.flush(g.daemon)
	var sensors []string
	err := g.db.Collection(preyStream).Distinct(context.Background(), "sensorId", bson.D{{Key: "sensorId", Value: bson.D{{Key: "$regex", Value: "^m-"}}}}).Decode(&sensors)
	require.NoError(g.t, err)
	g.t.Logf("%d sensors of the swarm are stored", len(sensors))
	if len(sensors) == 0 {
		g.t.Errorf("the swarm could store nothing")
	}
	if len(sensors) > mostSensors {
		g.t.Errorf("%d sensors of an attacker who may have %d", len(sensors), mostSensors)
	}
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Attackers have other addresses than good clients, so that the daemon can tell them
// apart.
type attacker struct {
	http, grpc, admin, mqtt, tls, token, swarm string // from target
	full                                       bool

	client *http.Client
	h2     *http.Client // HTTP/2 without TLS, as gRPC speaks
	secure *http.Client // HTTP/2 over TLS
	bomb   []byte       // a single piece, gzipped

	mu    sync.Mutex
	codes map[string]int  // how often each answer was given
	texts map[string]bool // some different ones
	next  int
	first int
}

// attacks lists all attacks. The short form has fewer attackers.
func (a *attacker) attacks() []attack {
	return slices.Concat(a.bombs(), a.slowClients(), a.strangeReadings(), a.floods(), a.grpcAttacks(), a.tlsAttacks(), a.inputAttacks())
}

// pick returns the value for the current form.
func pick[T any](full bool, short, long T) T {
	if full {
		return long
	}
	return short
}

// bombs inflate to 800 MB.
func (a *attacker) bombs() []attack {
	gz, zst := a.readyBombs()
	pause := pick(a.full, 500*time.Millisecond, 2*time.Second)
	return []attack{
		{"gzip bomb", 2, pause, func(ctx context.Context) { a.post(ctx, a.token, gz, "Content-Encoding", "gzip") }},
		{"zstd bomb", 2, pause, func(ctx context.Context) { a.post(ctx, a.token, zst, "Content-Encoding", "zstd") }},
		{"bomb in one piece", 1, pause, a.sendBomb},
		{"unauthenticated bomb", 2, pause, func(ctx context.Context) { a.post(ctx, unknown, gz, "Content-Encoding", "gzip") }},
		{"line protocol bomb", 1, pause, func(ctx context.Context) {
			a.call(ctx, call{method: http.MethodPost, url: "http://" + a.http + "/write?db=" + preyStream, token: a.token, header: http.Header{"Content-Encoding": {"gzip"}}, body: bytes.NewReader(gz)})
		}},
	}
}

// readyBombs returns bombs of lines, in gzip and zstd, and prepares the
// single-piece one.
func (a *attacker) readyBombs() (gz, zst []byte) {
	line := bytes.Repeat([]byte(strings.Repeat(" ", 1023)+"\n"), 16<<10)
	const times = 50
	encoder, err := zstd.NewWriter(nil)
	must(err)
	gz, zst = bytes.Repeat(inGzip(line), times), bytes.Repeat(encoder.EncodeAll(line, nil), times)
	must(encoder.Close())
	a.bomb = append(inGzip([]byte("[")), gz...)
	return gz, zst
}

func inGzip(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	must(err)
	must(w.Close())
	return out.Bytes()
}

// must panics on impossible errors. An attacker has no test to fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// slowClients keep connections and requests open.
func (a *attacker) slowClients() []attack {
	many := pick(a.full, 60, 300)
	head := "POST /v1/readings HTTP/1.1\r\nHost: brim\r\nAuthorization: Bearer " + a.token + "\r\n"
	body := []byte(head + "Content-Type: application/x-ndjson\r\nContent-Length: 1000000\r\n\r\n{")
	chunked := []byte(head + "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n{")
	ask := []byte(strings.Repeat("GET /v1/streams HTTP/1.1\r\nHost: brim\r\nAuthorization: Bearer "+a.token+"\r\n\r\n", 50))
	return []attack{
		{"slow head", many, time.Second, func(ctx context.Context) { a.drip(ctx, a.http, "slow ", []byte(head+"X-Slow: "), 300*time.Millisecond) }},
		{"slow admin head", many / 10, time.Second, func(ctx context.Context) {
			a.drip(ctx, a.admin, "slow ", []byte("GET /metrics HTTP/1.1\r\nHost: brim\r\nX-Slow: "), 300*time.Millisecond)
		}},
		{"slow body", many, time.Second, func(ctx context.Context) { a.drip(ctx, a.http, "slow ", body, 300*time.Millisecond) }},
		{"slow chunk", many / 4, time.Second, func(ctx context.Context) { a.drip(ctx, a.http, "slow ", chunked, 300*time.Millisecond) }},
		{"slow gRPC preface", many / 4, time.Second, func(ctx context.Context) {
			a.drip(ctx, a.grpc, "slow ", []byte("PRI * HTTP/2.0\r\n"), 300*time.Millisecond)
		}},
		{"does not read", many / 6, 50 * time.Millisecond, func(ctx context.Context) { a.flood(ctx, a.http, "unread ", nil, ask) }},
		{"silent connections", many, time.Second, func(ctx context.Context) { a.raw(ctx, a.http, "idle ", nil, time.Minute) }},
	}
}

// strangeReadings are sent with a token.
func (a *attacker) strangeReadings() []attack {
	field := func(n int, name func(i int) string) []byte {
		var b bytes.Buffer
		fmt.Fprintf(&b, `{"sensorId":"f-%d","fields":{`, rand.IntN(100))
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:%d", name(i), i)
		}
		b.WriteString("}}\n")
		return b.Bytes()
	}
	names := []string{"$where", "a.b", "a\x00b", "", "_id", "ts", strings.Repeat("x", 200), "$", ".", "..", "constructor"}
	pause := pick(a.full, 50*time.Millisecond, 20*time.Millisecond)
	return []attack{
		{"a million sensors", 2, pick(a.full, pause, 400*time.Millisecond), func(ctx context.Context) {
			a.newSensors(ctx, []int{fewSensors, 2000}[rand.IntN(2)])
		}},
		{"10,000 names in a reading", 1, pause, func(ctx context.Context) {
			a.post(ctx, a.token, field(10_000, func(i int) string { return fmt.Sprint("n", i) }))
		}},
		{"10,000 names over readings", 1, pause, func(ctx context.Context) {
			a.post(ctx, a.token, field(200, func(int) string { return fmt.Sprint("o", rand.IntN(10_000)) }))
		}},
		{"names of operators", 1, pause, func(ctx context.Context) {
			name := names[rand.IntN(len(names))]
			body := fmt.Appendf(nil, `{"sensorId":%q,"fields":{%q:1,"ok":1},"tags":{%q:"$x"}}`+"\n", "$ne."+name, name, name)
			a.post(ctx, a.token, body)
		}},
		{"deep JSON", 1, pause, func(ctx context.Context) { a.post(ctx, a.token, bytes.Repeat([]byte(`{"a":[`), 100_000)) }},
		{"absurd reads", 2, 5 * pause, func(ctx context.Context) {
			paths := []string{
				"/v1/sensors/f-1/readings?from=0&to=253402300800000&limit=100000",
				"/v1/sensors/f-1/readings?limit=99999999999999999999",
				"/v1/sensors/f-1/summary?from=0&to=253402300800000&every=1ms",
				"/v1/sensors/f-1/summary?from=0&to=253402300800000&every=0ms",
				"/v1/sensors?prefix=%24ne&limit=10000", "/v1/sensors/%00/latest", "/v1/sensors/" + strings.Repeat("x", 8000) + "/readings",
			}
			a.call(ctx, call{method: http.MethodGet, url: "http://" + a.http + paths[rand.IntN(len(paths))], token: a.token, mark: "read "})
		}},
		{"admin without the scope", 1, 5 * pause, func(ctx context.Context) {
			path := []string{"/flush", "/hold", "/release", "/debug/pprof/profile?seconds=60", "/debug/pprof/heap"}[rand.IntN(5)]
			a.call(ctx, call{method: http.MethodPost, url: "http://" + a.admin + path, token: []string{"", a.token, unknown}[rand.IntN(3)], mark: "admin "})
		}},
		{"deletes without the scope", 1, 5 * pause, func(ctx context.Context) {
			a.call(ctx, call{method: http.MethodDelete, url: "http://" + a.http + "/v1/sensors/s-2001", token: a.token, mark: "delete "})
		}},
	}
}

// fewSensors fits within the quota at once.
const fewSensors = 400

// newSensors sends a reading for each of n unknown sensors.
func (a *attacker) newSensors(ctx context.Context, n int) {
	var b bytes.Buffer
	for range n {
		fmt.Fprintf(&b, "{\"sensorId\":\"m-%d\",\"fields\":{\"v\":1}}\n", a.number())
	}
	a.post(ctx, a.swarm, b.Bytes())
}

// sendBomb sends a bomb with a single value, which must be read in full.
func (a *attacker) sendBomb(ctx context.Context) {
	a.call(ctx, call{
		method: http.MethodPost, url: "http://" + a.http + "/v1/streams/" + preyStream + "/readings", token: a.token,
		header: http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, body: bytes.NewReader(a.bomb),
	})
}

// floods are attacks without a token, or without valid requests.
func (a *attacker) floods() []attack {
	one := []byte(`{"sensorId":"x","fields":{"v":1}}`)
	pause := pick(a.full, 10*time.Millisecond, 5*time.Millisecond)
	return []attack{
		{"no token", 4, pause, func(ctx context.Context) { a.post(ctx, "", one) }},
		{"wrong token", 2, pause, func(ctx context.Context) { a.post(ctx, unknown, one) }},
		{"wrong token in the query", 1, pause, func(ctx context.Context) {
			a.call(ctx, call{method: http.MethodPost, url: "http://" + a.http + "/write?u=x&p=" + unknown, body: strings.NewReader("m v=1")})
		}},
		{"huge head", 1, 10 * pause, func(ctx context.Context) { a.post(ctx, a.token, one, "X-Huge", strings.Repeat("h", 1<<20)) }},
		{"5,000 headers", 1, 10 * pause, func(ctx context.Context) {
			headers := make([]string, 0, 10_000)
			for i := range 5000 {
				headers = append(headers, fmt.Sprint("X-", i), "v")
			}
			a.post(ctx, a.token, one, headers...)
		}},
		{"connections", 4, pause, func(ctx context.Context) { a.raw(ctx, a.http, "idle ", nil, time.Millisecond) }},
		{"random bytes", 2, pause, func(ctx context.Context) {
			junk := make([]byte, 1+rand.IntN(4096))
			for i := range junk {
				junk[i] = byte(rand.Uint32())
			}
			a.raw(ctx, []string{a.http, a.grpc, a.admin}[rand.IntN(3)], "junk ", junk, 100*time.Millisecond)
		}},
		{"TLS to plain HTTP", 1, pause, func(ctx context.Context) {
			a.raw(ctx, []string{a.http, a.grpc, a.admin}[rand.IntN(3)], "junk ", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), 100*time.Millisecond)
		}},
		{"smuggled", 1, 5 * pause, a.smuggle},
	}
}

// smuggle hides a request in another one's body, for servers that frame it
// differently. The hidden one has no mark, so the check would find it.
func (a *attacker) smuggle(ctx context.Context) {
	hidden := "POST /v1/readings HTTP/1.1\r\nHost: brim\r\nAuthorization: Bearer " + a.token +
		"\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n" + `{"sensorId":"smuggled","fields":{"v":1}}`
	head := "POST /v1/streams/" + preyStream + "/readings HTTP/1.1\r\nHost: brim\r\nAuthorization: Bearer " + a.token + "\r\n"
	one := `{"sensorId":"x","fields":{"v":1}}`
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(one), one)
	requests := []string{
		head + fmt.Sprintf("Content-Length: %d\r\nContent-Length: %d\r\n\r\n", len(one), len(one)+len(hidden)) + one + hidden,
		head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunk + hidden,
		head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + hidden,
		head + fmt.Sprintf("transfer-encoding: chunked\r\ncontent-length: %d\r\n\r\n", len(chunk)+len(hidden)) + chunk + hidden,
		head + "Transfer-Encoding: xchunked\r\n\r\n" + chunk + hidden,
		head + "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n" + chunk + hidden,
		head + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(one)) + one + hidden,
		head + fmt.Sprintf("Content-Length: %d\r\n X: y\r\n\r\n", len(one)) + one + hidden,
		head + "Content-Length: 0x21\r\n\r\n" + one + hidden,
	}
	sent, patience := []byte(requests[rand.IntN(len(requests))]), 200*time.Millisecond
	if rand.IntN(2) == 0 {
		a.raw(ctx, a.http, "smuggled ", sent, patience)
	} else {
		a.rawTLS(ctx, "smuggled over TLS ", sent, patience)
	}
}

// An attack is repeated by an attacker.
type attack struct {
	name    string
	clients int
	every   time.Duration // pause in between
	once    func(ctx context.Context)
}

// A target is the attackers' knowledge about the daemon.
type target struct {
	HTTP, GRPC, Admin string // host:port
	MQTT              string // a broker; empty: none
	TLS               string // HTTP listener of a daemon with TLS
	Token, Swarm      string // with quotas; the swarm's is only for new sensors
	Full              bool   // full form
	First             int    // number of the first sensor
}

func newAttacker(t target) *attacker {
	a := &attacker{
		http: t.HTTP, grpc: t.GRPC, admin: t.Admin, mqtt: t.MQTT, tls: t.TLS, token: t.Token, swarm: t.Swarm, full: t.Full, next: t.First, first: t.First,
		codes: make(map[string]int), texts: make(map[string]bool),
	}
	transport := &http.Transport{DialContext: dialElsewhere, MaxIdleConnsPerHost: 64, DisableCompression: true}
	a.client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	a.h2 = &http.Client{Transport: &http.Transport{DialContext: dialElsewhere, Protocols: &protocols}, Timeout: 20 * time.Second}
	a.secure = &http.Client{Transport: &http.Transport{DialContext: dialElsewhere, ForceAttemptHTTP2: true, TLSClientConfig: trusting()}, Timeout: 20 * time.Second}
	return a
}

// close closes idle connections.
func (a *attacker) close() {
	a.client.CloseIdleConnections()
	a.h2.CloseIdleConnections()
	a.secure.CloseIdleConnections()
}

func dialElsewhere(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}, Control: portLater}
	return d.DialContext(ctx, network, address)
}

// saw records an answer.
func (a *attacker) saw(code, text string) {
	const most = 5000
	a.mu.Lock()
	defer a.mu.Unlock()
	a.codes[code]++
	if len(a.texts) < most {
		a.texts[text[:min(len(text), 2000)]] = true
	}
}

// seen is how often a code was returned for readings.
func (a *attacker) seen(code string) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return float64(a.codes[code])
}

func (a *attacker) answers() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(slices.Collect(maps.Keys(a.texts)), "\n")
}

// String lists how often each answer was given.
func (a *attacker) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, code := range slices.Sorted(maps.Keys(a.codes)) {
		out = append(out, fmt.Sprintf("%s: %d", code, a.codes[code]))
	}
	return "attackers were answered: " + strings.Join(out, ", ")
}

// number returns a new number each time.
func (a *attacker) number() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next++
	return a.next
}

// A call is an attacker's HTTP request.
type call struct {
	method, url string
	token       string
	header      http.Header
	body        io.Reader
	secure      bool   // over TLS
	mark        string // prefix of the recorded code; empty: a request for readings
}

func (a *attacker) call(ctx context.Context, c call) {
	req, err := http.NewRequestWithContext(ctx, c.method, c.url, c.body)
	if err != nil {
		return
	}
	if c.header != nil {
		req.Header = c.header
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := pick(c.secure, a.client, a.secure).Do(req)
	if err != nil {
		if ctx.Err() == nil {
			a.saw(c.mark+"cut", err.Error())
		}
		return
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	a.saw(c.mark+strconv.Itoa(resp.StatusCode), string(text))
}

// post sends readings to the attackers' stream.
func (a *attacker) post(ctx context.Context, token string, body []byte, headers ...string) {
	h := http.Header{"Content-Type": {"application/x-ndjson"}}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	a.call(ctx, call{method: http.MethodPost, url: "http://" + a.http + "/v1/streams/" + preyStream + "/readings", token: token, header: h, body: bytes.NewReader(body)})
}

// raw opens a connection, writes to it, and reads until it is closed or
// patience ends.
func (a *attacker) raw(ctx context.Context, address, mark string, data []byte, patience time.Duration) {
	conn, err := dialElsewhere(ctx, "tcp", address)
	if err != nil {
		a.saw(mark+"refused", err.Error())
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = conn.Write(data)
	answer, _ := io.ReadAll(io.LimitReader(conn, 64<<10))
	for _, code := range statuses(answer) {
		a.saw(mark+code, string(answer))
	}
}

// statuses are the HTTP/1 status codes in a connection's output.
func statuses(answer []byte) (codes []string) {
	for line := range bytes.Lines(answer) {
		if rest, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 ")); ok && len(rest) >= 3 {
			codes = append(codes, string(rest[:3]))
		}
	}
	return codes
}

// drip writes data and then single bytes until the connection is closed.
func (a *attacker) drip(ctx context.Context, address, mark string, data []byte, every time.Duration) {
	conn, err := dialElsewhere(ctx, "tcp", address)
	if err != nil {
		a.saw(mark+"refused", err.Error())
		return
	}
	defer conn.Close()
	if _, err := conn.Write(data); err != nil {
		return
	}
	for ctx.Err() == nil {
		rest(ctx, every)
		if _, err := conn.Write([]byte("a")); err != nil {
			a.saw(mark+"cut", "")
			return
		}
	}
}

// flood repeatedly writes the same data and reads nothing.
func (a *attacker) flood(ctx context.Context, address, mark string, first, again []byte) {
	conn, err := dialElsewhere(ctx, "tcp", address)
	if err != nil {
		a.saw(mark+"refused", err.Error())
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write(first); err != nil {
		return
	}
	for ctx.Err() == nil {
		if _, err := conn.Write(again); err != nil {
			if ctx.Err() == nil {
				a.saw(mark+"cut", "")
			}
			return
		}
		rest(ctx, time.Millisecond)
	}
}

// grpcAttacks use parts of HTTP/2.
func (a *attacker) grpcAttacks() []attack {
	many := pick(a.full, 30, 150)
	preface := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	pings := bytes.Repeat([]byte("\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping"), 100)
	settings := bytes.Repeat([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"), 100)
	bomb := bytes.Repeat(inGzip(make([]byte, 16<<20)), 50)
	message := append([]byte{1, byte(len(bomb) >> 24), byte(len(bomb) >> 16), byte(len(bomb) >> 8), byte(len(bomb))}, bomb...)
	pause := pick(a.full, 100*time.Millisecond, 50*time.Millisecond)
	return []attack{
		{"pings", 2, pause, func(ctx context.Context) { a.flood(ctx, a.grpc, "gRPC ping ", preface, pings) }},
		{"settings", 2, pause, func(ctx context.Context) { a.flood(ctx, a.grpc, "gRPC settings ", preface, settings) }},
		{"gRPC bomb", 2, 5 * pause, func(ctx context.Context) {
			a.grpcCall(ctx, "Write", a.token, bytes.NewReader(message), "gzip")
		}},
		{"gRPC without a token", 2, pause, func(ctx context.Context) {
			a.grpcCall(ctx, "Write", "", bytes.NewReader([]byte{0, 0, 0, 0, 0}), "")
		}},
		{"gRPC junk", 1, pause, func(ctx context.Context) {
			a.grpcCall(ctx, "Write", a.token, bytes.NewReader([]byte{0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff}), "")
		}},
		{"gRPC claims a GiB", 2, pause, func(ctx context.Context) {
			a.grpcCall(ctx, "WriteStream", a.token, bytes.NewReader([]byte{0, 0x40, 0, 0, 0, 1, 2, 3}), "")
		}},
		{"half-open streams", many, time.Second, func(ctx context.Context) {
			reader, writer := io.Pipe()
			defer writer.Close()
			go func() { _, _ = writer.Write([]byte{0, 0, 0, 0xff, 0xff, 1, 2, 3}) }()
			a.grpcCall(ctx, "WriteStream", a.token, reader, "")
		}},
		{"streams that are reset", 2, pause, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(10))*time.Millisecond)
			defer cancel()
			a.grpcCall(ctx, "WriteStream", a.token, bytes.NewReader([]byte{0, 0, 0, 0, 9}), "")
		}},
	}
}

// grpcCall calls a method like gRPC, with any body.
func (a *attacker) grpcCall(ctx context.Context, method, token string, body io.Reader, encoding string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.grpc+"/brim.v1.IngestService/"+method, body)
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	if encoding != "" {
		req.Header.Set("Grpc-Encoding", encoding)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := a.h2.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			a.saw("gRPC cut", err.Error())
		}
		return
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	code, message := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
	if code == "" {
		code, message = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	a.saw("gRPC "+code, message+string(text))
}

// Attackers are a separate process with the lowest priority. With few CPUs, they would
// otherwise starve the good clients, whatever the daemon does; real attackers have
// their own CPUs. They still send more than most networks could carry, and the daemon
// serves them with normal priority.

// attackerMode is the environment variable that makes a test binary attack.
const attackerMode = "BRIM_FAULT_ATTACKER"

// A report is what attackers saw since the last report.
type report struct {
	Codes   map[string]int
	Texts   []string
	Sensors int // distinct sensors sent since the start
}

// attackMain reads a target, then a line for each start and end of an attack; it
// writes a report at each end.
func attackMain(in io.Reader, out io.Writer) error {
	commands, reports := bufio.NewScanner(in), json.NewEncoder(out)
	if !commands.Scan() {
		return commands.Err()
	}
	var t target
	if err := json.Unmarshal(commands.Bytes(), &t); err != nil {
		return fmt.Errorf("read the target: %w", err)
	}
	a := newAttacker(t)
	defer a.close()
	attacks := a.attacks()
	for commands.Scan() {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		for _, one := range attacks {
			for range one.clients {
				running.Go(func() { one.again(ctx) })
			}
		}
		commands.Scan()
		cancel()
		running.Wait()
		a.close()
		if err := reports.Encode(a.report()); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return commands.Err()
}

// again attacks until ctx ends.
func (a *attack) again(ctx context.Context) {
	for ctx.Err() == nil {
		a.once(ctx)
		rest(ctx, a.every)
	}
}

// report returns what was seen since the last one.
func (a *attacker) report() report {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := report{Codes: a.codes, Sensors: a.next - a.first}
	for text := range a.texts {
		r.Texts = append(r.Texts, text)
	}
	a.codes, a.texts = make(map[string]int), make(map[string]bool)
	return r
}

// add adds another attacker's results.
func (a *attacker) add(r *report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for code, n := range r.Codes {
		a.codes[code] += n
	}
	for _, text := range r.Texts {
		a.texts[text] = true
	}
}

// attackers is the process.
type attackers struct {
	g       *siege
	cmd     *exec.Cmd
	in      io.WriteCloser
	reports *json.Decoder
}

// startAttackers starts the process; it is idle at first.
func (g *siege) startAttackers(t target) *attackers {
	path, err := os.Executable()
	require.NoError(g.t, err)
	cmd := brimtest.Idle(path)
	cmd.Env = append(brimtest.Env(), attackerMode+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(g.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(g.t, err)
	require.NoError(g.t, cmd.Start())
	p := &attackers{g: g, cmd: cmd, in: in, reports: json.NewDecoder(out)}
	g.t.Cleanup(func() {
		_ = in.Close() // ends it
		_ = cmd.Wait() // see its reports
	})
	require.NoError(g.t, json.NewEncoder(in).Encode(t))
	return p
}

// attack lets them attack during meanwhile, and returns how many sensors they
// have sent so far.
func (p *attackers) attack(meanwhile func()) (sensors int) {
	t := p.g.t
	_, err := io.WriteString(p.in, "begin\n")
	require.NoError(t, err)
	meanwhile()
	_, err = io.WriteString(p.in, "end\n")
	require.NoError(t, err)
	var r report
	require.NoError(t, p.reports.Decode(&r))
	p.g.attacker.add(&r)
	return r.Sensors
}

// A siegePlan alternates between quiet periods and sieges, since a machine's
// load changes from minute to minute.
type siegePlan struct {
	rounds       int
	quiet, siege time.Duration // per round
}

// siegeTime names the environment variable with the total length of sieges in the
// full form; ten minutes by default.
const siegeTime = "BRIM_FAULT_SIEGE"

func (g *siege) plan() siegePlan {
	if !full() {
		return siegePlan{rounds: 2, quiet: time.Second, siege: 2500 * time.Millisecond}
	}
	all := 10 * time.Minute
	if text := os.Getenv(siegeTime); text != "" {
		var err error
		all, err = time.ParseDuration(text)
		require.NoError(g.t, err)
	}
	const rounds = 5
	return siegePlan{rounds: rounds, quiet: max(all/10, 10*time.Second) / rounds * 2, siege: all / rounds}
}

// trusting is a TLS configuration that accepts any certificate.
func trusting() *tls.Config { return &tls.Config{InsecureSkipVerify: true} } //nolint:gosec // an attacker

// tlsAttacks target a TLS listener.
func (a *attacker) tlsAttacks() []attack {
	many := pick(a.full, 20, 100)
	pause := pick(a.full, 20*time.Millisecond, 10*time.Millisecond)
	hello := []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
	one := []byte(`{"sensorId":"x","fields":{"v":1}}`)
	post := func(ctx context.Context, token string) {
		a.call(ctx, call{
			method: http.MethodPost, url: "https://" + a.tls + "/v1/readings", token: token, secure: true, mark: "TLS ",
			header: http.Header{"Content-Type": {"application/json"}}, body: bytes.NewReader(one),
		})
	}
	return []attack{
		{"hellos", 4, pause, func(ctx context.Context) { a.rawTLS(ctx, "TLS ", nil, time.Millisecond) }},
		{"half a hello", many, time.Second, func(ctx context.Context) { a.drip(ctx, a.tls, "TLS slow ", hello, 300*time.Millisecond) }},
		{"hello of junk", 2, pause, func(ctx context.Context) {
			junk := make([]byte, 5+rand.IntN(4096))
			for i := range junk {
				junk[i] = byte(rand.Uint32())
			}
			copy(junk, hello[:3])
			a.raw(ctx, a.tls, "TLS junk ", junk, 100*time.Millisecond)
		}},
		{"plain HTTP to TLS", 1, pause, func(ctx context.Context) {
			a.raw(ctx, a.tls, "TLS none ", []byte("GET / HTTP/1.1\r\nHost: brim\r\n\r\n"), 100*time.Millisecond)
		}},
		{"no token over TLS", 2, pause, func(ctx context.Context) { post(ctx, "") }},
		{"wrong token over TLS", 1, pause, func(ctx context.Context) { post(ctx, unknown) }},
		{"requests that are reset", 2, pause, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(5000))*time.Microsecond)
			defer cancel()
			post(ctx, a.token)
		}},
	}
}

// rawTLS is raw over TLS, for HTTP/1.
func (a *attacker) rawTLS(ctx context.Context, mark string, data []byte, patience time.Duration) {
	plain, err := dialElsewhere(ctx, "tcp", a.tls)
	if err != nil {
		a.saw(mark+"refused", err.Error())
		return
	}
	conn := tls.Client(plain, trusting())
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = plain.Close() })()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if err := conn.HandshakeContext(ctx); err != nil {
		if ctx.Err() == nil {
			a.saw(mark+"cut", err.Error())
		}
		return
	}
	a.saw(mark+"shaken hands", "")
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = conn.Write(data)
	answer, _ := io.ReadAll(io.LimitReader(conn, 64<<10))
	for _, code := range statuses(answer) {
		a.saw(mark+code, string(answer))
	}
}
