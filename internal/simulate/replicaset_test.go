package simulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// MongoDB is a model of a replica set, to which the real driver speaks over pipes. One
// member is the primary; another may still take itself for it. Its methods may be called
// from any goroutine.
//
//	a client ── pipe ── conn ──▶ Command ──▶ Waiting
//	                                            │ Execute: on the member's data, into the log
//	                                            │ Replicate: the majority follows the log
//	                                            ▼
//	a client ◀── pipe ── conn ◀── Answer, as soon as the write concern is met
//
// What Brim's promises depend on is modelled: how documents compare, match and change;
// guarded upserts, validators and errors; write and read concerns, elections with
// rollback, two primaries; retryable writes; commands that land late; cursors, which are
// no snapshots; expiry. Not modelled are the storage engine, locks and transactions, reads
// of other members, shards, authentication, change streams. A time series is a list of
// documents. The model panics about what it does not know, and its tests compare it with
// a real mongod.
//
// wire.go has the protocol, commands.go, read.go and catalog.go what the commands do,
// match.go, update.go and expression.go the languages of filters, updates and
// aggregations, data.go what a member holds.
type MongoDB struct {
	// MaxDocument is how large a document may get; 0: 16 MiB, as in MongoDB.
	MaxDocument int

	mu        sync.Mutex
	immediate bool
	observe   func(m *message, reply bson.D) // if not nil: called for each command that was executed
	hosts     []member
	primary   int
	term      int64
	deposed   int       // the member that does not know of the last election; -1: none
	hears     time.Time // of the deposed member: since when it has run without a majority

	latest   *data   // of the primary
	majority *data   // what a majority has of that
	tail     []entry // what a majority lacks
	position int64   // how many entries there are in all; those of a rolled back tail count as well

	conns    []*conn
	commands []*Command
	arrivals int64
	uuids    uint64
	cursors  map[int64]*cursor
	cursor   int64
	killed   map[string]bool
}

// member is one of the replica set.
type member struct {
	address string
	stopped bool
	// What a deposed primary holds, and a majority as far as it knows.
	latest, majority *data
}

// NewMongoDB returns an empty replica set with members at the given addresses (HOST:PORT),
// the first of which is the primary. Besides them there is always one that clients do not
// know: two of the members are a majority of three.
func NewMongoDB(addresses ...string) *MongoDB {
	m := &MongoDB{deposed: -1, term: 1, latest: newData(), majority: newData(), cursors: map[int64]*cursor{}, killed: map[string]bool{}}
	for _, a := range addresses {
		m.hosts = append(m.hosts, member{address: a})
	}
	return m
}

// URI of the replica set.
func (m *MongoDB) URI() string {
	s := "mongodb://"
	for i, h := range m.hosts {
		if i > 0 {
			s += ","
		}
		s += h.address
	}
	return s + "/?replicaSet=" + setName
}

const setName = "simulated"

// Members returns how many members clients know.
func (m *MongoDB) Members() int { return len(m.hosts) }

// Immediately makes the model execute, replicate and answer each command as it arrives.
func (m *MongoDB) Immediately() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.immediate = true
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// DialContext implements options.ContextDialer.
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d(ctx, network, address)
}

var errRefused = errors.New("simulate: connection refused")

// Dialer returns what a client connects with. Each incarnation of a process needs a name
// of its own.
func (m *MongoDB) Dialer(client string) options.ContextDialer {
	return dialer(func(_ context.Context, _, address string) (net.Conn, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		host := slices.IndexFunc(m.hosts, func(h member) bool { return h.address == address })
		if host < 0 || m.killed[client] {
			return nil, fmt.Errorf("dial %s: %w", address, errRefused)
		}
		theirs, ours := net.Pipe()
		c := &conn{db: m, client: client, host: host, pipe: ours, out: make(chan []byte, 16)}
		m.conns = append(m.conns, c)
		go c.read()
		go c.write()
		return theirs, nil
	})
}

// far is how long a member takes to answer. It differs, since what comes
// from two of them at one instant has no order.
func far(host int) time.Duration { return time.Duration(103+211*host) * time.Nanosecond }

// Kill closes the connections of a client, which can make no others. Commands that it
// sent may still be executed.
func (m *MongoDB) Kill(client string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.killed[client] = true
	for _, c := range slices.Clone(m.conns) {
		if c.client == client {
			c.close()
		}
	}
}

// Close closes all connections.
func (m *MongoDB) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range slices.Clone(m.conns) {
		c.close()
	}
}

// gone forgets a closed connection, and those of its commands that were executed.
func (m *MongoDB) gone(c *conn) {
	m.conns = slices.DeleteFunc(m.conns, func(o *conn) bool { return o == c })
	m.commands = slices.DeleteFunc(m.commands, func(o *Command) bool { return o.conn == c && (o.executed || o.atOnce()) })
}

// A Command was sent by a client, and not answered yet.
type Command struct {
	Client     string
	Name       string
	Collection string // empty: it is about none
	Host       string // of the member that it was sent to

	message
	conn     *conn
	order    []byte
	arrival  int64
	term     int64 // when it arrived
	executed bool
	begun    *cursor // see Yield
	reply    bson.D
	needs    int64 // position in the log that the majority must reach before the reply
	cut      bool  // an election came before that
}

func (m *MongoDB) arrived(c *conn, msg message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.closed {
		return
	}
	cmd := &Command{Client: c.client, Host: m.hosts[c.host].address, message: msg, conn: c, Name: msg.name()}
	if s, ok := msg.body.Index(0).Value().StringValueOK(); ok {
		cmd.Collection = s
	}
	if s, ok := msg.body.Lookup("collection").StringValueOK(); ok {
		cmd.Collection = s
	}
	m.arrivals++
	cmd.arrival, cmd.term, cmd.order = m.arrivals, m.term, cmd.sortKey()
	m.commands = append(m.commands, cmd)
	switch {
	case m.hosts[c.host].stopped:
	case cmd.atOnce():
		cmd.answerAtOnce()
	case m.immediate:
		cmd.execute()
		m.replicate(len(m.tail))
		cmd.answer()
	}
}

// atOnce reports whether a command is answered as it comes, since nothing depends on it.
func (c *Command) atOnce() bool {
	switch c.Name {
	case "hello", "isMaster", "ismaster", "ping", "endSessions", "killCursors":
		return true
	}
	return false
}

func (c *Command) answerAtOnce() {
	c.execute()
	c.answer()
}

// beat is the name of a heartbeat of a session, which is drawn by chance.
var beat = regexp.MustCompile("[0-9A-V]{26}")

// sortKey leaves out what the driver draws by chance.
func (c *Command) sortKey() []byte {
	key := []byte(c.Client + "\x00" + c.Name + "\x00" + c.Collection + "\x00")
	for _, e := range elements(c.body) {
		switch e.Key() {
		case "lsid", "txnNumber", "$clusterTime":
		case "documents": // in a command with sequences these are few, with an _id drawn by chance
		default:
			key = append(key, e...)
		}
	}
	for _, name := range []string{"documents", "updates", "deletes"} {
		for _, d := range c.sequences[name] {
			key = append(key, d...)
		}
	}
	if c.Collection == "brim_sessions" {
		key = beat.ReplaceAllLiteral(key, nil)
	}
	return key
}

// Waiting returns the commands that were not answered, except those at a stopped member.
// Their order depends on their clients and contents alone, but for equal ones.
func (m *MongoDB) Waiting() []*Command {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.DeleteFunc(slices.Clone(m.commands), func(c *Command) bool { return m.hosts[c.conn.host].stopped })
	slices.SortFunc(out, func(a, b *Command) int {
		if c := bytes.Compare(a.order, b.order); c != 0 {
			return c
		}
		return int(a.arrival - b.arrival)
	})
	return out
}

// Executed reports whether the command was executed.
func (c *Command) Executed() bool { return locked(c, func() bool { return c.executed }) }

// Gone reports whether its client will see no answer. It may still be executed.
func (c *Command) Gone() bool { return locked(c, func() bool { return c.conn.closed }) }

// Overtaken reports whether its member was elected since the command arrived. Of sessions the
// member knows what is in the log, and no more.
func (c *Command) Overtaken() bool {
	return locked(c, func() bool { return c.term < c.conn.db.term && c.conn.host == c.conn.db.primary })
}

// Answerable reports whether the command was executed and its write concern is met, or
// can no longer be, which the answer then says.
func (c *Command) Answerable() bool { return locked(c, c.answerable) }

func locked(c *Command, do func() bool) bool {
	c.conn.db.mu.Lock()
	defer c.conn.db.mu.Unlock()
	return do()
}

func (c *Command) answerable() bool {
	db := c.conn.db
	return c.executed && (c.cut || c.needs <= db.position-int64(len(db.tail)) && c.conn.host != db.deposed || c.needs == 0)
}

// Execute executes the command on the member that it was sent to. One whose client is
// gone is then no longer Waiting.
func (c *Command) Execute() {
	c.conn.db.mu.Lock()
	defer c.conn.db.mu.Unlock()
	c.execute()
}

func (c *Command) execute() {
	db := c.conn.db
	if c.executed || db.hosts[c.conn.host].stopped {
		panic(fmt.Sprintf("simulate: %s was executed, or is at a stopped member", c.Name))
	}
	x := &execution{db: db, host: c.conn.host, message: &c.message, now: time.Now(), begun: c.begun}
	// An election ends what a primary has begun, not what is still in its sockets.
	x.interrupted = !c.conn.closed && c.conn.host == db.primary && c.term < db.term
	c.reply = x.run()
	c.executed, c.needs = true, x.needs
	if db.observe != nil {
		db.observe(&c.message, c.reply)
	}
	if c.conn.closed {
		c.forget()
	}
}

// Yield has a find read its first n documents now, and the others when it is executed: a
// query does not see all documents at one moment. It does nothing on a secondary.
func (c *Command) Yield(n int) {
	db := c.conn.db
	db.mu.Lock()
	defer db.mu.Unlock()
	switch {
	case c.executed || c.begun != nil || c.Name != "find":
		panic(fmt.Sprintf("simulate: %s is no find, or has begun", c.Name))
	case c.conn.host == db.primary || c.conn.host == db.deposed:
		x := &execution{db: db, host: c.conn.host, message: &c.message, now: time.Now()}
		c.begun = x.begin(n)
	}
}

// Answer sends the reply, and panics unless the command is Answerable.
func (c *Command) Answer() {
	c.conn.db.mu.Lock()
	defer c.conn.db.mu.Unlock()
	c.answer()
}

func (c *Command) answer() {
	if !c.answerable() {
		panic(fmt.Sprintf("simulate: %s was not executed, or its write concern is not met", c.Name))
	}
	if c.cut {
		c.unconfirmed(failed(interruptedByElection, "operation was interrupted"))
	}
	c.send()
}

// Refuse answers with an error. If the command was executed, it says that the write
// concern could not be met; then Execute is not allowed any more. Codes 50
// (MaxTimeMSExpired) and 64 (WriteConcernFailed) are what a timeout gives, 91, 11600 and
// 189 what a member gives that ends or steps down.
func (c *Command) Refuse(code int32) {
	c.conn.db.mu.Lock()
	defer c.conn.db.mu.Unlock()
	f := failed(code, "refused by the simulation")
	if c.executed && c.needs > 0 {
		c.unconfirmed(f)
	} else {
		c.executed, c.reply = true, errorReply(f)
	}
	c.send()
}

func (c *Command) unconfirmed(f *failure) {
	if _, failed := field(c.reply, "errmsg"); !failed {
		c.reply = append(c.reply, bson.E{Key: "writeConcernError", Value: f.fields()})
	}
	c.label(f.code)
}

// label marks the reply to a write with a number as one to repeat.
func (c *Command) label(code int32) {
	if _, ok := c.body.Lookup("txnNumber").Int64OK(); ok && retryable[code] {
		c.reply = append(c.reply, bson.E{Key: "errorLabels", Value: bson.A{"RetryableWriteError"}})
	}
}

func (c *Command) send() {
	if code, ok := field(c.reply, "code"); ok {
		c.label(code.(int32))
	}
	c.forget()
	c.conn.send(c.message.reply(marshal(c.reply)))
}

func field(d bson.D, key string) (any, bool) {
	for _, e := range d {
		if e.Key == key {
			return e.Value, true
		}
	}
	return nil, false
}

// Disconnect breaks the command's connection. Unless it was executed it is still
// Waiting, and may be executed or forgotten.
func (c *Command) Disconnect() {
	c.conn.db.mu.Lock()
	defer c.conn.db.mu.Unlock()
	c.conn.close()
}

// Forget drops a command whose connection broke: it will never be executed.
func (c *Command) Forget() {
	c.conn.db.mu.Lock()
	defer c.conn.db.mu.Unlock()
	c.forget()
}

func (c *Command) forget() {
	db := c.conn.db
	db.commands = slices.DeleteFunc(db.commands, func(o *Command) bool { return o == c })
}

// Unreplicated returns how many entries of the log a majority lacks.
func (m *MongoDB) Unreplicated() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.tail)
}

// Replicate brings up to n further entries of the log to the majority.
func (m *MongoDB) Replicate(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replicate(n)
}

func (m *MongoDB) replicate(n int) {
	n = min(n, len(m.tail))
	for _, e := range m.tail[:n] {
		e(m.majority)
	}
	m.tail = slices.Delete(m.tail, 0, n)
}

// append executes an entry on the primary.
func (m *MongoDB) append(e entry) {
	e(m.latest)
	m.tail = append(m.tail, e)
	m.position++
}

// StepDown elects another member as primary, and the former one knows. Of the entries
// that a majority lacks the first few survive, since the new primary has them; the
// others are rolled back.
func (m *MongoDB) StepDown(survive int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.elect(survive)
	m.notice()
}

// Elect is StepDown where the former primary does not know until Notice: it goes on to
// execute commands, and cannot confirm them.
func (m *MongoDB) Elect(survive int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.elect(survive)
}

// TwoPrimaries reports whether a former primary does not know yet that it no longer is one. It
// answers queries as well, from what a majority had when it was deposed.
func (m *MongoDB) TwoPrimaries() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deposed >= 0
}

// electionTimeout is how long a primary that hears from no majority takes itself for one:
// electionTimeoutMillis of a replica set, as MongoDB sets it.
const electionTimeout = 10 * time.Second

// Overdue reports whether a former primary has run for so long without a majority that it would
// step down by itself. One that stands still does so once it runs again.
func (m *MongoDB) Overdue() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deposed >= 0 && !m.hosts[m.deposed].stopped && time.Since(m.hears) > electionTimeout
}

// Notice tells a former primary that it no longer is one.
func (m *MongoDB) Notice() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notice()
}

func (m *MongoDB) elect(survive int) {
	m.notice() // of the election before
	old := &m.hosts[m.primary]
	old.latest, old.majority = m.latest, m.majority.clone()
	m.deposed, m.hears, m.primary = m.primary, time.Now(), (m.primary+1)%len(m.hosts)
	m.term++
	m.latest = m.majority.clone()
	kept := m.tail[:min(survive, len(m.tail))]
	m.tail = nil
	for _, e := range kept {
		m.append(e)
	}
	if m.deposed == m.primary {
		m.notice()
	}
}

func (m *MongoDB) notice() {
	if m.deposed < 0 {
		return
	}
	for _, c := range m.commands {
		if c.conn.host == m.deposed && c.executed && !c.answerable() {
			c.cut = true
		}
	}
	h := &m.hosts[m.deposed]
	h.latest, h.majority = nil, nil
	m.deposed = -1
}

// Crash ends the primary's process: its connections break, and what it had not executed
// it never will. Another member becomes primary, see StepDown; the old one comes back as
// a secondary.
func (m *MongoDB) Crash(survive int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	crashed := m.primary
	for _, c := range slices.Clone(m.conns) {
		if c.host == crashed {
			c.close()
		}
	}
	m.commands = slices.DeleteFunc(m.commands, func(c *Command) bool { return c.conn.host == crashed })
	m.hosts[crashed].stopped = false
	m.elect(survive)
	m.notice()
}

// Stop makes the primary's process stand still: connections stay, nothing is answered.
func (m *MongoDB) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hosts[m.primary].stopped = true
}

// Continue lets all members run again. If another was elected meanwhile (Elect), the one
// that stood still does not know until Notice, or for as long as after an election: it first
// carries out what is in its sockets.
func (m *MongoDB) Continue() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deposed >= 0 && m.hosts[m.deposed].stopped {
		m.hears = time.Now()
	}
	for i := range m.hosts {
		m.hosts[i].stopped = false
	}
	for _, c := range slices.Clone(m.commands) {
		switch {
		case c.atOnce():
			c.answerAtOnce()
		case m.immediate && !c.executed:
			c.execute()
			m.replicate(len(m.tail))
			c.answer()
		}
	}
}

// Expire removes what is too old at a time, as MongoDB's expiry indexes and options of
// time series ask for. Readings of a time series go when none of their hour is needed.
func (m *MongoDB) Expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.latest.names() {
		c := m.latest.collections[name]
		for _, old := range c.expired(now) {
			m.append(func(d *data) { d.remove(name, old.serial) })
		}
	}
}

// Run executes a command on the primary without a connection, as another program would,
// and returns the reply; it does not wait for a write concern.
func (m *MongoDB) Run(database string, command bson.D) bson.Raw {
	m.mu.Lock()
	defer m.mu.Unlock()
	msg := message{body: marshal(append(slices.Clone(command), bson.E{Key: "$db", Value: database}))}
	x := &execution{db: m, host: m.primary, message: &msg, now: time.Now()}
	return marshal(x.run())
}

// Documents returns what a majority holds of a collection, in the order of _id.
func (m *MongoDB) Documents(database, name string) (out []bson.Raw) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.majority.collections[database+"."+name]
	if c == nil {
		return nil
	}
	records := slices.Clone(c.docs)
	slices.SortStableFunc(records, func(a, b record) int { return compare(a.id, b.id) })
	for _, r := range records {
		out = append(out, bson.Raw(r.doc))
	}
	return out
}

// Collection returns the kind and the options of a collection; the kind is empty if a majority
// knows of none.
func (m *MongoDB) Collection(database, name string) (kind string, options bson.Raw) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.majority.collections[database+"."+name]; c != nil {
		kind, options = c.kind, bson.Raw(c.options)
	}
	return kind, options
}

// hello describes the set as a member sees it.
func (m *MongoDB) hello(host int) bson.D {
	hosts := bson.A{}
	for _, h := range m.hosts {
		hosts = append(hosts, h.address)
	}
	writable, term, primary := host == m.primary, m.term, m.primary
	if host == m.deposed {
		writable, term, primary = true, m.term-1, host
	}
	out := bson.D{
		{Key: "helloOk", Value: true}, {Key: "isWritablePrimary", Value: writable}, {Key: "ismaster", Value: writable}, {Key: "secondary", Value: !writable},
		{Key: "setName", Value: setName}, {Key: "setVersion", Value: int32(1)}, {Key: "hosts", Value: hosts},
		{Key: "primary", Value: m.hosts[primary].address}, {Key: "me", Value: m.hosts[host].address},
	}
	if writable {
		var id bson.ObjectID
		id[0], id[11] = 0x7f, byte(term)
		id[10] = byte(term >> 8)
		out = append(out, bson.E{Key: "electionId", Value: id})
	}
	return append(out,
		bson.E{Key: "maxBsonObjectSize", Value: int32(maxDocument)}, bson.E{Key: "maxMessageSizeBytes", Value: int32(48000000)}, bson.E{Key: "maxWriteBatchSize", Value: int32(100000)},
		bson.E{Key: "minWireVersion", Value: int32(0)}, bson.E{Key: "maxWireVersion", Value: int32(17)}, bson.E{Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
		bson.E{Key: "readOnly", Value: false}, bson.E{Key: "localTime", Value: bson.NewDateTimeFromTime(time.Now())},
	)
}

const maxDocument = 16 << 20

// dataOf returns what a member reads and writes.
func (m *MongoDB) dataOf(host int, ofMajority bool) *data {
	switch {
	case host == m.deposed && ofMajority:
		return m.hosts[host].majority
	case host == m.deposed:
		return m.hosts[host].latest
	case ofMajority || host != m.primary:
		return m.majority
	}
	return m.latest
}
