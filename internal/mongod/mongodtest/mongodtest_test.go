package mongodtest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func TestMain(m *testing.M) { Main(m) }

func TestEachDatabaseIsEmptyAndAcceptsWrites(t *testing.T) {
	t.Parallel()
	first, second := Database(t), Database(t)
	_, err := first.Collection("readings").InsertOne(t.Context(), bson.D{{Key: "t", Value: 23.5}})
	require.NoError(t, err)
	for db, want := range map[*mongo.Database]int64{first: 1, second: 0} {
		count, err := db.Collection("readings").CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		require.Equal(t, want, count)
	}
	failPoint := bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "off"}}
	require.NoError(t, first.Client().Database("admin").RunCommand(t.Context(), failPoint).Err())
}

// inABareMachine runs one test of this binary where no mongod is available.
func inABareMachine(t *testing.T, env ...string) (output string, err error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.v", "-test.run=^TestEachDatabaseIsEmptyAndAcceptsWrites$")
	cmd.Env = append([]string{"PATH=" + t.TempDir(), "HOME=" + t.TempDir()}, env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func TestMissingMongodSkipsTestsWithAMessage(t *testing.T) {
	t.Parallel()
	output, err := inABareMachine(t)
	require.NoError(t, err, output)
	require.Contains(t, output, "for TestEachDatabaseIsEmptyAndAcceptsWrites")
	require.Contains(t, output, "SKIP: no mongod: ")
	require.Contains(t, output, "--- SKIP: TestEachDatabaseIsEmptyAndAcceptsWrites")
}

func TestRequiredMongodThatCannotBeHadFails(t *testing.T) {
	t.Parallel()
	output, err := inABareMachine(t, "BRIM_REQUIRE_MONGOD=1")
	require.Error(t, err)
	require.Contains(t, output, "--- FAIL: TestEachDatabaseIsEmptyAndAcceptsWrites")
	require.Contains(t, output, "there is no python3 on PATH")
}

func TestNamedMongodThatIsMissingFailsTests(t *testing.T) {
	t.Parallel()
	output, err := inABareMachine(t, "BRIM_MONGOD_BIN=/no/such/mongod")
	require.Error(t, err)
	require.Contains(t, output, "/no/such/mongod")
}

func TestPortsAreUnique(t *testing.T) {
	t.Parallel()
	given := make(map[int]bool)
	for range 300 {
		port := FreePort(t)
		require.False(t, given[port], port)
		given[port] = true
	}
}
