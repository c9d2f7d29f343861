package simulate

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// The messages of MongoDB's wire protocol that are in use.
const (
	opReply = 1
	opQuery = 2004 // a client's first hello
	opMsg   = 2013
)

// message is a command as it came over the wire, without its document sequences.
type message struct {
	request   uint32
	op        uint32
	body      bson.Raw
	sequences map[string][]bson.Raw
}

func readMessage(r io.Reader) (m message, err error) {
	var header [16]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return m, err
	}
	rest := make([]byte, binary.LittleEndian.Uint32(header[:])-16)
	if _, err := io.ReadFull(r, rest); err != nil {
		return m, err
	}
	m.request, m.op = binary.LittleEndian.Uint32(header[4:]), binary.LittleEndian.Uint32(header[12:])
	switch m.op {
	case opQuery:
		_, after, _ := cut(rest[4:]) // flags, and the name of the collection
		m.body = bson.Raw(after[8:]) // numbers to skip, and to return
		return m, nil
	case opMsg:
		return m, m.sections(rest)
	}
	panic(unknown("messages of opcode %d", m.op))
}

// cut splits behind the first zero.
func cut(b []byte) (before string, after []byte, found bool) {
	for i := range b {
		if b[i] == 0 {
			return string(b[:i]), b[i+1:], true
		}
	}
	return "", nil, false
}

func (m *message) sections(b []byte) error {
	const checksum, moreToCome = 1, 2
	if flags := binary.LittleEndian.Uint32(b); flags&(checksum|moreToCome) != 0 {
		panic(unknown("messages with the flags %b", flags))
	}
	for b = b[4:]; len(b) > 0; {
		kind := b[0]
		size := binary.LittleEndian.Uint32(b[1:])
		section := b[1 : 1+size]
		switch b = b[1+size:]; kind {
		case 0:
			m.body = bson.Raw(section)
		case 1:
			name, docs, _ := cut(section[4:])
			if m.sequences == nil {
				m.sequences = make(map[string][]bson.Raw)
			}
			for len(docs) > 0 {
				n := binary.LittleEndian.Uint32(docs)
				m.sequences[name] = append(m.sequences[name], bson.Raw(docs[:n:n]))
				docs = docs[n:]
			}
		default:
			return fmt.Errorf("simulate: a section is of kind %d", kind)
		}
	}
	return nil
}

// reply makes the message that answers.
func (m *message) reply(doc bson.Raw) []byte {
	head := 16 + 5
	if m.op == opQuery {
		head = 16 + 20
	}
	out := make([]byte, head, head+len(doc))
	out = append(out, doc...)
	binary.LittleEndian.PutUint32(out, uint32(len(out)))
	binary.LittleEndian.PutUint32(out[8:], m.request)
	if m.op == opQuery {
		binary.LittleEndian.PutUint32(out[12:], opReply)
		binary.LittleEndian.PutUint32(out[32:], 1)
	} else {
		binary.LittleEndian.PutUint32(out[12:], opMsg)
	}
	return out
}

// batch returns the documents of a command that may come as a sequence beside it.
func (m *message) batch(name string) []bson.Raw {
	if docs, ok := m.sequences[name]; ok {
		return docs
	}
	var out []bson.Raw
	if array, ok := m.body.Lookup(name).ArrayOK(); ok {
		for _, e := range elements(array) {
			out = append(out, bson.Raw(e.Value().Document()))
		}
	}
	return out
}

func (m *message) name() string {
	first, err := m.body.IndexErr(0)
	if err != nil {
		panic(unknown("an empty command"))
	}
	return first.Key()
}

// String is the command with all its documents.
func (m *message) String() string {
	s := m.body.String()
	for _, name := range []string{"documents", "updates", "deletes"} {
		for _, d := range m.sequences[name] {
			s += " " + name + ": " + d.String()
		}
	}
	return s
}

// conn is a client's connection to one member.
type conn struct {
	db     *MongoDB
	client string
	host   int
	pipe   net.Conn
	out    chan []byte
	closed bool
}

// read takes commands until the connection is closed.
func (c *conn) read() {
	for {
		m, err := readMessage(c.pipe)
		if err != nil {
			c.db.mu.Lock()
			c.close()
			c.db.mu.Unlock()
			return
		}
		c.db.arrived(c, m)
	}
}

// write sends replies until the connection is closed.
func (c *conn) write() {
	for b := range c.out {
		time.Sleep(far(c.host)) //nolint:forbidigo // fake time
		if _, err := c.pipe.Write(b); err != nil {
			continue
		}
	}
}

// close closes both ends; the mutex is held.
func (c *conn) close() {
	if !c.closed {
		c.closed = true
		close(c.out)
		_ = c.pipe.Close()
		c.db.gone(c)
	}
}

func (c *conn) send(b []byte) {
	if !c.closed {
		c.out <- b
	}
}

func marshal(d bson.D) bson.Raw {
	out, err := bson.Marshal(d)
	if err != nil {
		panic(fmt.Sprintf("simulate: make a reply: %v", err))
	}
	return out
}

func raw(v value) bson.RawValue { return bson.RawValue{Type: bson.Type(v.Type), Value: v.Data} }

func core(v bson.RawValue) value { return value{Type: bsoncore.Type(v.Type), Data: v.Value} }
