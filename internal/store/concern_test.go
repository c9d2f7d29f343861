package store

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestMembersThatMayNotBeSeenAreTold: where the user may not ask for the members
// nothing is refused, and the log says which right is missing.
func TestMembersThatMayNotBeSeenAreTold(t *testing.T) {
	t.Parallel()
	c, err := Connect(ConnectionConfig{URI: mongodtest.URI(t), Database: "any", App: "may not see members", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	fail := func(mode any) {
		require.NoError(t, c.Client().Database("admin").RunCommand(context.Background(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{{Key: "errorCode", Value: 13}, {Key: "failCommands", Value: bson.A{"replSetGetConfig"}}, {Key: "appName", Value: "may not see members"}}},
		}).Err())
	}
	var log bytes.Buffer
	check := func() error {
		return WriteConcern{Members: 3}.Check(t.Context(), c.Database(), "a", slog.New(slog.NewTextHandler(&log, nil)))
	}
	var concern *ConcernError
	require.ErrorAs(t, check(), &concern)
	assert.Empty(t, log.String())
	fail("alwaysOn")
	t.Cleanup(func() { fail("off") })
	require.NoError(t, check())
	assert.Contains(t, log.String(), "A right to replSetGetConfig lets it be seen")
	assert.Contains(t, log.String(), "stream=a")
}
