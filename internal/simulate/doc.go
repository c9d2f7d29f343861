// Package simulate runs daemons in a simulation: the real write path, with the real MongoDB
// driver, on a clock, a disk and a MongoDB that one seeded scheduler controls.
//
//	            clients: writes, repeats, queries, flushes
//	               │ requests
//	         ┌─────▼──────┐ ┌────────────┐
//	disk ◀───┤ daemon A   ├─┤ daemon B   ├──▶ disk       journal.Files: faulttest.Files
//	         └─────┬──────┘ └─────┬──────┘
//	               │ wire protocol│
//	            ┌──▼──────────────▼──┐
//	            │ MongoDB, the model │
//	            └────────────────────┘
//
// Everything runs in a testing/synctest bubble. After each choice the scheduler waits until
// all goroutines are idle. Then it lists what could happen next: a command is executed
// or answered, an operation of a disk succeeds or fails, a client sends something, a process
// is killed, the power goes, time passes. The seed chooses. Each seed also draws how likely
// each kind of event is, so that some runs have many failures of one kind and others none.
//
// A step is drawn from the seed, its number, and the name of each thing that could happen,
// rather than from a stream of random numbers. So a seed keeps most of its meaning when an
// event is added. Goroutines that wake at one instant run in an order that the Go runtime
// chooses: every step ends at another nanosecond, and what waits is sorted by content, so that
// this rarely matters. A seed that fails is added to failedOnce, and runs first from then on.
//
// At the end all faults are healed, and everything must become idle: each acknowledged
// reading is stored once unless it was deleted, documents describe their readings, and queries
// return them. The answers that clients got during the run must be linearizable.
//
// All of it is in test files. run_test.go runs a seed: world_test.go has the scheduler,
// daemon_test.go the daemons, clients_test.go the clients and what answers must say,
// deletes_test.go deletions, linear_test.go the history of each reading, ledger_test.go what
// clients know of their readings, events_test.go what operators and other programs do,
// liveness_test.go what must happen soon, story_test.go the trace.
// replicaset_test.go and the files beside it are the model of MongoDB, history_test.go and
// recorded_test.go compare it with a real one.
package simulate
