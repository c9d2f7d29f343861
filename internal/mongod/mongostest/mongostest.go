// Package mongostest gives tests a sharded cluster that is not real: a server
// that speaks MongoDB's wire protocol and answers as MongoDB's documentation
// says that a router, a mongos, does. What passes here is what was sent, and
// what was made of the documented answers; it says nothing about a real cluster.
package mongostest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"
)

// A Cluster listens on a port of its own until the test ends. It knows its
// sharded collections and the documents that a test puts in; writes are
// acknowledged and change nothing.
type Cluster struct {
	// Documents are those of collections, by namespace; a collection that has an
	// entry exists.
	Documents map[string][]bson.D
	// Refuse is asked first; an answer other than nil is given instead.
	Refuse func(Command) bson.D

	listener    net.Listener
	mu          sync.Mutex
	conns       map[net.Conn]bool
	commands    []Command
	collections []bson.D // of the database config
	running     sync.WaitGroup
}

// StartCluster starts a cluster with nothing in it.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &Cluster{Documents: make(map[string][]bson.D), listener: l, conns: make(map[net.Conn]bool)}
	c.running.Go(c.accept)
	t.Cleanup(c.stop)
	return c
}

// URI by which clients find the cluster.
func (c *Cluster) URI() string { return "mongodb://" + c.listener.Addr().String() + "/" }

// Change lets a test change the cluster while clients are connected.
func (c *Cluster) Change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Shard enters a collection in the catalog with a shard key; more are further
// elements of its entry.
func (c *Cluster) Shard(namespace string, key bson.D, more ...bson.E) {
	c.Change(func() {
		c.collections = append(c.collections, append(bson.D{
			{Key: "_id", Value: namespace}, {Key: "uuid", Value: bson.Binary{Subtype: 4, Data: []byte("uuid of " + namespace)}}, {Key: "key", Value: key}, {Key: "unique", Value: false},
		}, more...))
	})
}

// Track enters a collection that lies on one shard and is known to the cluster,
// as MongoDB 8.0 does it.
func (c *Cluster) Track(namespace string) {
	c.Shard(namespace, bson.D{{Key: "_id", Value: 1}}, bson.E{Key: "unsplittable", Value: true})
}

// Commands returns what was sent so far, without handshakes and ends of sessions.
func (c *Cluster) Commands() (commands []Command) {
	c.Change(func() { commands = slices.Clone(c.commands) })
	return commands
}

// Forget empties what Commands returns.
func (c *Cluster) Forget() { c.Change(func() { c.commands = nil }) }

// A Command is what a client sent, without what drivers send beside it.
type Command struct {
	Name       string
	Database   string
	Body       bson.D
	Operations []bson.Raw // the documents of an insert, the operations of an update or a delete
}

// collection is the argument of the command's name.
func (c Command) collection() string {
	name, _ := c.Body[0].Value.(string)
	return name
}

func (c *Cluster) stop() {
	_ = c.listener.Close()
	c.mu.Lock()
	for conn := range c.conns {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.running.Wait()
}

func (c *Cluster) accept() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		c.conns[conn] = true
		c.mu.Unlock()
		c.running.Go(func() {
			defer func() {
				_ = conn.Close()
				c.mu.Lock()
				delete(c.conns, conn)
				c.mu.Unlock()
			}()
			for c.exchange(conn) == nil {
			}
		})
	}
}

// opQuery is the kind of message that drivers send the first hello of a connection
// in, since they do not know yet what the server understands.
const opQuery = wiremessage.OpCode(2004)

var errWire = errors.New("this is not what a driver sends")

// exchange reads one command and answers it.
func (c *Cluster) exchange(conn net.Conn) error {
	header := make([]byte, 16)
	if _, err := io.ReadFull(conn, header); err != nil {
		return err
	}
	length, id, _, code, _, ok := wiremessage.ReadHeader(header)
	if !ok || length < 16 || length > 64<<20 {
		return errWire
	}
	rest := make([]byte, length-16)
	if _, err := io.ReadFull(conn, rest); err != nil {
		return err
	}
	var reply []byte
	switch code {
	case opQuery:
		reply = legacyReply(id, encode(hello()))
	case wiremessage.OpMsg:
		command, ok := parse(rest)
		if !ok {
			return errWire
		}
		reply = messageReply(id, encode(c.carryOut(command)))
	default:
		return errWire
	}
	_, err := conn.Write(reply)
	return err
}

// carryOut answers a command, and remembers those that are no handshakes.
func (c *Cluster) carryOut(command Command) bson.D {
	switch command.Name {
	case "hello", "isMaster", "ismaster":
		return hello()
	case "endSessions":
		return done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands = append(c.commands, command)
	if c.Refuse != nil {
		if answer := c.Refuse(command); answer != nil {
			return answer
		}
	}
	if answer := c.answer(command); answer != nil {
		return answer
	}
	return Failure(59, "CommandNotFound", "no such command: '"+command.Name+"'")
}

func (c *Cluster) answer(command Command) bson.D {
	namespace := command.Database + "." + command.collection()
	switch command.Name {
	case "buildInfo":
		return done(bson.E{Key: "version", Value: "6.0.5"}, bson.E{Key: "versionArray", Value: bson.A{6, 0, 5, 0}})
	case "listCollections":
		filter, _ := get(command.Body, "filter").(bson.D)
		var list []bson.D
		for namespace := range c.Documents {
			name, ours := strings.CutPrefix(namespace, command.Database+".")
			one := bson.D{{Key: "name", Value: name}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{}}}
			if ours && matches(one, filter) {
				list = append(list, one)
			}
		}
		return batchOf(namespace, list)
	case "find", "listIndexes", "aggregate":
		docs := c.Documents[namespace] // whatever the filter
		if namespace == "config.collections" {
			filter, _ := get(command.Body, "filter").(bson.D)
			docs = slices.DeleteFunc(slices.Clone(c.collections), func(d bson.D) bool { return !matches(d, filter) })
		}
		return batchOf(namespace, docs)
	case "insert", "update", "delete":
		return done(bson.E{Key: "n", Value: len(command.Operations)}, bson.E{Key: "nModified", Value: len(command.Operations)})
	case "ping", "create", "createIndexes", "collMod", "dropIndexes", "drop":
		return done()
	}
	return nil
}

func done(more ...bson.E) bson.D { return append(bson.D{{Key: "ok", Value: 1}}, more...) }

func batchOf(namespace string, docs []bson.D) bson.D {
	if docs == nil {
		docs = []bson.D{}
	}
	return done(bson.E{Key: "cursor", Value: bson.D{{Key: "firstBatch", Value: docs}, {Key: "id", Value: int64(0)}, {Key: "ns", Value: namespace}}})
}

func get(d bson.D, key string) any {
	for _, e := range d {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// matches knows equality and $in.
func matches(doc, filter bson.D) bool {
	for _, e := range filter {
		allowed := bson.A{e.Value}
		if in, ok := e.Value.(bson.D); ok && len(in) == 1 && in[0].Key == "$in" {
			allowed, _ = in[0].Value.(bson.A)
		}
		if !slices.ContainsFunc(allowed, func(v any) bool { return fmt.Sprint(v) == fmt.Sprint(get(doc, e.Key)) }) {
			return false
		}
	}
	return true
}

// hello is a router's: msg says that it is one.
func hello() bson.D {
	return bson.D{
		{Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "msg", Value: "isdbgrid"}, {Key: "helloOk", Value: true},
		{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48_000_000}, {Key: "maxWriteBatchSize", Value: 100_000},
		{Key: "logicalSessionTimeoutMinutes", Value: 30}, {Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 21}, {Key: "ok", Value: 1},
	}
}

// Failure is the answer of a server that does not do what it is told.
func Failure(code int, name, message string) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "errmsg", Value: message}, {Key: "code", Value: code}, {Key: "codeName", Value: name}}
}

// parse reads the sections of a message.
func parse(b []byte) (Command, bool) {
	_, b, ok := wiremessage.ReadMsgFlags(b)
	var c Command
	for ok && len(b) > 0 {
		var kind wiremessage.SectionType
		if kind, b, ok = wiremessage.ReadMsgSectionType(b); !ok {
			break
		}
		if kind == wiremessage.SingleDocument {
			var doc []byte
			if doc, b, ok = readDocument(b); ok {
				ok = bson.Unmarshal(doc, &c.Body) == nil && len(c.Body) > 0
			}
			continue
		}
		_, docs, rest, read := wiremessage.ReadMsgSectionDocumentSequence(b)
		for _, doc := range docs {
			c.Operations = append(c.Operations, slices.Clone(bson.Raw(doc)))
		}
		b, ok = rest, read
	}
	if !ok || len(c.Body) == 0 {
		return c, false
	}
	c.Name = c.Body[0].Key
	c.Body = slices.DeleteFunc(c.Body, func(e bson.E) bool {
		if e.Key == "$db" {
			c.Database, _ = e.Value.(string)
		}
		return slices.Contains([]string{"$db", "lsid", "$clusterTime", "txnNumber", "$readPreference"}, e.Key)
	})
	return c, true
}

func readDocument(b []byte) (doc, rest []byte, ok bool) {
	d, rest, ok := wiremessage.ReadMsgSectionSingleDocument(b)
	return d, rest, ok
}

func encode(doc bson.D) []byte {
	b, err := bson.Marshal(doc)
	if err != nil {
		b, _ = bson.Marshal(Failure(8, "UnknownError", err.Error()))
	}
	return b
}

func messageReply(to int32, doc []byte) []byte {
	at, b := wiremessage.AppendHeaderStart(nil, wiremessage.NextRequestID(), to, wiremessage.OpMsg)
	b = wiremessage.AppendMsgFlags(b, 0)
	b = wiremessage.AppendMsgSectionType(b, wiremessage.SingleDocument)
	return finish(append(b, doc...), at)
}

func legacyReply(to int32, doc []byte) []byte {
	at, b := wiremessage.AppendHeaderStart(nil, wiremessage.NextRequestID(), to, wiremessage.OpReply)
	b = wiremessage.AppendReplyFlags(b, 0)
	b = wiremessage.AppendReplyCursorID(b, 0)
	b = wiremessage.AppendReplyStartingFrom(b, 0)
	b = wiremessage.AppendReplyNumberReturned(b, 1)
	return finish(append(b, doc...), at)
}

// finish writes the length that the message has in the end.
func finish(b []byte, at int32) []byte {
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-int(at)))
	return b
}
