package mongod_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// asking is a configuration of a mongod that asks for passwords.
func asking(dir string) mongod.Config {
	return mongod.Config{DataDir: dir, Auth: true, Database: "test"}
}

// ownerURI is what people find in the file.
func ownerURI(t *testing.T, server *mongod.Server) string {
	t.Helper()
	text, err := os.ReadFile(server.URIFile())
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// codeOf a server's error; 0 for none.
func codeOf(t *testing.T, err error) int32 {
	t.Helper()
	if err == nil {
		return 0
	}
	var e mongo.CommandError
	require.ErrorAs(t, err, &e)
	return e.Code
}

const (
	unauthorized         = 13
	authenticationFailed = 18
)

func insert(t *testing.T, client *mongo.Client, database string) error {
	t.Helper()
	_, err := client.Database(database).Collection("c").InsertOne(t.Context(), bson.D{})
	return err
}

// withUser is the URI with another user.
func withUser(t *testing.T, uri string, user *url.Userinfo) string {
	t.Helper()
	u, err := url.Parse(uri)
	require.NoError(t, err)
	u.User = user
	return u.String()
}

func TestAMongodThatAsksLetsNobodyInWithoutAPassword(t *testing.T) {
	t.Parallel()
	var log logged
	config := asking(t.TempDir())
	config.Logger = log.logger()
	server := startServer(t, config)
	require.True(t, server.RequiresAuth())

	put(t, connect(t, server.URI()), "the daemon's own")
	daemon, owner := connect(t, server.URI()), connect(t, ownerURI(t, server))
	assert.EqualValues(t, unauthorized, codeOf(t, insert(t, daemon, "other")), "the daemon's user keeps to its database")
	assert.EqualValues(t, unauthorized, codeOf(t, daemon.Database("admin").RunCommand(t.Context(), bson.D{{Key: "shutdown", Value: 1}}).Err()))
	assert.EqualValues(t, unauthorized, codeOf(t, daemon.Database("admin").RunCommand(t.Context(), bson.D{{Key: "usersInfo", Value: 1}}).Err()))
	require.NoError(t, insert(t, owner, "other"), "the owner's may do anything")

	nobody := connect(t, strings.ReplaceAll(withUser(t, server.URI(), nil), "&authSource=admin", ""))
	assert.EqualValues(t, unauthorized, codeOf(t, insert(t, nobody, "test")))
	first := bson.D{{Key: "createUser", Value: "me"}, {Key: "pwd", Value: "me"}, {Key: "roles", Value: bson.A{"root"}}}
	assert.EqualValues(t, unauthorized, codeOf(t, nobody.Database("admin").RunCommand(t.Context(), first).Err()))
	stranger := connect(t, withUser(t, server.URI(), url.UserPassword("owner", "guessed")))
	assert.EqualValues(t, authenticationFailed, codeOf(t, insert(t, stranger, "test")))

	for _, uri := range []string{server.URI(), ownerURI(t, server)} {
		u, err := url.Parse(uri)
		require.NoError(t, err)
		secret, _ := u.User.Password()
		require.Len(t, secret, 43, "256 bits")
		assert.NotContains(t, log.String(), secret)
		own, err := os.ReadFile(filepath.Join(config.DataDir, "mongod", "mongod.log"))
		require.NoError(t, err)
		assert.NotContains(t, string(own), secret)
		for _, arguments := range []int{server.Pid(), os.Getpid()} {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", arguments))
			require.NoError(t, err)
			assert.NotContains(t, string(line), secret)
		}
	}
}

func TestSecretsAreTheUsersAlone(t *testing.T) {
	t.Parallel()
	server := startServer(t, asking(t.TempDir()))
	dir := filepath.Dir(server.URIFile())
	require.True(t, filepath.IsAbs(dir))
	for name, want := range map[string]os.FileMode{".": 0o700, "uri": 0o600, "keyfile": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode().Perm(), name)
	}
	fresh, err := filepath.Glob(filepath.Join(dir, "*.new"))
	require.NoError(t, err)
	assert.Empty(t, fresh)
}

func TestDataFromBeforeAuthenticationAreTakenOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := startServer(t, mongod.Config{DataDir: dir})
	put(t, connect(t, before.URI()), "old")
	require.False(t, before.RequiresAuth())
	require.Equal(t, before.URI(), ownerURI(t, before), "the way in is in the file here, too")
	closeServer(t, before)

	now := startServer(t, asking(dir))
	client := connect(t, now.URI())
	requireKept(t, client, "old")
	put(t, client, "new")
	password := ownerURI(t, now)
	require.Contains(t, password, "owner:")
	closeServer(t, now)

	again := startServer(t, mongod.Config{DataDir: dir}) // and back
	requireKept(t, connect(t, again.URI()), "old", "new")
	require.NotContains(t, ownerURI(t, again), "owner:")
}

func TestThePasswordStaysOverRestartsAndPorts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startServer(t, asking(dir))
	put(t, connect(t, first.URI()), "a")
	way, daemons := ownerURI(t, first), first.URI()
	require.NoError(t, first.Kill())
	eventually(t, func() bool { return first.Restarts() == 1 && first.Running() }, "the restart")
	requireKept(t, connect(t, daemons), "a")
	closeServer(t, first)

	second := startServer(t, asking(dir))
	require.Equal(t, way, ownerURI(t, second))
	require.NotEqual(t, daemons, second.URI(), "the daemon's own password is of one run")
	u, err := url.Parse(way)
	require.NoError(t, err)
	require.Equal(t, "/"+asking(dir).Database, u.Path, "a shell opens the daemon's database with it")
	requireKept(t, connect(t, way), "a")
	closeServer(t, second)

	config := asking(dir)
	config.Port = mongodtest.FreePort(t)
	third := startServer(t, config)
	moved := ownerURI(t, third)
	require.NotEqual(t, way, moved)
	was, err := url.Parse(way)
	require.NoError(t, err)
	is, err := url.Parse(moved)
	require.NoError(t, err)
	require.Equal(t, was.User, is.User)
	requireKept(t, connect(t, moved), "a")
	requireKept(t, connect(t, third.URI()), "a")
}

// TestAStartMendsWhatItFinds leaves the files and the users as a start that was
// cut off, a person, or a backup may.
func TestAStartMendsWhatItFinds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := startServer(t, asking(dir))
	put(t, connect(t, server.URI()), "a")
	closeServer(t, server)
	uri, key := filepath.Join(dir, "mongod", "uri"), filepath.Join(dir, "mongod", "keyfile")
	last := ownerURI(t, server)
	for name, damage := range map[string]func(){
		"the URI is gone":            func() { require.NoError(t, os.Remove(uri)) },
		"the URI is cut off":         func() { require.NoError(t, os.WriteFile(uri, []byte(last[:30]), 0o600)) },
		"the URI is open to others":  func() { require.NoError(t, os.Chmod(uri, 0o644)) },
		"the key is gone":            func() { require.NoError(t, os.Remove(key)) },
		"the key is empty":           func() { require.NoError(t, os.WriteFile(key, nil, 0o600)) },
		"the key is open to others":  func() { require.NoError(t, os.Chmod(key, 0o644)) },
		"both are gone":              func() { require.NoError(t, os.Remove(uri)); require.NoError(t, os.Remove(key)) },
		"a file that was not moved":  func() { require.NoError(t, os.WriteFile(uri+".new", []byte("mongodb://"), 0o644)) },
		"the folder is open":         func() { require.NoError(t, os.Chmod(filepath.Dir(uri), 0o755)) },
		"the users are gone":         func() { withoutAuth(t, dir, dropUsers) },
		"the passwords are others":   func() { withoutAuth(t, dir, changePasswords) },
		"the roles may do too much":  func() { withoutAuth(t, dir, widenRole) },
		"the users have no role now": func() { withoutAuth(t, dir, dropRoles) },
	} {
		damage()
		server := startServer(t, asking(dir))
		daemon := connect(t, server.URI())
		requireKept(t, daemon, "a")
		assert.EqualValues(t, unauthorized, codeOf(t, insert(t, daemon, "other")), name)
		require.NoError(t, insert(t, connect(t, ownerURI(t, server)), "other"), name)
		info, err := os.Stat(uri)
		require.NoError(t, err, name)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
		info, err = os.Stat(filepath.Dir(uri))
		require.NoError(t, err, name)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm(), name)
		if strings.Contains(name, "URI") || strings.Contains(name, "both") {
			assert.NotEqual(t, last, ownerURI(t, server), "%s: who knows who has read it", name)
		}
		last = ownerURI(t, server)
		closeServer(t, server)
	}
}

// withoutAuth changes what a mongod on the data has.
func withoutAuth(t *testing.T, dir string, change func(*testing.T, *mongo.Database)) {
	t.Helper()
	uri := filepath.Join(dir, "mongod", "uri")
	kept, err := os.ReadFile(uri)
	require.NoError(t, err)
	server := startServer(t, mongod.Config{DataDir: dir})
	change(t, connect(t, server.URI()).Database("admin"))
	closeServer(t, server)
	require.NoError(t, os.WriteFile(uri, kept, 0o600))
}

func run(t *testing.T, db *mongo.Database, commands ...bson.D) {
	t.Helper()
	for _, command := range commands {
		require.NoError(t, db.RunCommand(t.Context(), command).Err())
	}
}

func dropUsers(t *testing.T, db *mongo.Database) {
	run(t, db, bson.D{{Key: "dropAllUsersFromDatabase", Value: 1}})
}

func dropRoles(t *testing.T, db *mongo.Database) {
	run(t, db, bson.D{{Key: "dropAllRolesFromDatabase", Value: 1}})
}

func changePasswords(t *testing.T, db *mongo.Database) {
	run(t, db, bson.D{{Key: "updateUser", Value: "brim"}, {Key: "pwd", Value: "x"}}, bson.D{{Key: "updateUser", Value: "owner"}, {Key: "pwd", Value: "x"}})
}

func widenRole(t *testing.T, db *mongo.Database) {
	run(t, db, bson.D{{Key: "updateRole", Value: "brimServe"}, {Key: "roles", Value: bson.A{"root"}}})
}

func TestAStandaloneAsksToo(t *testing.T) {
	t.Parallel()
	config := asking(t.TempDir())
	config.Standalone = true
	server := startServer(t, config)
	put(t, connect(t, server.URI()), "a")
	require.NoError(t, insert(t, connect(t, ownerURI(t, server)), "other"))
	require.Error(t, insert(t, connect(t, withUser(t, server.URI(), nil)), "test"))
}

// TestAStartThatIsKilledAnywhereIsMended kills the daemon at random moments of
// its first start.
func TestAStartThatIsKilledAnywhereIsMended(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary(t) // so that no start installs it
	for range 5 {
		self, err := os.Executable()
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(1500*time.Millisecond))))
		cmd := exec.CommandContext(ctx, self) // killed when the time is over
		cmd.Env = append(os.Environ(), holderEnv+"="+dir, holderAsksEnv+"=1")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		for lines := bufio.NewScanner(out); lines.Scan(); {
			require.NotContains(t, lines.Text(), "error:")
		}
		require.Error(t, cmd.Wait())
		cancel()
	}
	server := startServer(t, asking(dir))
	put(t, connect(t, server.URI()), "a")
	requireKept(t, connect(t, ownerURI(t, server)), "a")
}
