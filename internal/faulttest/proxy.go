package faulttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"

	"github.com/brim-telemetry/brim/internal/machine"
)

// A Proxy sits between MongoDB's clients and one mongod and injects network faults.
// It works on whole messages of the wire protocol, and on commands that write.
type Proxy struct {
	target   string
	listener net.Listener
	faults   atomic.Pointer[Faults]
	counts   ProxyCounts

	ctx    context.Context // ends with the proxy
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	links map[*link]struct{}
	held  []*heldRequest
}

// Faults are what a Proxy does; the zero value passes everything on.
type Faults struct {
	// Decide returns what happens to a command that writes; nil: it passes. It is
	// called concurrently.
	Decide func(Command) Fate
	// Answer returns what the client gets instead of a lost answer. If it is nil or returns
	// nil, the connection is cut.
	Answer func(Command) bson.D

	Delay          time.Duration // of every message, on the way back
	BytesPerSecond int           // of each connection, each way; 0: no limit
	Refuse         bool          // connections are closed as soon as they are made
}

// A Fate is what happens to a command.
type Fate uint8

// The fates.
const (
	// Pass: the command is carried out and answered.
	Pass Fate = iota
	// CutAnswer: it is carried out, and its answer is lost.
	CutAnswer
	// Drop: it never arrives.
	Drop
	// Hold: it arrives only with Release.
	Hold
)

// ProxyCounts count what a Proxy did.
type ProxyCounts struct {
	Writes, AnswersCut, Dropped, Held, ConnectionsCut, ConnectionsRefused atomic.Int64
}

// Faults returns how many of them were injected.
func (c *ProxyCounts) Faults() int {
	return int(c.AnswersCut.Load() + c.Dropped.Load() + c.Held.Load() + c.ConnectionsCut.Load() + c.ConnectionsRefused.Load())
}

// NewProxy returns a proxy for the mongod at target, host:port.
func NewProxy(target string) (*Proxy, error) {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	p := &Proxy{target: target, listener: listener, links: make(map[*link]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.faults.Store(&Faults{})
	p.done.Go(p.accept)
	return p, nil
}

// Addr is where clients connect to, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Counts are what the proxy did so far.
func (p *Proxy) Counts() *ProxyCounts { return &p.counts }

// Set changes what the proxy does from now on.
func (p *Proxy) Set(f Faults) { p.faults.Store(&f) }

// CutAll cuts every connection.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		p.counts.ConnectionsCut.Add(1)
		l.cut()
	}
}

// Release delivers the held requests in random order. It returns their number after
// mongod has answered them.
func (p *Proxy) Release(rnd *rand.Rand) int {
	p.mu.Lock()
	held := p.held
	p.held = nil
	p.mu.Unlock()
	rnd.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
	for _, h := range held {
		h.deliver()
	}
	return len(held)
}

// Holding returns how many requests are held.
func (p *Proxy) Holding() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

// Close ends the proxy with all its connections; held requests never arrive.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.mu.Lock()
	for l := range p.links {
		l.cut()
	}
	for _, h := range p.held {
		_ = h.server.Close()
	}
	p.held = nil
	p.mu.Unlock()
	p.done.Wait()
	if err != nil {
		return fmt.Errorf("close the proxy: %w", err)
	}
	return nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		if p.faults.Load().Refuse {
			p.counts.ConnectionsRefused.Add(1)
			_ = client.Close()
			continue
		}
		p.done.Go(func() { p.serve(client) })
	}
}

// serve carries one connection.
func (p *Proxy) serve(client net.Conn) {
	var dialer net.Dialer
	server, err := dialer.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{proxy: p, client: client, server: server}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(l.up)
	both.Go(l.down)
	if p.ctx.Err() != nil { // Close has not seen this link
		l.cut()
	}
	both.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// A link is one connection, in both directions.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	losing         atomic.Pointer[lostAnswer]
}

// lostAnswer is one that the client must not get, and what it gets instead.
type lostAnswer struct {
	to      int32  // id of the request
	instead []byte // nil: the connection is cut
}

// cut ends the link. A pump that is in the middle of a message ends with it.
func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// up carries requests, until the link is cut.
func (l *link) up() {
	defer l.cut()
	for {
		m, err := readMessage(l.client)
		if err != nil {
			return
		}
		f := l.proxy.faults.Load()
		fate, instead := l.decide(f, m)
		switch fate {
		case CutAnswer:
			l.proxy.counts.AnswersCut.Add(1)
			l.losing.Store(&lostAnswer{to: m.id, instead: instead})
		case Drop, Hold:
			if fate == Hold {
				l.proxy.hold(m)
			} else {
				l.proxy.counts.Dropped.Add(1)
			}
			if instead == nil {
				return
			}
			if _, err := l.client.Write(instead); err != nil {
				return
			}
			continue
		case Pass:
		}
		if machine.Pause(l.proxy.ctx, f.transfer(m)) != nil {
			return
		}
		if _, err := l.server.Write(m.raw); err != nil {
			return
		}
	}
}

// decide returns the fate of a request, and what its client gets if the answer
// is lost.
func (l *link) decide(f *Faults, m *message) (fate Fate, instead []byte) {
	command, ok := m.write()
	if !ok {
		return Pass, nil
	}
	l.proxy.counts.Writes.Add(1)
	if f.Decide == nil {
		return Pass, nil
	}
	fate = f.Decide(command)
	if fate != Pass && f.Answer != nil {
		if answer := f.Answer(command); answer != nil {
			instead = m.reply(answer)
		}
	}
	return fate, instead
}

// down carries answers, until the link is cut.
func (l *link) down() {
	defer l.cut()
	for {
		m, err := readMessage(l.server)
		if err != nil {
			return
		}
		if lost := l.losing.Load(); lost != nil && m.to == lost.to {
			if lost.instead == nil {
				return
			}
			m.raw = lost.instead
		}
		f := l.proxy.faults.Load()
		if machine.Pause(l.proxy.ctx, f.Delay+f.transfer(m)) != nil {
			return
		}
		if _, err := l.client.Write(m.raw); err != nil {
			return
		}
	}
}

// transfer is how long a message takes on a slow link.
func (f *Faults) transfer(m *message) time.Duration {
	if f.BytesPerSecond == 0 {
		return 0
	}
	return time.Duration(len(m.raw)) * time.Second / time.Duration(f.BytesPerSecond)
}

// hold keeps a request, with a connection of its own to the server.
func (p *Proxy) hold(m *message) {
	var dialer net.Dialer
	server, err := dialer.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		p.counts.Dropped.Add(1)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, &heldRequest{server: server, message: m.raw})
	p.counts.Held.Add(1)
}

// heldRequest is a request that sits in a socket.
type heldRequest struct {
	server  net.Conn
	message []byte
}

// deliver sends the request, and waits for the answer and drops it.
func (h *heldRequest) deliver() {
	defer h.server.Close()
	if _, err := h.server.Write(h.message); err != nil {
		return // the server is gone: the request never arrives
	}
	_ = h.server.SetReadDeadline(time.Now().Add(deliveryTimeout))
	_, _ = io.ReadFull(h.server, make([]byte, headerLength))
}

// deliveryTimeout bounds the wait for a late request, which may wait for a
// majority that there is not.
const deliveryTimeout = 10 * time.Second

// EveryNth decides the fate of every n-th command; the others pass.
func EveryNth(n int64, fate Fate) func(Command) Fate {
	var seen atomic.Int64
	return func(Command) Fate {
		if seen.Add(1)%n == 0 {
			return fate
		}
		return Pass
	}
}

// Randomly gives a fraction of the commands one of the fates.
func Randomly(fraction float64, fates ...Fate) func(Command) Fate {
	return func(Command) Fate {
		if rand.Float64() < fraction {
			return fates[rand.IntN(len(fates))]
		}
		return Pass
	}
}

// A message of MongoDB's wire protocol.
type message struct {
	raw    []byte // with its header
	id, to int32  // to is the id of the request that it answers
	kind   wiremessage.OpCode
	body   []byte
}

const (
	headerLength = 16
	// maxMessage is what a mongod takes, 48,000,000 bytes, and some more.
	maxMessage = 64 << 20
)

var errMessage = errors.New("this is not MongoDB's wire protocol")

func readMessage(r io.Reader) (*message, error) {
	header := make([]byte, headerLength)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, fmt.Errorf("read a header: %w", err)
	}
	length, id, to, kind, _, _ := wiremessage.ReadHeader(header)
	if length < headerLength || length > maxMessage {
		return nil, errMessage
	}
	raw := make([]byte, length)
	copy(raw, header)
	if _, err := io.ReadFull(r, raw[headerLength:]); err != nil {
		return nil, fmt.Errorf("read a message: %w", err)
	}
	return &message{raw, id, to, kind, raw[headerLength:]}, nil
}

// A Command is a client's command to MongoDB.
type Command struct {
	Name       string
	Body       bson.Raw   // the command without operations that are sent in a section of their own
	Operations []bson.Raw // that is, the documents of an insert, the updates of an update
}

// write returns the command of a message, if it is one that writes. Drivers send its
// document first, and then those of its operations.
func (m *message) write() (Command, bool) {
	_, rest, _ := wiremessage.ReadMsgFlags(m.body)
	section, rest, ok := wiremessage.ReadMsgSectionType(rest)
	if m.kind != wiremessage.OpMsg || !ok || section != wiremessage.SingleDocument {
		return Command{}, false
	}
	doc, rest, _ := wiremessage.ReadMsgSectionSingleDocument(rest)
	first, err := doc.IndexErr(0)
	if err != nil {
		return Command{}, false
	}
	switch first.Key() {
	case "insert", "update", "delete", "findAndModify", "bulkWrite":
	default:
		return Command{}, false
	}
	c := Command{Name: first.Key(), Body: bson.Raw(doc)}
	if section, rest, ok := wiremessage.ReadMsgSectionType(rest); ok && section == wiremessage.DocumentSequence {
		_, operations, _, _ := wiremessage.ReadMsgSectionDocumentSequence(rest)
		for _, one := range operations {
			c.Operations = append(c.Operations, bson.Raw(one))
		}
	}
	for _, name := range []string{"documents", "updates", "deletes"} {
		if array, ok := c.Body.Lookup(name).ArrayOK(); ok {
			operations, _ := array.Values()
			for _, one := range operations {
				c.Operations = append(c.Operations, one.Value)
			}
		}
	}
	return c, true
}

// reply makes the message that answers m with a document.
func (m *message) reply(doc bson.D) []byte {
	body, err := bson.Marshal(doc)
	if err != nil {
		return nil // a test's own document; its client is cut off
	}
	r := wiremessage.AppendHeader(nil, int32(headerLength+4+1+len(body)), 0, m.id, wiremessage.OpMsg)
	r = wiremessage.AppendMsgSectionType(wiremessage.AppendMsgFlags(r, 0), wiremessage.SingleDocument)
	return append(r, body...)
}

// CommandError is the answer of a server that has failed to carry out a
// command, or to learn its outcome.
func CommandError(code int) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "injected by the proxy"}}
}

// WriteErrors is the answer of a server that refuses every operation of a
// command that writes, for the reason of the code.
func WriteErrors(c Command, code int) bson.D {
	errs := make(bson.A, len(c.Operations))
	for i := range errs {
		errs[i] = bson.D{{Key: "index", Value: i}, {Key: "code", Value: code}, {Key: "errmsg", Value: "the proxy refuses it"}}
	}
	return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 0}, {Key: "nModified", Value: 0}, {Key: "writeErrors", Value: errs}}
}
