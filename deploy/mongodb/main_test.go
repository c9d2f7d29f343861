package mongodb_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	roles "github.com/brim-telemetry/brim/deploy/mongodb"
	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

var binary brimtest.Binary

func TestMain(m *testing.M) {
	code := mongodtest.Run(m)
	binary.Remove()
	os.Exit(code)
}

// A site is a MongoDB with authentication, whose log shows what it refused. Its
// tests run one at a time, since the log does not name users.
type site struct {
	t      *testing.T
	server *mongod.Server
	owner  *mongo.Database // admin, with all privileges
	log    string
	users  *int
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	server := mongodtest.Start(t, mongod.Config{DataDir: dir, Auth: true, Database: "unused"})
	uri, err := os.ReadFile(server.URIFile())
	require.NoError(t, err)
	client, err := mongo.Connect(options.Client().ApplyURI(strings.TrimSpace(string(uri))))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return &site{t: t, server: server, owner: client.Database("admin"), log: filepath.Join(dir, "mongod", "mongod.log"), users: new(int)}
}

// in returns the site for the next test.
func (s *site) in(t *testing.T) *site {
	out := *s
	out.t = t
	return &out
}

func (s *site) run(command bson.D) {
	s.t.Helper()
	require.NoError(s.t, s.owner.RunCommand(s.t.Context(), command).Err())
}

// A tenant has its own database and one role.
type tenant struct {
	*site
	name string // of the database, the role and the user
	uri  string
	from int64 // size of the server's log at the start
}

// tenant creates the role and a user with it.
func (s *site) tenant(of roles.Role) *tenant {
	s.t.Helper()
	*s.users++
	n := &tenant{site: s, name: fmt.Sprintf("tenant%d", *s.users)}
	n.set("createRole", of)
	s.run(bson.D{{Key: "createUser", Value: n.name}, {Key: "pwd", Value: "p"}, {Key: "roles", Value: bson.A{n.name}}, {Key: "mechanisms", Value: bson.A{"SCRAM-SHA-256"}}})
	u, err := url.Parse(s.server.URI())
	require.NoError(s.t, err)
	u.User = url.UserPassword(n.name, "p")
	n.uri = u.String()
	n.from = sizeOf(s.t, s.log)
	return n
}

// grant changes the privileges of the tenant's role.
func (n *tenant) grant(r roles.Role) {
	n.t.Helper()
	n.set("updateRole", r)
	n.from = sizeOf(n.t, n.log)
}

func (n *tenant) set(verb string, r roles.Role) {
	n.t.Helper()
	r.Name = n.name
	for _, p := range r.Privileges {
		if p.Resource["db"] == template {
			p.Resource["db"] = n.name
		}
	}
	n.run(r.Command(verb))
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

// template is the database name that roles are read with; it is replaced later.
const template = "template"

// role reads a role from roles.js.
func role(t *testing.T, name string) roles.Role {
	t.Helper()
	r, err := roles.Named(name, template, roles.Stream{Name: "readings"}, roles.Stream{Name: "series", TimeSeries: true})
	require.NoError(t, err)
	return r
}

// refused returns what the server has refused since the tenant was created, as logged.
func (n *tenant) refused() (all []string) {
	n.t.Helper()
	text, err := os.ReadFile(n.log)
	require.NoError(n.t, err)
	for line := range bytes.Lines(text[n.from:]) {
		var entry struct {
			ID   int
			Attr struct{ Error struct{ Errmsg string } }
		}
		if json.Unmarshal(line, &entry) == nil && entry.ID == authorizationFailed {
			all = append(all, entry.Attr.Error.Errmsg)
		}
	}
	return all
}

// authorizationFailed is the id of the log message.
const authorizationFailed = 20436

// brim runs a command to its end, and returns its exit code and output.
func (n *tenant) brim(args ...string) (code int, output string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*brimtest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary.Path(n.t), args...)
	cmd.Env = append(brimtest.Env("BRIM_MONGOD_BIN"), "BRIM_MONGO_URI="+n.uri, "BRIM_DATABASE="+n.name)
	out, err := cmd.CombinedOutput()
	require.NoError(n.t, ctx.Err(), string(out))
	if err != nil && cmd.ProcessState == nil {
		require.NoError(n.t, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// A daemon is a tenant's `brim serve`.
type daemon struct {
	*brimtest.Process
	tenant      *tenant
	http, admin string
}

// serve starts a daemon with a configuration, and returns once it listens.
func (n *tenant) serve(dir, config string) *daemon {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), "brim.yaml")
	require.NoError(n.t, os.WriteFile(path, []byte(config), 0o600))
	cmd := exec.Command(binary.Path(n.t), "serve", "--config", path, "--data-dir", dir, "--log-format", "json", "--log-level", "debug",
		"--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0",
		"--server-status-interval", "1s", "--stop-timeout", "5s", "--flush-interval", "10ms")
	cmd.Env = append(brimtest.Env("BRIM_MONGOD_BIN"), "BRIM_MONGO_URI="+n.uri, "BRIM_DATABASE="+n.name)
	d := &daemon{Process: brimtest.Start(n.t, cmd, syscall.SIGTERM), tenant: n}
	listening := d.AwaitLog("listening")
	d.http, d.admin = "http://"+listening["http"].(string), "http://"+listening["admin"].(string)
	return d
}

// until waits for a condition, or until the server refuses something.
func (d *daemon) until(what string, condition func() bool) error {
	d.Holds(func() bool { return condition() || len(d.tenant.refused()) > 0 })
	if refused := d.tenant.refused(); len(refused) > 0 {
		return fmt.Errorf("%s: refused: %s", what, refused[0])
	}
	if !condition() {
		return fmt.Errorf("%s: it never came: %s", what, d.Logged())
	}
	return nil
}

// ask sends a request and requires a status from 200 to 299.
func (d *daemon) ask(method, url, body string) (answer string, err error) {
	code, answer, err := brimtest.AskFor(10*time.Second, method, url, body)
	if err == nil && code/100 != 2 {
		err = fmt.Errorf("%d %s", code, answer)
	}
	if err != nil {
		return answer, fmt.Errorf("%s %s: %w", method, url, err)
	}
	return answer, nil
}
