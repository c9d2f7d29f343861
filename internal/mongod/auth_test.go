package mongod_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
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

// withAuth returns the configuration of a mongod that requires authentication.
func withAuth(dir string) mongod.Config {
	return mongod.Config{DataDir: dir, Auth: true, Database: "test"}
}

// ownerURI returns the URI in the owner's file.
func ownerURI(t *testing.T, server *mongod.Server) string {
	t.Helper()
	text, err := os.ReadFile(server.URIFile())
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// codeOf returns a server error's code; 0 for none.
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

// withUser returns the URI with another user.
func withUser(t *testing.T, uri string, user *url.Userinfo) string {
	t.Helper()
	u := parse(t, uri)
	u.User = user
	return u.String()
}

func parse(t *testing.T, uri string) *url.URL {
	t.Helper()
	u, err := url.Parse(uri)
	require.NoError(t, err)
	return u
}

func run(t *testing.T, db *mongo.Database, commands ...bson.D) {
	t.Helper()
	for _, command := range commands {
		require.NoError(t, db.RunCommand(t.Context(), command).Err())
	}
}

// TestAuthenticationRefusesUnknownUsers after first starts that were killed at
// random moments.
func TestAuthenticationRefusesUnknownUsers(t *testing.T) {
	t.Parallel()
	var log logged
	config := withAuth(t.TempDir())
	killStarts(t, config.DataDir, 3)
	config.Logger = log.logger()
	server := startServer(t, config)
	require.True(t, server.RequiresAuth())

	put(t, connect(t, server.URI()), "by the daemon")
	daemon, owner := connect(t, server.URI()), connect(t, ownerURI(t, server))
	assert.EqualValues(t, unauthorized, codeOf(t, insert(t, daemon, "other")), "the daemon's user is limited to its database")
	assert.EqualValues(t, unauthorized, codeOf(t, daemon.Database("admin").RunCommand(t.Context(), bson.D{{Key: "shutdown", Value: 1}}).Err()))
	assert.EqualValues(t, unauthorized, codeOf(t, daemon.Database("admin").RunCommand(t.Context(), bson.D{{Key: "usersInfo", Value: 1}}).Err()))
	require.NoError(t, insert(t, owner, "other"), "the owner may do anything")

	anonymous := connect(t, strings.ReplaceAll(withUser(t, server.URI(), nil), "&authSource=admin", ""))
	assert.EqualValues(t, unauthorized, codeOf(t, insert(t, anonymous, "test")))
	first := bson.D{{Key: "createUser", Value: "me"}, {Key: "pwd", Value: "me"}, {Key: "roles", Value: bson.A{"root"}}}
	assert.EqualValues(t, unauthorized, codeOf(t, anonymous.Database("admin").RunCommand(t.Context(), first).Err()))
	guesser := connect(t, withUser(t, server.URI(), url.UserPassword("owner", "guessed")))
	assert.EqualValues(t, authenticationFailed, codeOf(t, insert(t, guesser, "test")))

	for _, uri := range []string{server.URI(), ownerURI(t, server)} {
		secret, _ := parse(t, uri).User.Password()
		require.Len(t, secret, 43, "256 bits")
		assert.NotContains(t, log.String(), secret)
		mongodLog, err := os.ReadFile(filepath.Join(config.DataDir, "mongod", "mongod.log"))
		require.NoError(t, err)
		assert.NotContains(t, string(mongodLog), secret)
		for _, pid := range []int{server.Pid(), os.Getpid()} {
			arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			require.NoError(t, err)
			assert.NotContains(t, string(arguments), secret)
		}
	}

	// Other users cannot read the secrets.
	dir := filepath.Dir(server.URIFile())
	require.True(t, filepath.IsAbs(dir))
	for name, want := range map[string]os.FileMode{".": 0o700, "uri": 0o600, "keyfile": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode().Perm(), name)
	}
	unfinished, err := filepath.Glob(filepath.Join(dir, ".new-*"))
	require.NoError(t, err)
	assert.Empty(t, unfinished)
}

// killStarts kills daemons at random moments while they start with authentication.
func killStarts(t *testing.T, dir string, times int) {
	t.Helper()
	binary(t) // no start has to install it
	for range times {
		started := startSelf(t, daemonEnv+"="+dir, daemonAuthEnv+"=1")
		killed := time.AfterFunc(rand.N(1500*time.Millisecond), func() { _ = started.Process.Kill() })
		for lines := bufio.NewScanner(started.output); lines.Scan(); {
			require.NotContains(t, lines.Text(), "error:")
		}
		require.Error(t, started.Wait())
		killed.Stop()
	}
}

// TestAuthenticationIsSwitchedOnAndOff with the same data: data and the owner's
// password are kept, users created without authentication are reported, and changed
// users and lost files are repaired. For the files see TestCredentialsAreRepaired.
func TestAuthenticationIsSwitchedOnAndOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	without := startServer(t, mongod.Config{DataDir: dir})
	client := connect(t, without.URI())
	put(t, client, "old")
	require.False(t, without.RequiresAuth())
	require.Equal(t, without.URI(), ownerURI(t, without), "the file has the URI without authentication too")
	for database, role := range map[string]string{"admin": "root", "elsewhere": "readWrite"} {
		run(t, client.Database(database), bson.D{{Key: "createUser", Value: "evil"}, {Key: "pwd", Value: "planted"}, {Key: "roles", Value: bson.A{role}}})
	}
	closeServer(t, without)
	assert.Empty(t, without.OtherUsers())

	var log logged
	config := withAuth(dir)
	config.Logger = log.logger()
	first := startServer(t, config)
	client = connect(t, first.URI())
	requireStored(t, client, "old")
	put(t, client, "new")
	assert.Equal(t, []string{"evil@admin (root@admin)", "evil@elsewhere (readWrite@elsewhere)"}, first.OtherUsers())
	assert.Contains(t, log.String(), "WARN")
	assert.Contains(t, log.String(), "evil@admin (root@admin)")
	assert.Contains(t, log.String(), `dropUser(`)
	require.NoError(t, insert(t, connect(t, withUser(t, first.URI(), url.UserPassword("evil", "planted"))), "anywhere"), "which is why they are reported")
	owner := connect(t, ownerURI(t, first))
	run(t, owner.Database("admin"), bson.D{{Key: "dropUser", Value: "evil"}})
	run(t, owner.Database("elsewhere"), bson.D{{Key: "dropUser", Value: "evil"}})
	before := parse(t, ownerURI(t, first))
	require.Equal(t, "/"+config.Database, before.Path, "a shell opens the daemon's database with it")
	require.NoError(t, first.Kill())
	eventually(t, func() bool { return first.Restarts() == 1 && first.Running() }, "the restart")
	requireStored(t, connect(t, first.URI()), "old", "new")
	closeServer(t, first)

	config = withAuth(dir)
	config.Port = mongodtest.FreePort(t)
	second := startServer(t, config)
	require.NotEqual(t, before.Host, parse(t, ownerURI(t, second)).Host)
	require.Equal(t, before.User, parse(t, ownerURI(t, second)).User)
	require.NotEqual(t, parse(t, first.URI()).User, parse(t, second.URI()).User, "the daemon has a new password in each run")
	requireStored(t, connect(t, ownerURI(t, second)), "old", "new")
	requireStored(t, connect(t, second.URI()), "old", "new")
	assert.Empty(t, second.OtherUsers())
	closeServer(t, second)

	without = startServer(t, mongod.Config{DataDir: dir})
	client = connect(t, without.URI())
	requireStored(t, client, "old", "new")
	require.NotContains(t, ownerURI(t, without), "owner:")
	run(t, client.Database("admin"),
		bson.D{{Key: "updateUser", Value: "brim"}, {Key: "pwd", Value: "x"}}, bson.D{{Key: "dropUser", Value: "owner"}},
		bson.D{{Key: "updateRole", Value: "brimServe"}, {Key: "roles", Value: bson.A{"root"}}}, bson.D{{Key: "dropRole", Value: "brimOwner"}})
	closeServer(t, without)
	for _, name := range []string{"uri", "keyfile"} {
		require.NoError(t, os.Remove(filepath.Join(dir, "mongod", name)))
	}

	repaired := startServer(t, withAuth(dir))
	client = connect(t, repaired.URI())
	requireStored(t, client, "old", "new")
	assert.EqualValues(t, unauthorized, codeOf(t, insert(t, client, "other")))
	require.NoError(t, insert(t, connect(t, ownerURI(t, repaired)), "other"))
}

func TestAuthenticationOnAStandalone(t *testing.T) {
	t.Parallel()
	config := withAuth(t.TempDir())
	config.Standalone = true
	server := startServer(t, config)
	client := connect(t, server.URI())
	put(t, client, "a")
	require.NotContains(t, adminCommand(t, client, bson.D{{Key: "hello", Value: 1}}), "setName")
	require.NoError(t, insert(t, connect(t, ownerURI(t, server)), "other"))
	require.Error(t, insert(t, connect(t, withUser(t, server.URI(), nil)), "test"))
}
