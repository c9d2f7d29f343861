package faulttest

// Names are those of the tests that the table must show. Each is described in
// the file of its test.
func Names() []string {
	return []string{
		"CRASH-1", "CRASH-2", "CRASH-3", "CRASH-4",
		"FS-1", "FS-2", "FS-3", "FS-4", "FS-5", "FS-6",
		"MONGO-1", "MONGO-2", "MONGO-3", "MONGO-4", "MONGO-5", "MONGO-6", "MONGO-7",
		"RACE-1", "RACE-2", "CAP-1", "HOL-1", "SET-1", "TS-1", "CLI-1", "POISON-1",
		"RECOMPRESS-1", // documents are moved to another compressor
		"MIGRATE-1",    // and to another granularity
		"MIGRATE-2",    // and into a time-series collection
		"MIGRATE-3",    // and back
		"DROP-1",       // a collection is dropped under the daemon
		"HOSTILE-1",    // who is not wanted, or sends too much
		"SCALE-1",      // four daemons, one lost for ever and its journal adopted
		"LOAD-1",       // the load generator's honesty
		"PROTOCOL",     // the random simulation of all of these at the store
	}
}
