package faulttest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// commandCodes are errors of whole commands, never a reading's fault.
var commandCodes = [...]int{
	6,     // HostUnreachable
	7,     // HostNotFound
	13,    // Unauthorized
	18,    // AuthenticationFailed
	24,    // LockTimeout
	50,    // MaxTimeMSExpired
	89,    // NetworkTimeout
	91,    // ShutdownInProgress
	112,   // WriteConflict
	121,   // DocumentValidationFailure
	133,   // FailedToSatisfyReadPreference
	189,   // PrimarySteppedDown
	262,   // ExceededTimeLimit
	8000,  // AtlasError
	9001,  // SocketException
	10107, // NotWritablePrimary
	11600, // InterruptedAtShutdown
	11601, // Interrupted
	11602, // InterruptedDueToReplStateChange
	13435, // NotPrimaryNoSecondaryOk
	14031, // OutOfDiskSpace
}

// concernCodes come with writes that were applied.
var concernCodes = [...]int{
	64,    // WriteConcernFailed: waiting for replication timed out
	91,    // ShutdownInProgress
	11602, // InterruptedDueToReplStateChange
}

// operationCodes are errors of single operations: the part is full, or a
// reading may be at fault, or neither.
var operationCodes = [...]int{
	10334, 17419, 17420, // the document is too large
	2, 9, 14, 28, 40, // content
	50, 112, 121, 13, 96, 11601, // not a reading's fault
}

// TestMONGO7: MongoDB fails in every way in the outcome table.
func TestMONGO7(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.mongo(mongodtest.Start(t, mongod.Config{}).URI()) // fail points affect the whole server
	proxy, uri := s.proxy()
	d := s.daemon(uri, smallParts...)
	s.check.MaxReadings = 20
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 20, Sensors: 5, Rate: 500})
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 20, Sensors: 5, Ack: "stored"})
	s.documents(20) // before the stream is ready, only claims would fail
	faults := 0
	for range form(1, 10) {
		for _, code := range commandCodes {
			faults += s.failCommand(bson.E{Key: "errorCode", Value: code})
		}
		for _, code := range concernCodes {
			faults += s.failCommand(bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: code}, {Key: "errmsg", Value: "the test says so"}}})
		}
		faults += s.failCommand(bson.E{Key: "closeConnection", Value: true})
		for _, code := range operationCodes {
			s.refuseOperations(proxy, code)
		}
	}
	s.finish("MONGO-7", faults+proxy.Counts().Faults())
}

// failCommand makes two commands of the daemon fail on the server, and waits
// for that.
func (s *scene) failCommand(how bson.E) int {
	s.t.Helper()
	const times = 2
	admin := s.db.Client().Database("admin")
	point := bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: times}}},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{"update", "findAndModify", "find"}}, {Key: "appName", Value: s.db.Name()}, how,
		}},
	}
	if how.Key == "writeConcernError" { // commands that only read have none
		point[2].Value.(bson.D)[0].Value = bson.A{"update", "findAndModify"}
	}
	var before struct {
		Count int32 `bson:"count"`
	}
	require.NoError(s.t, admin.RunCommand(context.Background(), point).Decode(&before))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := admin.RunCommand(ctx, bson.D{
		{Key: "waitForFailPoint", Value: "failCommand"}, {Key: "timesEntered", Value: before.Count + times},
	}).Err() // the driver adds the maxTimeMS that the command asks for
	require.NoError(s.t, err)
	return times
}

// refuseOperations makes the proxy refuse, with this code, bulk writes in which all
// operations carry several readings: a single one would rightly count as poison. Others
// pass in between, so that existing parts also refuse.
func (s *scene) refuseOperations(proxy *faulttest.Proxy, code int) {
	s.t.Helper()
	const times = 2
	before := proxy.Counts().Dropped.Load()
	proxy.Set(faulttest.Faults{
		Decide: func(c faulttest.Command) faulttest.Fate {
			enough := proxy.Counts().Dropped.Load() >= before+times
			if c.Name != "update" || enough || proxy.Counts().Writes.Load()%3 > 0 || slices.ContainsFunc(c.Operations, carriesFew) {
				return faulttest.Pass
			}
			return faulttest.Drop
		},
		Answer: func(c faulttest.Command) bson.D { return faulttest.WriteErrors(c, code) },
	})
	require.Eventually(s.t, func() bool { return proxy.Counts().Dropped.Load() >= before+times }, patience, 5*time.Millisecond)
	proxy.Set(faulttest.Faults{})
}

// carriesFew reports whether an update carries fewer than two readings.
func carriesFew(update bson.Raw) bool { return readingsOf(update) < 2 }

// carriesReadings tells a bucket's update from the renewal of a claim.
func carriesReadings(update bson.Raw) bool { return readingsOf(update) > 0 }

func readingsOf(update bson.Raw) int {
	array, _ := update.Lookup("u", "$push", "measurements", "$each").ArrayOK()
	readings, _ := array.Values() // none if there is no array
	return len(readings)
}

// documents waits until the stream has n documents.
func (s *scene) documents(n int64) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		there, err := s.db.Collection("readings").EstimatedDocumentCount(context.Background())
		return err == nil && there >= n
	}, patience, 20*time.Millisecond)
}
