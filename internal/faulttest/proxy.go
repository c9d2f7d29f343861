package faulttest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/machine"
)

// A Proxy stands between MongoDB's clients and one mongod, and makes the
// network between them as bad as it is told. It acts on whole messages of the
// wire protocol, and chooses among the commands that write.
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
	// Decide says what becomes of a command that writes; nil: it passes. It is
	// called by several goroutines.
	Decide func(Command) Fate
	// Answer is what the client gets in place of an answer that is lost; nil: its
	// connection is cut.
	Answer func(Command) bson.D

	Delay          time.Duration // of every message, on the way back
	BytesPerSecond int           // of each connection, each way; 0: no limit
	Refuse         bool          // connections are closed as soon as they are made
}

// Fate is what becomes of a command.
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

// ProxyCounts are what a Proxy did.
type ProxyCounts struct {
	Writes, AnswersCut, Dropped, Held, Delivered, ConnectionsCut, ConnectionsRefused atomic.Int64
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

// Release lets the requests arrive that are held, in an order that rnd draws,
// and returns how many those were once mongod has answered them.
func (p *Proxy) Release(rnd *rand.Rand) int {
	p.mu.Lock()
	held := p.held
	p.held = nil
	p.mu.Unlock()
	rnd.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
	for _, h := range held {
		h.deliver()
		p.counts.Delivered.Add(1)
	}
	return len(held)
}

// Holding returns how many requests are held.
func (p *Proxy) Holding() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

// Close ends the proxy with all of its connections; what is held never
// arrives.
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

// A link is one connection with its two ways.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	losing         atomic.Pointer[lostAnswer]
}

// lostAnswer is one that the client must not get, and what it gets instead.
type lostAnswer struct {
	to      int32   // id of the request
	instead message // nil: the connection is cut
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
			l.losing.Store(&lostAnswer{to: m.requestID(), instead: instead})
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
		if _, err := l.server.Write(m); err != nil {
			return
		}
	}
}

// decide returns the fate of a request, and what its client gets if the answer
// is lost.
func (l *link) decide(f *Faults, m message) (fate Fate, instead message) {
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
		instead = m.reply(f.Answer(command))
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
		if lost := l.losing.Load(); lost != nil && m.responseTo() == lost.to {
			if lost.instead == nil {
				return
			}
			m = lost.instead
		}
		f := l.proxy.faults.Load()
		if machine.Pause(l.proxy.ctx, f.Delay+f.transfer(m)) != nil {
			return
		}
		if _, err := l.client.Write(m); err != nil {
			return
		}
	}
}

// transfer is how long a message takes on a slow link.
func (f *Faults) transfer(m message) time.Duration {
	if f.BytesPerSecond == 0 {
		return 0
	}
	return time.Duration(len(m)) * time.Second / time.Duration(f.BytesPerSecond)
}

// hold keeps a request, with a connection to the server that nobody else uses.
func (p *Proxy) hold(m message) {
	var dialer net.Dialer
	server, err := dialer.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		p.counts.Dropped.Add(1)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, &heldRequest{server: server, message: m})
	p.counts.Held.Add(1)
}

// heldRequest is a request that sits in a socket.
type heldRequest struct {
	server  net.Conn
	message message
}

// deliver sends the request, and waits for the answer that nobody gets.
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

// Randomly gives a share of the commands one of the fates.
func Randomly(share float64, fates ...Fate) func(Command) Fate {
	return func(Command) Fate {
		if rand.Float64() < share {
			return fates[rand.IntN(len(fates))]
		}
		return Pass
	}
}
