package compact

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func directlyToAll(t *testing.T, set *mongodtest.ReplicaSet) []*mongo.Client {
	t.Helper()
	var clients []*mongo.Client
	for _, m := range set.Members {
		clients = append(clients, directly(t, m.Host))
	}
	return clients
}

// TestReplicaSet compacts the secondaries one after another, then the primary by
// name, and the remaining members while one is down.
func TestReplicaSet(t *testing.T) {
	t.Parallel()
	set := mongodtest.StartReplicaSet(t, 10*time.Second)
	uri := set.URI()
	clients := directlyToAll(t, set)
	db := filled(t, uri, clients...)
	leader := set.Primary()
	primary := leader.Host
	for _, client := range clients {
		awaitFree(t, db, client)
	}
	var order []string
	c := compactor(t, db, uri, func(c *Config) {
		c.Progress = func(p Progress) {
			if p.Pass > 0 && (len(order) == 0 || order[len(order)-1] != p.Member) {
				order = append(order, p.Member)
			}
		}
	})
	d := look(t, c)
	require.Len(t, d.Members, len(set.Members))
	before := make(map[string]Sizes)
	for _, m := range d.Members {
		before[m.Host] = m.Sizes
		assert.Equal(t, m.Host == primary, m.Role == RolePrimary, m.Host)
	}
	todo, left, err := c.Choose(d, Selection{})
	require.NoError(t, err)
	require.Len(t, todo, 2)
	require.Len(t, left, 1)
	assert.Equal(t, primary, left[0].Member)
	assert.Equal(t, Primary, left[0].Kind)
	assert.Contains(t, left[0].Do, "replSetStepDown")

	results, left, err := c.Run(t.Context(), t.Context(), d, todo, Selection{})
	require.NoError(t, err)
	require.Empty(t, left)
	require.Len(t, results, 2)
	for i, r := range results {
		assert.Equal(t, todo[i].Host, r.Member)
		assert.Positive(t, r.GivenBack, r.Member)
		assert.NotNil(t, r.CaughtUp, "the next waits for it")
	}
	assert.Equal(t, []string{todo[0].Host, todo[1].Host}, order)

	after := look(t, c)
	for _, m := range after.Members {
		if m.Host == primary {
			assert.Equal(t, before[primary].File, m.Sizes.File, "it was not touched")
			continue
		}
		assert.Less(t, m.Sizes.File, before[m.Host].File)
	}

	// Now it is named; MongoDB itself would refuse it.
	todo, _, err = c.Choose(after, Selection{Member: primary, Force: true})
	require.NoError(t, err)
	results, _, err = c.Run(t.Context(), t.Context(), after, todo, Selection{Member: primary, Force: true})
	require.NoError(t, err)
	require.Len(t, results, 1)
	assert.Positive(t, results[0].GivenBack)

	i := slices.IndexFunc(set.Members[:], func(m *mongodtest.Member) bool { return m != leader })
	down := set.Members[i]
	down.Kill()
	c = compactor(t, db, uri, func(c *Config) { c.FreeAtLeast, c.LeastBytes = 0, 0 }) // little is left
	d = look(t, c)
	todo, left, err = c.Choose(d, Selection{})
	require.NoError(t, err)
	kinds := make(map[string]Reason)
	for _, l := range left {
		kinds[l.Member] = l.Kind
	}
	assert.Equal(t, map[string]Reason{down.Host: Unseen, primary: Primary}, kinds)
	require.Len(t, todo, 1)
	results, _, err = c.Run(t.Context(), t.Context(), d, todo, Selection{})
	require.NoError(t, err)
	require.Len(t, results, 1)
	assert.NotEmpty(t, results[0].Passes)
	assert.Empty(t, results[0].Ended)
}
