package maintain

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	commands "go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// monitored returns the same database through a client with a command monitor.
func monitored(t *testing.T, db *mongo.Database, monitor *commands.CommandMonitor) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(mongodtest.URI(t)).SetTimeout(0).SetMonitor(monitor))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) })
	journaled := true
	return client.Database(db.Name(), options.Database().SetReadConcern(readconcern.Majority()).
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}))
}

// A point is a moment in a move: right before a command is sent, or after it has succeeded.
type point struct {
	name  string
	after bool
	// is reports whether this is the command; was is the stored state when it is sent.
	is func(e *commands.CommandStartedEvent, was *state) bool
}

// The points of a move, in order.
func points() []point {
	return []point{created(), copied(), followed(), compared(), isFenced(), drained(), swapping(), swapped()}
}

// saving is before a state is saved.
func saving(name string, is func(was, now *state) bool) point {
	return point{name: name, is: func(e *commands.CommandStartedEvent, was *state) bool {
		now := new(state)
		set, ok := e.Command.Lookup("updates", "0", "u", "$set").DocumentOK()
		return e.CommandName == "update" && on(e) == stateCollection && ok && bson.Unmarshal(set, now) == nil && is(was, now)
	}}
}

// created is when the new collection is there, and empty.
func created() point {
	return saving("created", func(was, now *state) bool { return was.Phase == phaseStart && now.Phase == phaseCopy })
}

// copied is when some groups are written, but the state does not say so yet.
func copied() point {
	return saving("copied", func(was, now *state) bool {
		return was.Phase == phaseCopy && now.Phase == phaseCopy && now.Copied != nil
	})
}

// followed is when changed groups are copied again, but the state does not say so yet.
func followed() point {
	return saving("followed", func(was, now *state) bool { return was.Phase == phaseFollow && now.Phase == phaseFollow })
}

// compared is when some groups are read from both collections to be compared.
func compared() point {
	return point{name: "compared", after: true, is: func(e *commands.CommandStartedEvent, was *state) bool {
		return e.CommandName == "find" && on(e) == newName(testStream) && was.Phase == phaseVerify
	}}
}

// isFenced is when daemons wait.
func isFenced() point {
	return point{name: "fenced", after: true, is: func(e *commands.CommandStartedEvent, _ *state) bool {
		title, _ := e.Command.Lookup("validator", "$jsonSchema", "title").StringValueOK()
		return e.CommandName == "collMod" && on(e) == testStream && title == fenceTitle
	}}
}

// drained is when both collections were found equal; their numbers of documents are compared
// last.
func drained() point {
	return point{name: "drained", after: true, is: func(e *commands.CommandStartedEvent, was *state) bool {
		return e.CommandName == "count" && on(e) == newName(testStream) && was.Phase == phaseFence
	}}
}

// swapping is when the state says that the names are being swapped, but they are not yet.
func swapping() point { return point{name: "swapping", is: exchanges} }

// swapped is when the names are swapped, but the state does not say so yet.
func swapped() point { return point{name: "swapped", after: true, is: exchanges} }

func exchanges(e *commands.CommandStartedEvent, was *state) bool {
	return (e.CommandName == "applyOps" || e.CommandName == "renameCollection") && was.Phase == phaseSwap
}

// half is when one of two renames is done.
func half() point {
	return point{name: "half", after: true, is: func(e *commands.CommandStartedEvent, _ *state) bool {
		to, _ := e.Command.Lookup("to").StringValueOK()
		return e.CommandName == "renameCollection" && strings.HasSuffix(to, "."+oldName(testStream))
	}}
}

// dropped is when the name of a time-series collection is free.
func dropped() point {
	return point{name: "dropped", after: true, is: func(e *commands.CommandStartedEvent, _ *state) bool {
		return e.CommandName == "drop" && on(e) == testStream
	}}
}

// on returns the collection that a command names.
func on(e *commands.CommandStartedEvent) string {
	name, _ := e.Command.Lookup(e.CommandName).StringValueOK()
	return name
}

// comingTo returns the same database, for a process that does something when it first
// reaches a point.
func comingTo(t *testing.T, db *mongo.Database, p point, do func()) *mongo.Database {
	t.Helper()
	var once sync.Once
	var under sync.Map // requests without a reply
	return monitored(t, db, &commands.CommandMonitor{
		Started: func(_ context.Context, e *commands.CommandStartedEvent) {
			switch e.CommandName {
			case "find", "update", "collMod", "count", "applyOps", "renameCollection", "drop":
			default:
				return
			}
			was, err := readState(context.WithoutCancel(t.Context()), db, testStream)
			if !assert.NoError(t, err) || was == nil || !p.is(e, was) {
				return
			}
			if p.after {
				under.Store(e.RequestID, true)
				return
			}
			once.Do(do)
		},
		Succeeded: func(_ context.Context, e *commands.CommandSucceededEvent) {
			if _, ok := under.LoadAndDelete(e.RequestID); ok {
				once.Do(do)
			}
		},
	})
}
