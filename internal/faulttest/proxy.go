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

// A Proxy between MongoDB's clients and a mongod injects network faults. It handles
// whole messages of the wire protocol, and write commands.
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

// Faults configure a Proxy; the zero value forwards everything.
type Faults struct {
	// Decide returns the fate of a write command; nil: it passes. It is called
	// concurrently.
	Decide func(Command) Fate
	// Answer returns the reply that replaces a lost answer. If it is nil or returns nil,
	// the connection is cut.
	Answer func(Command) bson.D

	Delay          time.Duration // of every message from the server
	BytesPerSecond int           // per connection and direction; 0: unlimited
	Refuse         bool          // new connections are closed at once
}

// A Fate is what happens to a command.
type Fate uint8

// The fates.
const (
	// Pass: the command is executed and answered.
	Pass Fate = iota
	// CutAnswer: it is executed, but its answer is lost.
	CutAnswer
	// Drop: it never arrives.
	Drop
	// Hold: it only arrives after Release.
	Hold
)

// ProxyCounts count a Proxy's actions.
type ProxyCounts struct {
	Writes, AnswersCut, Dropped, Held, ConnectionsCut, ConnectionsRefused atomic.Int64
}

// Faults returns how many faults were injected.
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

// Addr is the address for clients, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Counts returns the counts so far.
func (p *Proxy) Counts() *ProxyCounts { return &p.counts }

// Set changes the faults from now on.
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

// Release delivers the held requests in random order. It returns their number once
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

// Close ends the proxy and all its connections; held requests never arrive.
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

// serve forwards one connection.
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

// A link is a forwarded connection, in both directions.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	losing         atomic.Pointer[lostAnswer]
}

// lostAnswer is an answer that the client must not get, and its replacement.
type lostAnswer struct {
	to      int32  // id of the request
	instead []byte // nil: the connection is cut
}

// cut ends the link, even in the middle of a message.
func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// up forwards requests until the link is cut.
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

// decide returns the fate of a request, and the replacement of its answer if
// that is lost.
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

// down forwards answers until the link is cut.
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

// hold keeps a request, with a separate connection to the server.
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

// heldRequest is a request stuck in a socket.
type heldRequest struct {
	server  net.Conn
	message []byte
}

// deliver sends the request, waits for the answer and discards it.
func (h *heldRequest) deliver() {
	defer h.server.Close()
	if _, err := h.server.Write(h.message); err != nil {
		return // the server is gone: the request never arrives
	}
	_ = h.server.SetReadDeadline(time.Now().Add(deliveryTimeout))
	_, _ = io.ReadFull(h.server, make([]byte, headerLength))
}

// deliveryTimeout bounds the wait for a late request, which may wait for a
// majority that does not exist.
const deliveryTimeout = 10 * time.Second

// EveryNth gives every n-th command this fate; others pass.
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

// A message is one of MongoDB's wire protocol.
type message struct {
	raw    []byte // with its header
	id, to int32  // to is the id of the request that it answers
	kind   wiremessage.OpCode
	body   []byte
}

const (
	headerLength = 16
	// maxMessage is a mongod's limit, 48,000,000 bytes, and some more.
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
	Body       bson.Raw   // without operations sent in a separate section
	Operations []bson.Raw // the documents of an insert, or the updates of an update
}

// write returns a message's command if it is a write. Drivers send its document
// first, and then those of its operations.
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

// reply returns the message that answers m with a document.
func (m *message) reply(doc bson.D) []byte {
	body, err := bson.Marshal(doc)
	if err != nil {
		return nil // a test's own document; its client is disconnected
	}
	r := wiremessage.AppendHeader(nil, int32(headerLength+4+1+len(body)), 0, m.id, wiremessage.OpMsg)
	r = wiremessage.AppendMsgSectionType(wiremessage.AppendMsgFlags(r, 0), wiremessage.SingleDocument)
	return append(r, body...)
}

// CommandError is a server's answer that a command failed, or that its outcome
// is unknown.
func CommandError(code int) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "injected by the proxy"}}
}

// WriteErrors is a server's answer that refuses every operation of a write with
// this code.
func WriteErrors(c Command, code int) bson.D {
	errs := make(bson.A, len(c.Operations))
	for i := range errs {
		errs[i] = bson.D{{Key: "index", Value: i}, {Key: "code", Value: code}, {Key: "errmsg", Value: "the proxy refuses it"}}
	}
	return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 0}, {Key: "nModified", Value: 0}, {Key: "writeErrors", Value: errs}}
}
