package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
	"github.com/brim-telemetry/brim/internal/brimtest"
)

// A grove plants secrets and looks for them in brim's output.
type grove struct {
	t        *testing.T
	canaries map[string]string // descriptions of the secrets
}

func newGrove(t *testing.T) *grove { return &grove{t: t, canaries: make(map[string]string)} }

// plant returns a secret that occurs nowhere else.
func (g *grove) plant(what string) string {
	secret := "canary" + rand.Text()
	g.canaries[secret] = what
	return secret
}

// clean asserts that none of the secrets is in an output.
func (g *grove) clean(where, output string) {
	g.t.Helper()
	for secret, what := range g.canaries {
		assert.NotContains(g.t, output, secret, "%s is in %s", what, where)
	}
}

// A strict daemon is a real process with TLS, an access file and a password-protected MongoDB;
// all its secrets are canaries.
type strict struct {
	*grove
	b      *brimProcess
	client *http.Client
	token  string
}

// startStrict starts a daemon that finds its URI by these flags and variables. The flags, too,
// may only show up in the system's process list.
func startStrict(g *grove, args, env []string) *strict {
	t := g.t
	t.Helper()
	s := &strict{grove: g}
	dir, authority := t.TempDir(), accesstest.NewAuthority(t, "test")
	cert, key := authority.Server("brim", time.Now().Add(time.Hour)).Write(t, dir)
	pem, err := os.ReadFile(key)
	require.NoError(t, err)
	for line := range strings.SplitSeq(strings.TrimSpace(string(pem)), "\n") {
		if !strings.HasPrefix(line, "-----") && len(line) > 16 {
			g.canaries[line] = "the TLS key"
		}
	}
	s.token, err = access.NewToken()
	require.NoError(t, err)
	g.canaries[strings.TrimPrefix(s.token, "brim_")] = "a token"
	hash := access.HashOf(s.token)
	g.canaries[strings.TrimPrefix(hash, "sha256:")] = "the hash of a token"
	file := accesstest.File(t, dir, "access.yaml", fmt.Appendf(nil, "identities:\n  - {name: operator, hash: %q, scopes: [admin, ingest, read]}\n", hash))

	cmd := exec.Command(brimBinary(t), append([]string{
		"serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug",
		"--tls-cert", cert, "--tls-key", key, "--access-file", file, "--data-dir", t.TempDir(), "--server-status-interval", "1s", "--query-timeout", "1s",
	}, args...)...)
	cmd.Env = append(foreignEnv(), env...)
	s.b = &brimProcess{t: t, Process: brimtest.Start(t, cmd, syscall.SIGTERM)}
	listening := s.b.AwaitLog("listening")
	s.b.HTTP, s.b.GRPC, s.b.Admin = listening["http"].(string), listening["grpc"].(string), listening["admin"].(string)
	s.client = &http.Client{
		Timeout:   patience,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authority.Pool()}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// ask returns the whole answer, headers included.
func (s *strict) ask(method, url, authorization, body string) (code int, answer string) {
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if !assert.NoError(s.t, err) {
		return 0, ""
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := s.client.Do(req)
	if !assert.NoError(s.t, err) {
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NoError(s.t, err)
	return resp.StatusCode, fmt.Sprint(resp.Header) + string(text)
}

// searchAdmin reads everything the admin listener shows.
func (s *strict) searchAdmin() {
	s.t.Helper()
	admin, bearer := "https://"+s.b.Admin, "Bearer "+s.token
	for _, path := range []string{
		"/", "/metrics", "/status", "/readyz", "/healthz", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap", "/debug/pprof/allocs?debug=1",
		"/debug/pprof/goroutine?debug=2", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap?debug=1", "/debug/pprof/threadcreate?debug=1",
	} {
		code, answer := s.ask(http.MethodGet, admin+path, bearer, "")
		if path != "/readyz" {
			assert.Equal(s.t, http.StatusOK, code, path)
		}
		s.clean(path, answer)
	}
}

// searchAnswers makes requests of every kind, concurrently because refusals are delayed.
func (s *strict) searchAnswers() {
	s.t.Helper()
	admin, data, bearer := "https://"+s.b.Admin, "https://"+s.b.HTTP, "Bearer "+s.token
	var clients sync.WaitGroup
	defer clients.Wait()
	const reading = `{"sensorId":"s","fields":{"t":1}}`
	for _, shown := range []string{
		"", bearer + "x", "Token " + s.token + "x", "Basic " + s.token, "Bearer", s.token, "Digest " + s.token, "Bearer " + s.token + " " + s.token,
	} {
		clients.Go(func() {
			code, answer := s.ask(http.MethodPost, data+"/v1/readings", shown, reading)
			assert.Equal(s.t, http.StatusUnauthorized, code, answer)
			s.clean("a refusal", answer)
			_, answer = s.ask(http.MethodGet, admin+"/status", shown, "")
			s.clean("a refusal of the admin listener", answer)
		})
	}
	for _, path := range []string{"/v1/readings", "/v1/streams/none/readings", "/write", "/nothing", "/v1/sensors/s/readings", "/write?u=me&p=" + s.token + "x"} {
		for _, body := range []string{reading, "{", "\x00", `{"sensorId":"` + strings.Repeat("x", 2000) + `","fields":{"t":1}}`} {
			clients.Go(func() {
				_, answer := s.ask(http.MethodPost, data+path, bearer, body)
				s.clean("the answer to "+path, answer)
			})
		}
	}
}

// end searches all output of the daemon, including what the Go runtime prints of a process that
// it ends.
func (s *strict) end() {
	s.t.Helper()
	s.b.signal(syscall.SIGQUIT)
	assert.Equal(s.t, 2, s.b.wait())
	assert.Contains(s.t, s.b.Logged(), "goroutine ")
	s.clean("the log", s.b.Logged())
}

// withSecret is a MongoDB URI of a user with a canary as password.
func withSecret(g *grove, m *guarded) (uri string) {
	password := g.plant("the password of MongoDB")
	m.admin(bson.D{{Key: "updateUser", Value: "sensors"}, {Key: "pwd", Value: password}})
	return m.uri(password)
}

func TestNoSecretIsInAnyOutputOfADaemon(t *testing.T) {
	t.Parallel()
	m := newGuarded(t)
	for way, given := range map[string]func(g *grove, uri string) (args, env []string){
		"flag":        func(_ *grove, uri string) (args, env []string) { return []string{"--mongo-uri", uri}, nil },
		"environment": func(_ *grove, uri string) (args, env []string) { return nil, []string{"BRIM_MONGO_URI=" + uri} },
		"file": func(g *grove, uri string) (args, env []string) {
			return []string{"--mongo-uri-file", writeURI(g.t, uri)}, nil
		},
	} {
		g := newGrove(t)
		args, env := given(g, withSecret(g, m))
		s := startStrict(g, args, env)
		s.b.awaitLog("ready")
		code, answer := s.ask(http.MethodPost, "https://"+s.b.HTTP+"/v1/readings?ack=stored", "Bearer "+s.token, `{"sensorId":"s","fields":{"t":1}}`)
		require.Equal(t, http.StatusOK, code, "%s: %s", way, answer)
		s.searchAdmin()
		if way == "flag" { // answers do not depend on how the URI was given
			s.searchAnswers()
		}
		s.end()
	}
}

func TestNoSecretIsInAnyOutputWhileMongoDBRefuses(t *testing.T) {
	t.Parallel()
	m := newGuarded(t)
	g := newGrove(t)
	s := startStrict(g, nil, []string{"BRIM_MONGO_URI=" + m.uri(g.plant("a wrong password"))})
	s.b.awaitLog(refusedLine + "; check the user, the password and authSource of the MongoDB URI; accepted readings wait meanwhile")
	s.searchAdmin()
	s.searchAnswers()
	s.end()

	// And of a missing one.
	g = newGrove(t)
	s = startStrict(g, nil, []string{"BRIM_MONGO_URI=mongodb://u:" + g.plant("the password of a stray user") + "@127.0.0.1:1/?tlsCertificateKeyFilePassword=" + g.plant("a key's password")})
	s.b.awaitLog("stream waits for MongoDB")
	s.searchAdmin()
	s.searchAnswers()
	s.end()
}

func TestNoSecretIsInAnyOutputOfAnEmbeddedMongoDB(t *testing.T) {
	t.Parallel()
	g := newGrove(t)
	dir := t.TempDir()
	s := startStrict(g, []string{"--data-dir", dir}, nil)
	s.b.awaitLog("ready")
	for name, what := range map[string]string{"uri": "the owner's password", "keyfile": "the key"} {
		text, err := os.ReadFile(filepath.Join(dir, "mongod", name))
		require.NoError(t, err)
		secret := strings.TrimSpace(string(text))
		if _, rest, ok := strings.Cut(secret, "owner:"); ok {
			secret, _, _ = strings.Cut(rest, "@")
		}
		g.canaries[secret] = what
	}
	s.searchAdmin()
	s.searchAnswers()
	require.Zero(t, s.b.stop())
	s.clean("the log", s.b.Logged())
	own, err := os.ReadFile(filepath.Join(dir, "mongod", "mongod.log"))
	require.NoError(t, err)
	s.clean("mongod's log", string(own))
}

// outputs checks what brim prints in each of several runs, some concurrent: most wait, for
// example for an unresponsive MongoDB.
func (g *grove) outputs(runs ...brimRun) {
	g.t.Helper()
	brim := brimBinary(g.t)
	ctx, cancel := context.WithTimeout(g.t.Context(), 3*patience)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(4)
	for _, r := range runs {
		group.Go(func() error {
			cmd := exec.CommandContext(ctx, brim, r.args...)
			cmd.Env = append(foreignEnv(), r.env...)
			output, _ := cmd.CombinedOutput() // many fail on purpose
			g.clean(strings.Join(r.args, " "), string(output))
			return ctx.Err()
		})
	}
	require.NoError(g.t, group.Wait())
}

type brimRun struct{ env, args []string }

func TestNoSecretIsInAnyOutputOfACommand(t *testing.T) {
	t.Parallel()
	m, g := newGuarded(t), newGrove(t)
	uri := withSecret(g, m)
	wrong := m.uri(g.plant("a wrong password"))
	prometheus := "http://u:" + g.plant("the password of Prometheus") + "@127.0.0.1:1"
	token := g.plant("a token")
	const alone = "--admin=127.0.0.1:1"
	var runs []brimRun
	for _, command := range [][]string{
		{"config", "print"}, {"config", "print", "--output", "json"}, {"doctor", alone, "--over", "0"}, {"doctor", alone, "--over", "0", "--output", "json"}, {"compact", alone, "--dry-run"},
		{"journal", "replay", "--data-dir", t.TempDir()}, {"deadletter", "replay", "--data-dir", t.TempDir()},
	} {
		for _, u := range []string{uri, wrong} {
			file := writeURI(t, u)
			three := []brimRun{{[]string{"BRIM_MONGO_URI=" + u}, command}, {nil, slices.Concat(command, []string{"--mongo-uri-file", file})}, {nil, slices.Concat(command, []string{"--mongo-uri", u})}}
			if u == uri && command[1] == alone {
				for _, one := range three { // they work on the same collection
					g.outputs(one)
				}
				continue
			}
			runs = append(runs, three...)
		}
	}
	g.outputs(append(runs,
		brimRun{nil, []string{"doctor", "--prometheus", prometheus}}, // was removed
		brimRun{[]string{"BRIM_TOKEN=" + token}, []string{"query", "s-1", "--url", "http://127.0.0.1:1"}},
		brimRun{[]string{"BRIM_TOKEN=" + token}, []string{"query", "s-1", "--url", "http://db.invalid:1"}}, // in the clear
		brimRun{nil, []string{"load", "--token-file", writeURI(t, token), "--target", "http://127.0.0.1:1", "--duration", "1s"}})...)
}

func TestURIErrorsContainNoSecrets(t *testing.T) {
	t.Parallel()
	g := newGrove(t)
	c := g.plant("a password")
	var runs []brimRun
	for _, uri := range []string{
		"mongodb://u:" + c, "mongodb://u:" + c + "/", "mongodb://u:" + c + "/x@127.0.0.1:1", "mongodb://u:" + c + "@127.0.0.1:1@i", "mongodb://u:%zz" + c + "@127.0.0.1:1", "u:" + c + "@127.0.0.1:1", c,
		"mongo://u:" + c + "@127.0.0.1:1", "mongodb://u:" + c + "@127.0.0.1:1:port", "mongodb://u:" + c + "@/", "mongodb://u:" + c + "@[::1/", "mongodb+srv://u:" + c + "@127.0.0.1:1:1/",
		"mongodb://u:" + c + "@127.0.0.1:1/?w=x&journal=perhaps", "mongodb://u:" + c + "@127.0.0.1:1/?authMechanism=none", "mongodb://u:" + c + "@127.0.0.1:1\x7f/", "mongodb://127.0.0.1:1/?tlsCertificateKeyFilePassword=" + c + "&x",
	} {
		doctor, serve := []string{"doctor", "--admin=127.0.0.1:1"}, []string{"serve", "--http-addr", "nonsense"}
		runs = append(runs,
			brimRun{[]string{"BRIM_MONGO_URI=" + uri}, doctor}, brimRun{[]string{"BRIM_MONGO_URI=" + uri}, serve}, brimRun{nil, append(serve, "--mongo-uri", uri)},
			brimRun{nil, []string{"config", "check", writeConfig(t, fmt.Sprintf("mongo-uri: %q\n", uri))}})
		if checkOwnURI(uri) != nil { // others would be measured
			runs = append(runs, brimRun{nil, []string{"bench", "fill", "--mongo-uri", uri}})
		}
	}
	g.outputs(runs...)
}
