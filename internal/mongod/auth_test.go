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

func TestAMongodWithAuthenticationRefusesUnknownUsers(t *testing.T) {
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

	anonymous := connect(t, strings.ReplaceAll(withUser(t, server.URI(), nil), "&authSource=admin", ""))
	assert.EqualValues(t, unauthorized, codeOf(t, insert(t, anonymous, "test")))
	first := bson.D{{Key: "createUser", Value: "me"}, {Key: "pwd", Value: "me"}, {Key: "roles", Value: bson.A{"root"}}}
	assert.EqualValues(t, unauthorized, codeOf(t, anonymous.Database("admin").RunCommand(t.Context(), first).Err()))
	guesser := connect(t, withUser(t, server.URI(), url.UserPassword("owner", "guessed")))
	assert.EqualValues(t, authenticationFailed, codeOf(t, insert(t, guesser, "test")))

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

	// No other user can read the secrets.
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

// TestAuthenticationOverExistingData, and back: the data stays, and users that were
// created without authentication are named.
func TestAuthenticationOverExistingData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := startServer(t, mongod.Config{DataDir: dir})
	client := connect(t, before.URI())
	put(t, client, "old")
	require.False(t, before.RequiresAuth())
	require.Equal(t, before.URI(), ownerURI(t, before), "the file has the URI without authentication too")
	for database, role := range map[string]string{"admin": "root", "elsewhere": "readWrite"} {
		run(t, client.Database(database), bson.D{{Key: "createUser", Value: "evil"}, {Key: "pwd", Value: "planted"}, {Key: "roles", Value: bson.A{role}}})
	}
	closeServer(t, before)
	assert.Empty(t, before.OtherUsers())

	var log logged
	config := asking(dir)
	config.Logger = log.logger()
	now := startServer(t, config)
	client = connect(t, now.URI())
	requireKept(t, client, "old")
	put(t, client, "new")
	require.Contains(t, ownerURI(t, now), "owner:")
	assert.Equal(t, []string{"evil@admin (root@admin)", "evil@elsewhere (readWrite@elsewhere)"}, now.OtherUsers())
	assert.Contains(t, log.String(), "WARN")
	assert.Contains(t, log.String(), "evil@admin (root@admin)")
	assert.Contains(t, log.String(), `dropUser(`)
	require.NoError(t, insert(t, connect(t, withUser(t, now.URI(), url.UserPassword("evil", "planted"))), "anywhere"), "which is why they are named")
	owner := connect(t, ownerURI(t, now))
	run(t, owner.Database("admin"), bson.D{{Key: "dropUser", Value: "evil"}})
	run(t, owner.Database("elsewhere"), bson.D{{Key: "dropUser", Value: "evil"}})
	closeServer(t, now)

	again := startServer(t, asking(dir))
	assert.Empty(t, again.OtherUsers())
	closeServer(t, again)
	last := startServer(t, mongod.Config{DataDir: dir})
	requireKept(t, connect(t, last.URI()), "old", "new")
	require.NotContains(t, ownerURI(t, last), "owner:")
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

// TestAStartRepairsUsers: the users and files that an interrupted start, an operator
// or a backup may leave behind do not matter. Damage of the files is that of
// TestCredentialsAreRepaired.
func TestAStartRepairsUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := startServer(t, asking(dir))
	put(t, connect(t, server.URI()), "a")
	closeServer(t, server)
	uri, key := filepath.Join(dir, "mongod", "uri"), filepath.Join(dir, "mongod", "keyfile")
	withoutAuth(t, dir, func(t *testing.T, db *mongo.Database) {
		run(t, db,
			bson.D{{Key: "updateUser", Value: "brim"}, {Key: "pwd", Value: "x"}}, bson.D{{Key: "dropUser", Value: "owner"}},
			bson.D{{Key: "updateRole", Value: "brimServe"}, {Key: "roles", Value: bson.A{"root"}}}, bson.D{{Key: "dropRole", Value: "brimOwner"}})
	})
	require.NoError(t, os.Remove(uri))
	require.NoError(t, os.Remove(key))

	server = startServer(t, asking(dir))
	daemon := connect(t, server.URI())
	requireKept(t, daemon, "a")
	assert.EqualValues(t, unauthorized, codeOf(t, insert(t, daemon, "other")))
	require.NoError(t, insert(t, connect(t, ownerURI(t, server)), "other"))
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

func TestAStandaloneAsksTooAndHasNoReplicaSet(t *testing.T) {
	t.Parallel()
	config := asking(t.TempDir())
	config.Standalone = true
	server := startServer(t, config)
	client := connect(t, server.URI())
	put(t, client, "a")
	require.NotContains(t, adminCommand(t, client, bson.D{{Key: "hello", Value: 1}}), "setName")
	require.NoError(t, insert(t, connect(t, ownerURI(t, server)), "other"))
	require.Error(t, insert(t, connect(t, withUser(t, server.URI(), nil)), "test"))
}

// TestAStartThatIsKilledAnywhereIsRepaired kills the daemon at random moments of
// its first start.
func TestAStartThatIsKilledAnywhereIsRepaired(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary(t) // so that no start installs it
	for range 3 {
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
