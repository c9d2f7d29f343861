package timeseries

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
)

// An insert that was never answered may still be in one of the server's sockets, and be executed
// after a lookup did not find its readings. So each Write inserts on a logical session that no other
// Write uses, with numbered commands, as in the driver's retryable writes, and before a lookup
// there is another write, the fence, on the same session:
//
//	session S   insert, number 7 ──────── delayed ───────▶ refused: 7 is older than 8
//	            fence,  number 8 ──▶ executed ──▶ lookup ──▶ insert what is missing
//
// The server executes one command of a session at a time. If the insert comes first, the fence
// waits until it has ended, and the lookup sees what it stored. The number of the fence is in the
// oplog, see store.WriteConcern.Fence, so that a primary elected later also refuses the insert.

// A session is a logical session of the server whose commands are numbered here: the driver numbers
// only those of its own methods. It is never ended, because the driver would use it again, with its
// own numbers. The server forgets it after half an hour without a command, and begins it anew if it
// is used again.
type session struct {
	database *mongo.Database
	logical  *mongo.Session
	number   int64        // of the last command
	plain    *atomic.Bool // of all sessions

	sem    chan struct{} // semaphore, held while a fence is sent
	fenced bool          // no command can be executed any more
}

// A command is an encoded insert without its end. The driver's InsertMany encodes each
// document a second time and decodes its _id to return it, which costs as much as the rest of
// Brim's work on a reading. So the documents are encoded once, in the command.
type command struct {
	doc       []byte
	documents int32 // where the array of documents starts
	count     int
}

// commandBytes is roughly the maximum size of a command, see package bucket. MongoDB limits the
// documents within a command to 16 MiB.
const commandBytes = 1 << 20

func (c *command) begin(collection string, concern store.WriteConcern, to *store.Prepared) {
	_, c.doc = bsoncore.AppendDocumentStart(c.doc[:0])
	c.doc = bsoncore.AppendStringElement(c.doc, "insert", collection)
	c.doc = bsoncore.AppendBooleanElement(c.doc, "ordered", false)
	c.doc = concern.Append(to.AppendUUID(c.doc))
	c.documents, c.doc = bsoncore.AppendArrayElementStart(c.doc, "documents")
	c.count = 0
}

// key appends the key of the next document, which must be appended to doc.
func (c *command) key() {
	c.doc = append(strconv.AppendInt(append(c.doc, byte(bson.TypeEmbeddedDocument)), int64(c.count), 10), 0)
	c.count++
}

func (c *command) full() bool { return len(c.doc) >= commandBytes }

func (c *command) end() { c.doc, _ = bsoncore.AppendArrayEnd(c.doc, c.documents) }

// firstNumber is greater than those that the driver gave to commands of a session before.
const firstNumber = 1 << 40

// run sends a write, which is a document without its end, as the session's next command. Like the
// driver, it sends it again, with the same number, for as long as the connection breaks or the
// server is not the primary: a server does not execute a number twice. On a standalone server,
// commands have no numbers and may be reordered.
//
// The documentation of RunCommand leaves open what it does with numbers. It sends them as they are,
// as TestDelayedInsertIsRefused and TestBrokenInsertIsSentAgain show.
func (one *session) run(ctx context.Context, command []byte) error {
	one.number++
	ctx = mongo.NewSessionContext(ctx, one.logical)
	send := func(command []byte) error {
		command, err := bsoncore.AppendDocumentEnd(command, 0)
		if err != nil {
			return fmt.Errorf("encode a command: %w", err)
		}
		return one.database.RunCommand(ctx, bson.Raw(command)).Err() //nolint:wrapcheck // the callers add what they need
	}
	numbered := bsoncore.AppendInt64Element(command, "txnNumber", one.number)
	for pause := time.Duration(0); !one.plain.Load(); pause = min(2*pause+time.Millisecond, time.Second) {
		err := send(numbered)
		if standalone(err) {
			one.plain.Store(true)
			break
		}
		if !store.Resend(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
	err := send(command)
	if err != nil {
		one.plain.Store(false) // it may be another server soon
	}
	return err
}

// standalone reports whether a server refused a command as a whole because it has a number.
func standalone(err error) bool {
	var refused mongo.CommandError
	return errors.As(err, &refused) && refused.Code == 20 && strings.HasPrefix(refused.Message, "Transaction numbers")
}

// sessions are those that no Write is using.
type sessions struct {
	plain atomic.Bool // the server is a standalone one

	mu   sync.Mutex
	idle []*session

	// unanswered has the sessions whose last command has an unknown outcome, by the writes in that
	// command. It does not rely on Pending.State, which a lane may discard.
	unanswered map[pendingKey]*session
}

type pendingKey struct {
	session, sensor string
	start           int64
	granularity     time.Duration
}

func keyOf(pending *batch.Pending) pendingKey {
	return pendingKey{pending.Session, pending.Sensor, pending.Start, pending.Granularity}
}

// get returns an idle session, or a new one. An error says that the client is disconnected.
func (l *sessions) get(db *mongo.Database) (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := len(l.idle) - 1; last >= 0 {
		one := l.idle[last]
		l.idle = l.idle[:last]
		return one, nil
	}
	logical, err := db.Client().StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return nil, fmt.Errorf("start a session: %w", err)
	}
	return &session{database: db, logical: logical, number: firstNumber, plain: &l.plain, sem: make(chan struct{}, 1)}, nil
}

// put returns a session whose last command was answered.
func (l *sessions) put(one *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, one)
}

// leave keeps a session whose last command, with these parts of writes, has an unknown outcome.
func (l *sessions) leave(one *session, parts []part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unanswered == nil {
		l.unanswered = make(map[pendingKey]*session)
	}
	for _, p := range parts {
		l.unanswered[keyOf(p.pending)] = one
	}
}

// of returns the session with a command that may still store rows of the write; nil if there is
// none.
func (l *sessions) of(pending *batch.Pending) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unanswered[keyOf(pending)]
}

// fence waits until the session's command has ended or can no longer be executed, and what it
// stored is confirmed by a majority.
func (s *Store) fence(ctx context.Context, one *session) error {
	select {
	case one.sem <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for another command of the session: %w", ctx.Err())
	}
	defer func() { <-one.sem }()
	if one.fenced {
		return nil
	}
	command, err := bson.Marshal(store.FenceCommand())
	if err != nil {
		return fmt.Errorf("encode a command: %w", err)
	}
	if err := one.run(ctx, store.WriteConcern{}.Append(command[:len(command)-1])); err != nil {
		return fmt.Errorf("wait for an insert without an answer: update collection %s: %w", store.FenceName, err)
	}
	one.fenced = true
	s.sessions.forget(one)
	return nil
}

// forget drops a session whose command can no longer be executed.
func (l *sessions) forget(one *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.unanswered, func(_ pendingKey, of *session) bool { return of == one })
}
