package mongodb_test

import (
	"testing"

	roles "github.com/brim-telemetry/brim/deploy/mongodb"
)

// TestRolesOfAClusterCanBeMade is all that a server that is no cluster can tell
// of them: that it knows their resources and actions.
func TestRolesOfAClusterCanBeMade(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, name := range []string{roles.Shard, roles.Shards} {
		s.tenant(role(t, name))
	}
}
