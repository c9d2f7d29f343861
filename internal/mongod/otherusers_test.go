package mongod_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod"
)

func TestUsersFromBeforeAuthenticationAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := startServer(t, mongod.Config{DataDir: dir})
	client := connect(t, before.URI())
	for database, role := range map[string]string{"admin": "root", "elsewhere": "readWrite"} {
		run(t, client.Database(database), bson.D{{Key: "createUser", Value: "evil"}, {Key: "pwd", Value: "planted"}, {Key: "roles", Value: bson.A{role}}})
	}
	closeServer(t, before)
	assert.Empty(t, before.OtherUsers())

	var log logged
	config := asking(dir)
	config.Logger = log.logger()
	now := startServer(t, config)
	assert.Equal(t, []string{"evil@admin (root@admin)", "evil@elsewhere (readWrite@elsewhere)"}, now.OtherUsers())
	assert.Contains(t, log.String(), "WARN")
	assert.Contains(t, log.String(), "evil@admin (root@admin)")
	assert.Contains(t, log.String(), `dropUser(`)
	require.NoError(t, insert(t, connect(t, withUser(t, now.URI(), url.UserPassword("evil", "planted"))), "anywhere"), "which is why they are named")

	run(t, connect(t, ownerURI(t, now)).Database("admin"), bson.D{{Key: "dropUser", Value: "evil"}})
	run(t, connect(t, ownerURI(t, now)).Database("elsewhere"), bson.D{{Key: "dropUser", Value: "evil"}})
	closeServer(t, now)
	assert.Empty(t, startServer(t, asking(dir)).OtherUsers())
}
