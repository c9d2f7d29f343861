package mongodtest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestMain(m *testing.M) { Main(m, NoLeaks()) }

func TestDatabaseIsEmptyAndTakesMajorityWrites(t *testing.T) {
	t.Parallel()
	db := Database(t)
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Empty(t, names)

	_, err = db.Collection("readings").InsertOne(t.Context(), bson.D{{Key: "t", Value: 23.5}})
	require.NoError(t, err)
	count, err := db.Collection("readings").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 1, count)
}

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	first, second := Database(t), Database(t)
	require.NotEqual(t, first.Name(), second.Name())
}

func TestFailPointsAreOn(t *testing.T) {
	t.Parallel()
	client := Database(t).Client()
	// A name of this test's own commands only: the mongod is shared.
	failPoint := func(mode string) bson.D {
		return bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: bson.A{"ping"}}, {Key: "errorCode", Value: 11601},
				{Key: "appName", Value: "no-such-client"},
			}},
		}
	}
	for _, mode := range []string{"alwaysOn", "off"} {
		require.NoError(t, client.Database("admin").RunCommand(t.Context(), failPoint(mode)).Err())
	}
}

// inABareMachine runs one test of this binary where no mongod can be had.
func inABareMachine(t *testing.T, env ...string) (output string, err error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.v", "-test.run=^TestDatabasesAreApart$")
	cmd.Env = append([]string{"PATH=" + t.TempDir(), "HOME=" + t.TempDir()}, env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func TestWithoutMongodTestsAreSkippedLoudly(t *testing.T) {
	t.Parallel()
	output, err := inABareMachine(t)
	require.NoError(t, err, output)
	require.Contains(t, output, "SKIP: no mongod for TestDatabasesAreApart")
	require.Contains(t, output, "--- SKIP: TestDatabasesAreApart")
}

func TestRequiredMongodThatCannotBeHadFails(t *testing.T) {
	t.Parallel()
	output, err := inABareMachine(t, "BRIM_REQUIRE_MONGOD=1")
	require.Error(t, err)
	require.Contains(t, output, "--- FAIL: TestDatabasesAreApart")
	require.Contains(t, output, "there is no python3 on PATH")
}

func TestNamedMongodThatIsMissingFailsTests(t *testing.T) {
	t.Parallel()
	output, err := inABareMachine(t, "BRIM_MONGOD_BIN=/no/such/mongod")
	require.Error(t, err)
	require.Contains(t, output, "/no/such/mongod")
}

func TestAPortIsGivenToOneTestAtATime(t *testing.T) {
	t.Parallel()
	given := make(map[int]bool)
	for range 300 {
		port := FreePort(t)
		require.False(t, given[port], port)
		given[port] = true
	}
}
