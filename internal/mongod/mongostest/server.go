// Package mongostest gives tests a sharded cluster that is not real: a server
// that speaks MongoDB's wire protocol and answers the commands of a router, a
// mongos, as MongoDB's documentation says that one answers. No mongos can be had
// where the tests run, so what passes here is what was sent, in which order, and
// what was made of the documented answers; it says nothing about a cluster.
package mongostest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"
)

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

// An Answerer answers commands; nil is the answer to one that it does not know.
type Answerer func(Command) bson.D

// A Server listens on a port of its own until the test ends.
type Server struct {
	listener net.Listener
	answer   Answerer

	mu       sync.Mutex
	conns    map[net.Conn]bool
	commands []Command
	running  sync.WaitGroup
}

// Start serves the answers.
func Start(t testing.TB, answer Answerer) *Server {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &Server{listener: l, answer: answer, conns: make(map[net.Conn]bool)}
	s.running.Go(s.accept)
	t.Cleanup(s.stop)
	return s
}

// URI by which clients find the server.
func (s *Server) URI() string { return "mongodb://" + s.listener.Addr().String() + "/" }

// Commands returns what was sent so far, without handshakes and ends of sessions.
func (s *Server) Commands() []Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.commands)
}

// Forget empties what Commands returns.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = nil
}

func (s *Server) stop() {
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = true
		s.mu.Unlock()
		s.running.Go(func() {
			defer func() {
				_ = conn.Close()
				s.mu.Lock()
				delete(s.conns, conn)
				s.mu.Unlock()
			}()
			for s.exchange(conn) == nil {
			}
		})
	}
}

// opQuery is the kind of message that drivers send the first hello of a connection
// in, since they do not know yet what the server understands.
const opQuery = wiremessage.OpCode(2004)

var errWire = errors.New("this is not what a driver sends")

// exchange reads one command and answers it.
func (s *Server) exchange(conn net.Conn) error {
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
		reply = messageReply(id, encode(s.carryOut(command)))
	default:
		return errWire
	}
	_, err := conn.Write(reply)
	return err
}

// carryOut answers a command, and remembers those that are no handshakes.
func (s *Server) carryOut(c Command) bson.D {
	switch c.Name {
	case "hello", "isMaster", "ismaster":
		return hello()
	case "endSessions":
		return bson.D{{Key: "ok", Value: 1}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = append(s.commands, c)
	if answer := s.answer(c); answer != nil {
		return answer
	}
	return Failure(59, "CommandNotFound", "no such command: '"+c.Name+"'")
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
