package doctor

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/store"
)

// sampleTime bounds how long documents of one stream are read to try compressors
// on; it also ends at sampleBytes.
const sampleTime = 2 * time.Second

// CheckSettings asks how MongoDB is set up and returns findings of kind Setting:
// what costs without need, or promises less than it seems to. Each is backed by the
// last samples. Findings of kind Unseen say what could not be examined.
//
//	commands            ─▶ facts ─▶ settingRules ─▶ findings
//	the last samples    ─────┤
//	sample of documents ─────┘ packed with snappy and zstd (compressor.go)
//
// Nothing is changed. It takes some 20 ms, and up to 2 s for each stream. It fails
// if MongoDB does not answer or ctx ends.
func (m *Monitor) CheckSettings(ctx context.Context) ([]Finding, error) {
	f := m.facts()
	if err := f.gather(ctx); err != nil {
		return nil, fmt.Errorf("check settings: %w", err)
	}
	return f.judge(settingRules), nil
}

func (m *Monitor) facts() *facts {
	return &facts{
		server: m, view: m.seen.Load(), database: m.database.Name(), streams: m.config.Streams,
		now: m.config.Now(), sampleTime: sampleTime,
	}
}

// A server answers questions about a MongoDB: a Monitor, or in tests a recording.
type server interface {
	// run runs a command that reads on the database admin.
	run(ctx context.Context, command bson.D) (bson.Raw, error)
	// aggregate returns documents until it has maxBytes of them, also with an error.
	aggregate(ctx context.Context, collection string, pipeline mongo.Pipeline, maxBytes int) ([]bson.Raw, error)
}

func (m *Monitor) aggregate(ctx context.Context, collection string, pipeline mongo.Pipeline, maxBytes int) (out []bson.Raw, err error) {
	const batch = 32 // of full buckets, some MiB
	cursor, err := m.database.Collection(collection).Aggregate(ctx, pipeline, options.Aggregate().SetBatchSize(batch))
	if err != nil {
		return nil, err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	for bytes := 0; bytes < maxBytes && cursor.Next(ctx); bytes += len(cursor.Current) {
		out = append(out, slices.Clone(cursor.Current))
	}
	return out, cursor.Err()
}

// facts are all that the rules judge.
type facts struct {
	server     server
	view       *view // the last samples
	database   string
	streams    []Stream
	now        time.Time
	sampleTime time.Duration // 0: no documents are read

	topology string
	answers  map[string]bson.Raw // by command
	members  []member            // as configured
	states   []memberState
	indexes  map[string][]indexUse // by stream
	trials   map[string]*trial     // by stream
	refusals []refusal
}

// judge applies the rules. A finding without a kind is of kind Setting.
func (f *facts) judge(table []settingRule) []Finding {
	var out []Finding
	for _, r := range table {
		for _, found := range r.find(f) {
			if found.Kind == "" {
				found.Kind, found.Class = Setting, Degrading
			}
			out = append(out, found)
		}
	}
	return out
}

type member struct {
	Host    string  `bson:"host"`
	Arbiter bool    `bson:"arbiterOnly"`
	Votes   float64 `bson:"votes"`
	Delay   float64 `bson:"secondaryDelaySecs"`
}

type memberState struct {
	Name    string    `bson:"name"`
	Health  float64   `bson:"health"`
	State   int       `bson:"state"`
	Text    string    `bson:"stateStr"`
	Applied time.Time `bson:"optimeDate"`
}

// Roles that permit what is asked.
const (
	clusterMonitor = "clusterMonitor" // on admin
	readRole       = "read"           // on the streams' database
)

// A refusal is a question that was not answered, and what its answer is for.
type refusal struct {
	role, command, need string
	err                 error
}

// note records a question that was not answered, unless there is nothing to answer.
func (f *facts) note(role, command, need string, err error) {
	const (
		noReplicationEnabled = 76
		noStandalone         = 51300 // of getDefaultRWConcern
	)
	if err != nil && !hasCode(err, codeNamespaceNotFound, noReplicationEnabled, noStandalone) {
		f.refusals = append(f.refusals, refusal{role: role, command: command, need: need, err: err})
	}
}

func (f *facts) gather(ctx context.Context) error {
	f.answers, f.indexes, f.trials = make(map[string]bson.Raw), make(map[string][]indexUse), make(map[string]*trial)
	for _, command := range []string{"hello", "connectionStatus"} { // which every user may run
		if err := f.run(ctx, command); err != nil {
			return err
		}
	}
	switch {
	case f.text("hello", "msg") == "isdbgrid":
		f.topology = sharded
	case f.text("hello", "setName") != "":
		f.topology = replicaSet
	default:
		f.topology = standalone
	}
	if f.topology != sharded {
		f.ask(ctx, "the history window, checkpoints and the journal", "getParameter", "minSnapshotHistoryWindowInSeconds", "syncdelay", "journalCommitInterval", "wiredTigerEngineRuntimeConfig")
		f.ask(ctx, "the checkpoint interval", "getCmdLineOpts")
	}
	if f.topology == replicaSet {
		var config struct {
			Config struct {
				Members []member `bson:"members"`
			} `bson:"config"`
		}
		var status struct {
			Members []memberState `bson:"members"`
		}
		if f.ask(ctx, "the topology", "replSetGetConfig") {
			f.note(clusterMonitor, "replSetGetConfig", "the topology", bson.Unmarshal(f.answers["replSetGetConfig"], &config))
		}
		if f.ask(ctx, "members that lag", "replSetGetStatus") {
			f.note(clusterMonitor, "replSetGetStatus", "members that lag", bson.Unmarshal(f.answers["replSetGetStatus"], &status))
		}
		f.members, f.states = config.Config.Members, status.Members
	}
	if f.topology != standalone {
		f.ask(ctx, "the default write concern", "getDefaultRWConcern")
	}
	for _, s := range f.streams {
		var err error
		f.indexes[s.Name], err = f.indexUses(ctx, f.collection(s).name)
		f.note(clusterMonitor, "$indexStats", "the indexes of stream "+s.Name, err)
		f.trials[s.Name], err = f.try(ctx, s)
		f.note(readRole, "documents", "another compressor for stream "+s.Name, err)
	}
	return ctx.Err()
}

func (f *facts) run(ctx context.Context, command string, options ...string) error {
	request := bson.D{{Key: command, Value: 1}}
	for _, name := range options {
		request = append(request, bson.E{Key: name, Value: 1})
	}
	raw, err := f.server.run(ctx, request)
	if err == nil {
		err = raw.Validate()
	}
	if err != nil {
		return fmt.Errorf("ask MongoDB for %s: %w", command, err)
	}
	f.answers[command] = raw
	return nil
}

// ask is run for a command that may be refused.
func (f *facts) ask(ctx context.Context, need, command string, options ...string) bool {
	err := f.run(ctx, command, options...)
	f.note(clusterMonitor, command, need, err)
	return err == nil
}

// number returns a number from an answer; NaN: there is none.
func (f *facts) number(command string, path ...string) float64 {
	return number(f.answers[command], path...)
}

func (f *facts) text(command string, path ...string) string {
	return text(f.answers[command], path...)
}

// isFalse reports whether an answer has a boolean that is false.
func (f *facts) isFalse(command string, path ...string) bool {
	v, _ := lookUp(f.answers[command], path...)
	is, ok := v.BooleanOK()
	return ok && !is
}

// collection is the one that a stream is written to, as it was last sampled.
func (f *facts) collection(s Stream) collection { return f.view.last.collections[s.Name] }

// value is a figure of the last sample; NaN: unknown.
func (f *facts) value(k key) float64 { return f.view.last.server.value(k) }

// growth is how much a counter has grown since the sample before; if there is none,
// since the server's start.
func (f *facts) growth(k key) float64 {
	if f.view.rates.serverWhy == "" {
		return f.value(k) - f.view.before.value(k)
	}
	return f.value(k)
}

// rate is a counter's growth per second.
func (f *facts) rate(k key) float64 {
	switch {
	case f.view.rates.serverWhy == "":
		return f.growth(k) / f.view.rates.over.Seconds()
	case f.view.last.server == nil:
		return math.NaN()
	}
	return f.value(k) / f.view.last.server.uptime
}

// period describes what growth and rate are of, as in "in the last 10s".
func (f *facts) period() string {
	switch {
	case f.view.rates.serverWhy == "":
		return "in the last " + config.FormatDuration(f.view.rates.over.Round(time.Second/10))
	case f.view.last.server == nil:
		return ""
	}
	return "on average since the server's start " + config.FormatDuration(coarse(time.Duration(f.view.last.server.uptime*float64(time.Second)))) + " ago"
}

// coarse rounds a long time.
func coarse(d time.Duration) time.Duration {
	if d >= time.Hour {
		return d.Round(time.Minute)
	}
	return d.Round(time.Second)
}

// size writes bytes, as in 1.5 GiB.
func size(bytes float64) string {
	if math.IsNaN(bytes) || bytes < 0 {
		return "an unknown number of bytes"
	}
	return humanize.IBytes(uint64(bytes))
}

// A settingRule examines one group of settings.
type settingRule struct {
	name string
	find func(*facts) []Finding
}

// settingRules are shown in this order. To add one, add a row.
var settingRules = []settingRule{
	{"history window", historyWindow},
	{"topology", topology},
	{"arbiters", arbiters},
	{"members", members},
	{"flow control", flowControl},
	{"voters", voters},
	{"default write concern", defaultConcern},
	{"majority without journal", majorityJournal},
	{"waits for the majority", majorityWaits},
	{"journal", journal},
	{"cache and memory", cacheAgainstMemory},
	{"cache and working set", cacheAgainstWork},
	{"second checkpoint timer", secondTimer},
	{"parameter that is not obeyed", ignoredParameter},
	{"checkpoint interval", checkpointInterval},
	{"compressor", compressor},
	{"readings in an update", fewReadings},
	{"indexes", unusedIndexes},
	{"unseen", unseenSettings},
}

// advice is a single finding.
func advice(name, cause, evidence, action, cost string) []Finding {
	return []Finding{{Name: "setting_" + name, Cause: cause, Evidence: evidence, Action: action, Cost: cost}}
}

// historyWindow: a replica set keeps every replaced version of a document for as
// long as the window, and each append to a bucket makes one.
func historyWindow(f *facts) []Finding {
	const name = "minSnapshotHistoryWindowInSeconds"
	window := f.number("getParameter", name)
	buckets := slices.ContainsFunc(f.streams, func(s Stream) bool { return s.Storage == store.Bucket })
	if f.topology != replicaSet || !buckets || !(window > 0) {
		return nil
	}
	evidence := fmt.Sprintf("it is %s s, so every append leaves the bucket's old version behind for as long", plain(window))
	if rate := f.rate(historyInserts); !math.IsNaN(rate) {
		evidence += fmt.Sprintf("; %s old versions a second were written to the history store %s, whose file takes %s",
			round(rate), f.period(), size(f.value("history_store_bytes")))
	}
	return advice("history_window", "history window: "+name+" is "+plain(window)+", which bucket streams pay for and do not need", evidence,
		"in mongosh, on each member: db.adminCommand({setParameter: 1, "+name+": 0}); and in mongod.conf, so that it stays: setParameter: {"+name+": 0}",
		"no restart. Reads that ask for a snapshot of the past (readConcern snapshot with atClusterTime) no longer find it, "+
			"nor do snapshot reads that take longer than the server keeps history for itself; Brim makes none")
}

func topology(f *facts) []Finding {
	if f.topology != standalone {
		return nil
	}
	return advice("topology", "topology: a standalone server, no replica set",
		"hello names no set. A majority is this one server, interrupted writes are not retried by the driver, and there are no change streams, "+
			"with which brim recompress and brim migrate follow live writes",
		"in mongod.conf: replication: {replSetName: rs0}; restart; then once in mongosh: rs.initiate()",
		"a restart; disk for the oplog (5 % of the free space unless oplogSizeMB says less); each write goes to the oplog too: "+
			"two thirds of the appends a second, where it was measured. Set minSnapshotHistoryWindowInSeconds to 0 with it")
}

// voting returns the members that vote, how many of them hold data, and what a
// majority is.
func (f *facts) voting() (voters, holding, majority int) {
	for _, m := range f.members {
		if m.Votes != 0 {
			voters++
			if !m.Arbiter {
				holding++
			}
		}
	}
	return voters, holding, voters/2 + 1
}

// arbiters vote and hold no data: with one of three, a majority needs every member
// that holds data.
func arbiters(f *facts) []Finding {
	var names []string
	for _, m := range f.members {
		if m.Arbiter {
			names = append(names, m.Host)
		}
	}
	if len(names) == 0 {
		return nil
	}
	voters, holding, majority := f.voting()
	effect := fmt.Sprintf("%d more than a majority can be away", holding-majority)
	if holding <= majority {
		effect = "when one of them is away no write is acknowledged by a majority, and history is kept until it is back, which fills the cache"
	}
	return advice("topology", "topology: an arbiter in place of a member that holds data",
		fmt.Sprintf("%s holds nothing; a majority is %d of %d votes, and %d members hold data: %s", join(", ", names...), majority, voters, holding, effect),
		fmt.Sprintf("add a member that holds data: in mongosh rs.remove(%q), then rs.add(\"HOST:PORT\")", names[0]),
		"a machine with the disk for all data; the first copy reads all of it from another member; no restart")
}

// leastLag is where a member starts to lag. Members of an idle set exchange
// heartbeats every two seconds and write something every ten.
const leastLag = 30 * time.Second

// members that are away or behind.
func members(f *facts) []Finding {
	const primary, secondary, arbiter = 1, 2, 7 // states
	var newest time.Time
	for _, m := range f.states {
		if m.State == primary {
			newest = m.Applied
		}
	}
	var behind []string
	for _, m := range f.states {
		var delay time.Duration // on purpose
		if i := slices.IndexFunc(f.members, func(c member) bool { return c.Host == m.Name }); i >= 0 {
			delay = time.Duration(f.members[i].Delay * float64(time.Second))
		}
		switch lag := newest.Sub(m.Applied); {
		case m.State == primary, m.State == arbiter && m.Health > 0:
		case m.Health == 0:
			behind = append(behind, m.Name+" is away")
		case m.State != secondary:
			behind = append(behind, m.Name+" is "+strings.ToLower(m.Text))
		case !newest.IsZero() && lag-delay >= leastLag:
			behind = append(behind, m.Name+" is "+config.FormatDuration(coarse(lag))+" behind")
		}
	}
	if len(behind) == 0 {
		return nil
	}
	return advice("topology", "topology: members are away or behind",
		join(", ", behind...)+". Writes wait for the majority, and what a majority does not have yet is kept as history, which fills the cache",
		"on that member: check that mongod runs, and brim doctor --mongo-uri mongodb://MEMBER/?directConnection=true; in mongosh: rs.printSecondaryReplicationInfo()",
		"none to check; a member further behind than the oplog reaches must copy all data again")
}

// leastHeldBack is for how many seconds in a second writes must have waited: less
// is the cost of taking a ticket.
const leastHeldBack = 0.05

// flowControl: the primary admits few writes while the majority is behind. No
// signal of its own engine or disk shows that.
func flowControl(f *facts) []Finding {
	waited := f.rate(flowControlSeconds)
	if f.topology != replicaSet || !(waited >= leastHeldBack) {
		return nil
	}
	return advice("topology", "topology: the primary holds writes back until the majority has caught up (flow control)",
		fmt.Sprintf("writes waited for %s ms in each second to be admitted, all of them added up, %s; it lets in %s a second now",
			round(waited/millis), f.period(), round(f.value(flowControlLimit))),
		"find the member that is behind, and why: rs.printSecondaryReplicationInfo() in mongosh, and brim doctor --mongo-uri mongodb://MEMBER/?directConnection=true; "+
			"its disk and CPUs have to keep up with the primary's",
		"none to check. Switching it off (enableFlowControl: false) lets history gather in the primary's cache instead")
}

// voters in an even number survive no more failures than one fewer.
func voters(f *facts) []Finding {
	voters, _, majority := f.voting()
	if voters == 0 || voters%2 != 0 {
		return nil
	}
	effect := "none can be away"
	if voters > 2 {
		effect = fmt.Sprintf("%d can be away, as with %d", voters-majority, voters-1)
	}
	return advice("topology", "topology: an even number of votes",
		fmt.Sprintf("%d members vote, a majority is %d: %s", voters, majority, effect),
		"add a member that holds data: in mongosh rs.add(\"HOST:PORT\"); or take one's vote: "+
			"cfg = rs.conf(); cfg.members[N].votes = 0; cfg.members[N].priority = 0; rs.reconfig(cfg)",
		"a machine for the further member; or a member that cannot become primary. No restart")
}

// asks is what Brim asks for, whatever the defaults are.
const asks = "Brim asks for w: majority and j: true itself"

// defaultConcern: what writes promise that name no write concern.
func defaultConcern(f *facts) []Finding {
	const command = "getDefaultRWConcern"
	if f.answers[command] == nil {
		return nil
	}
	w := "1" // a set with an arbiter that makes a majority hard to reach reports none
	if v, ok := lookUp(f.answers[command], "defaultWriteConcern", "w"); ok {
		if w, ok = v.StringValueOK(); !ok {
			w = plain(f.number(command, "defaultWriteConcern", "w"))
		}
	}
	if w == "majority" {
		return nil
	}
	source := "the server's own, since with its arbiters no majority is left when one member is away"
	if f.text(command, "defaultWriteConcernSource") == "global" {
		source = "set for the whole set (setDefaultRWConcern)"
	}
	return advice("write_concern", "write concern: writes that name none are acknowledged with w: "+w,
		fmt.Sprintf("the default is %s. %s, so its readings are safe; what other programs write to this MongoDB may be lost with one member%s", source, asks, f.waited()),
		`in mongosh: db.adminCommand({setDefaultRWConcern: 1, defaultWriteConcern: {w: "majority"}})`,
		"other programs' writes wait for a majority; no restart; it holds for the whole set")
}

// majorityJournal: a majority that need not have written to its journal.
func majorityJournal(f *facts) []Finding {
	if !f.isFalse("replSetGetConfig", "config", "writeConcernMajorityJournalDefault") {
		return nil
	}
	return advice("write_concern", "write concern: writeConcernMajorityJournalDefault is false: a majority may lose what it has acknowledged",
		fmt.Sprintf("members acknowledge what is only in their memory; one power failure of several takes it away. %s, so its readings are safe; other programs' writes are not%s",
			asks, f.waited()),
		"in mongosh: cfg = rs.conf(); cfg.writeConcernMajorityJournalDefault = true; rs.reconfig(cfg)",
		"other programs' majority writes wait for a sync of the journal, some half a millisecond where it was measured; no restart")
}

// waits are the writes that waited for other members, and for how many ms each.
func (f *facts) waits() (number, each float64) {
	if number = f.growth(majorityWaitsTotal); !(number > 0) {
		return 0, 0
	}
	return number, f.growth(majorityWaitSeconds) / number / millis
}

// waited describes how long writes waited for others.
func (f *facts) waited() string {
	number, each := f.waits()
	if number == 0 {
		return ""
	}
	return fmt.Sprintf("; %s writes waited for others %s, %s ms each", round(number), f.period(), round(each))
}

const (
	// longWait in ms is where waiting for the majority is most of a write: a sync of
	// the journal there and a round trip take a few milliseconds.
	longWait = 50
	// fewWaits say nothing: a starting server waits for the others to start.
	fewWaits = 100
)

// majorityWaits: writes that wait long for the other members.
func majorityWaits(f *facts) []Finding {
	number, each := f.waits()
	if f.topology != replicaSet || number < fewWaits || each < longWait {
		return nil
	}
	others := "the other members"
	if len(f.members) == 1 {
		others = "this server's own journal, since it is the only member"
	}
	return advice("write_concern", "write concern: writes wait long for their acknowledgement",
		fmt.Sprintf("%s writes waited %s ms each for %s %s; Brim's acks of stored wait for it, those of journaled do not", round(number), round(each), others, f.period()),
		"check the members' disks and the network between them (brim doctor at each); place members near each other; or let the daemon acknowledge earlier: --ack journaled",
		"with --ack journaled a reading is on the daemon's own disk, and not yet with a majority, when the sensor gets its answer")
}

// journal: whether there is one, and how often it is synced on its own.
func journal(f *facts) []Finding {
	if f.isFalse("getCmdLineOpts", "parsed", "storage", "journal", "enabled") {
		return advice("journal", "journal: it is switched off (storage.journal.enabled: false)",
			"the options of the running server say so: after a crash all writes since the last checkpoint are lost, and it refuses j: true, which Brim asks for",
			"in mongod.conf: leave storage.journal.enabled out; restart", "a restart; the journal's writes to the disk")
	}
	const commitInterval = 100 // MongoDB's own, in ms
	ms := f.number("getParameter", "journalCommitInterval")
	if math.IsNaN(ms) || ms == commitInterval {
		return nil
	}
	evidence := "it is " + plain(ms) + " ms, which writes with j: true do not wait for: " + asks
	if ms > commitInterval {
		evidence = "it is " + plain(ms) + " ms, so other programs' writes without j: true lose up to " + plain(ms) + " ms in a crash; " + asks
	}
	if rate := f.rate(journalSyncs); !math.IsNaN(rate) {
		evidence += fmt.Sprintf("; the journal was synced %s times a second %s", round(rate), f.period())
	}
	return advice("journal", fmt.Sprintf("journal: commitIntervalMs is %s, MongoDB's own is %d", plain(ms), commitInterval), evidence,
		fmt.Sprintf("in mongosh, on each member: db.adminCommand({setParameter: 1, journalCommitInterval: %d}); and in mongod.conf leave storage.journal.commitIntervalMs out", commitInterval),
		"no restart")
}

// mostCache is the part of the memory above which a cache leaves too little for
// connections, sorts, the file system, and other programs.
const mostCache = 0.8

// cacheSizeAction sets the cache's size now and for the next start.
func cacheSizeAction(bytes float64) string {
	mib := math.Floor(bytes / mebi)
	return fmt.Sprintf(`in mongosh: db.adminCommand({setParameter: 1, wiredTigerEngineRuntimeConfig: "cache_size=%sM"}); and in mongod.conf: `+
		`storage: {wiredTiger: {engineConfig: {cacheSizeGB: %s}}}; for a daemon's own mongod: brim serve --mongod-cache-size %sMiB`,
		plain(mib), plain(math.Round(mib/1024*100)/100), plain(mib))
}

// cacheAgainstMemory: a cache for which the machine is too small.
func cacheAgainstMemory(f *facts) []Finding {
	cache, memory := f.value(cacheMax), f.view.last.memory
	if memory == 0 || !(cache > mostCache*memory) {
		return nil
	}
	return advice("cache", "cache: larger than the machine's memory allows",
		fmt.Sprintf("the cache may grow to %s of the %s that there are (%s used now), and mongod uses %s in all: when it is full the system swaps, or kills mongod",
			size(cache), size(memory), size(f.value(cacheUsed)), size(f.value("resident_bytes"))),
		cacheSizeAction(defaultCache(memory)), "no restart; buckets that are appended to and no longer fit are read from the disk again")
}

// Bounds from which on a cache is too small for the work.
const (
	fullCache    = 0.75    // of it is used: the engine evicts from 80 % on
	muchRead     = 1 << 20 // bytes/s
	muchEvicted  = 10.0    // pages/s
	clientsEvict = 1.0     // pages/s by application threads
	chanceEvict  = 100.0   // pages in all: so many are chance
	settled      = 10.0    // s after its start a server has read what it starts with
)

// causeSmallCache is the cause of the finding that a cache is too small, which a
// diagnosis of the cache finds as well.
const causeSmallCache = "cache: too small for the working set"

// cacheAgainstWork: pages that are evicted only to be read again.
func cacheAgainstWork(f *facts) []Finding {
	if s := f.view.last.server; s == nil || f.view.rates.serverWhy != "" && s.uptime < settled {
		return nil
	}
	cache, used, memory := f.value(cacheMax), f.value(cacheUsed), f.view.last.memory
	read, evicted := f.rate("cache_read_bytes_total"), f.rate(appEvictions)
	own := defaultCache(memory)
	mayGrow := memory > 0 && own >= leastHeadroom*cache
	// Where appends make pages dirty faster than they are written, they are evicted,
	// and read again, long before a small cache is full.
	short := used/cache >= fullCache ||
		mayGrow && f.rate("cache_evicted_pages_total modified")+f.rate("cache_evicted_pages_total unmodified") >= muchEvicted
	helps := evicted >= clientsEvict && f.growth(appEvictions) > chanceEvict
	if !(short && read >= muchRead) && !helps {
		return nil
	}
	evidence := fmt.Sprintf("%s of %s are used (%s %%); %s a second were read into it again and application threads evicted %s pages a second %s",
		size(used), size(cache), round(percent*used/cache), size(read), round(evicted), f.period())
	action := "give the machine more memory; or keep the working set smaller: a shorter --granularity, so that open buckets are smaller, or more readings per update (a longer --flush-max)"
	cost := "memory; or more documents, or readings that are stored later"
	switch {
	case memory == 0:
		action = "set storage.wiredTiger.engineConfig.cacheSizeGB to half of the machine's memory less 1 GiB, if it is smaller; or " + action
	case mayGrow:
		evidence += fmt.Sprintf("; the machine has %s, of which mongod would take %s by itself", size(memory), size(own))
		action, cost = cacheSizeAction(own), size(own-cache)+" of memory that other programs on the machine then lack; no restart"
	default:
		evidence += fmt.Sprintf("; the machine's %s allow no more", size(memory))
	}
	return advice("cache", causeSmallCache, evidence, action, cost)
}

const (
	ownInterval  = 60.0  // s from one checkpoint to the next, by default
	mostInterval = 300.0 // the longest that is published as sensible
)

func (f *facts) obeysSyncDelay() bool {
	return majorOf(f.view.info.version) >= obeysSyncDelayFrom
}

// interval is the time from one checkpoint to the next in s that is in force; NaN:
// unknown.
func (f *facts) interval() float64 {
	if f.obeysSyncDelay() {
		if delay := f.number("getParameter", "syncdelay"); !(delay < 0) {
			return delay
		}
		return ownInterval
	}
	seconds := f.number("getCmdLineOpts", "parsed", "storage", "syncPeriodSecs")
	if math.IsNaN(seconds) && f.answers["getCmdLineOpts"] != nil {
		return ownInterval
	}
	return seconds
}

// checkpointAdvice is about the interval, with what sets it to some seconds.
func (f *facts) checkpointAdvice(seconds float64, cause, evidence, cost string) []Finding {
	action, restart := "in mongod.conf: storage: {syncPeriodSecs: "+plain(seconds)+"}", "no restart"
	if f.obeysSyncDelay() {
		action = "in mongosh, on each member: db.adminCommand({setParameter: 1, syncdelay: " + plain(seconds) + "}); and so that it stays, " + action
	} else {
		action, restart = action+" on each member, and restart (this version does not obey setParameter syncdelay)", "a restart"
	}
	return advice("checkpoint", "checkpoints: "+cause, evidence+f.checkpointsTaken(), action, restart+cost)
}

// checkpointsTaken describes the checkpoints that were counted.
func (f *facts) checkpointsTaken() string {
	n := f.growth(checkpoints)
	if math.IsNaN(n) {
		return ""
	}
	text := fmt.Sprintf("; %s checkpoints were taken %s", round(n), f.period())
	if n > 0 {
		text += fmt.Sprintf(", the last took %s s", round(f.value(checkpointLast)))
	}
	return text
}

// secondTimer: the storage engine can be told to take checkpoints by itself, beside
// those that mongod takes.
func secondTimer(f *facts) []Finding {
	where, timer := "storage.wiredTiger.engineConfig.configString", engineTimer(f.text("getCmdLineOpts", "parsed", "storage", "wiredTiger", "engineConfig", "configString"))
	action, cost := "take checkpoint=(…) out of storage.wiredTiger.engineConfig.configString and restart; the one timer is storage.syncPeriodSecs", "a restart"
	if timer == "" {
		where, timer = "the parameter wiredTigerEngineRuntimeConfig", engineTimer(f.text("getParameter", "wiredTigerEngineRuntimeConfig"))
		action, cost = `in mongosh: db.adminCommand({setParameter: 1, wiredTigerEngineRuntimeConfig: "checkpoint=(wait=0,log_size=0)"})`, "no restart"
	}
	if timer == "" {
		return nil
	}
	every := ""
	if s := f.interval(); !math.IsNaN(s) {
		every = ", every " + plain(s) + " s"
	}
	return advice("checkpoint", "checkpoints: a second timer takes them, checkpoint=("+timer+")",
		"it is set in "+where+"; mongod's own timer goes on beside it"+every+f.checkpointsTaken(), action, cost)
}

// engineTimer is what is inside checkpoint=(…) of the engine's settings if it makes
// the engine take checkpoints: after a time, or so many bytes of journal.
func engineTimer(config string) string {
	inside := regexp.MustCompile(`checkpoint=\(([^)]*)`).FindStringSubmatch(config)
	if len(inside) == 0 || !regexp.MustCompile(`(^|,)\s*(wait|log_size)=0*[1-9]`).MatchString(inside[1]) {
		return ""
	}
	return inside[1]
}

// ignoredParameter: before MongoDB 7 the parameter is reported and not obeyed.
func ignoredParameter(f *facts) []Finding {
	set, interval := f.number("getParameter", "syncdelay"), f.interval()
	if f.obeysSyncDelay() || math.IsNaN(set) || math.IsNaN(interval) || set == interval {
		return nil
	}
	out := f.checkpointAdvice(set, "the parameter syncdelay says "+plain(set)+" s, and this version does not obey it",
		fmt.Sprintf("in force are %s s, from storage.syncPeriodSecs or by default", plain(interval)), "; or none")
	out[0].Action += "; or reset the parameter: db.adminCommand({setParameter: 1, syncdelay: " + plain(interval) + "})"
	return out
}

// Bounds from which on an interval is too short.
const (
	mostOfTheTime = 1.0 / 3 // of it a checkpoint is running
	muchWritten   = 1 << 20 // bytes/s by checkpoints
	rewritten     = 2.0     // times the journal's bytes
)

// checkpointInterval: none are taken, or so rarely that recovery takes long, or they
// run most of the time, or write the same pages again and again.
func checkpointInterval(f *facts) []Finding {
	interval := f.interval()
	each := f.value(checkpointLast)
	if n := f.growth(checkpoints); n >= 2 {
		each = f.growth("checkpoint_seconds_total") / n
	}
	written, logged := f.rate("block_checkpoint_written_bytes_total"), f.rate("journal_written_bytes_total")
	grew := ""
	if !math.IsNaN(logged) {
		grew = fmt.Sprintf("; the journal grew by %s a second %s", size(logged), f.period())
	}
	running := each / (each + interval) // part of the time in which one does
	longer := min(max(math.Ceil(4*each/30)*30, ownInterval), mostInterval)
	replayed := fmt.Sprintf("; after a crash the journal of up to %s s is replayed", plain(longer))
	switch {
	case interval == 0:
		return f.checkpointAdvice(ownInterval, "the interval is 0, so there are none but those that are asked for",
			"the journal is kept since the last one and is replayed after a crash; the cache fills with changes"+grew, "; the checkpoints' writes")
	case interval > mostInterval:
		if grew != "" {
			grew += fmt.Sprintf(", so up to %s are replayed after a crash, during which nothing is stored", size(logged*interval))
		}
		return f.checkpointAdvice(ownInterval, "the interval is so long that recovery from a crash takes long",
			"it is "+plain(interval)+" s"+grew, "; pages that are changed again and again are written more often")
	case running >= mostOfTheTime && longer > interval: // else it is the disk or the CPU, and not the interval
		return f.checkpointAdvice(longer, "the interval is too short, one is running most of the time",
			fmt.Sprintf("one takes %s s and begins %s s after the last one ended, so it runs %s %% of the time", round(each), plain(interval), round(percent*running)),
			replayed+", and each checkpoint writes more at once")
	case !(running >= mostOfTheTime) && interval < ownInterval && written >= muchWritten && written >= rewritten*logged:
		return f.checkpointAdvice(ownInterval, "the interval is short, the same pages are written again and again",
			fmt.Sprintf("every %s s; checkpoints wrote %s a second, %s times what the journal did, %s: each writes every bucket that got an append",
				plain(interval), size(written), round(written/logged), f.period()), replayed)
	}
	return nil
}

// An indexUse is how one index is used, on all shards together.
type indexUse struct {
	name   string
	key    []string // fields
	used   float64  // times
	since  time.Time
	hidden bool
	bound  bool // it does more than speed up queries: it is unique, or removes old documents
}

// indexUses asks how often each index was used.
func (f *facts) indexUses(ctx context.Context, collection string) ([]indexUse, error) {
	shards, err := f.server.aggregate(ctx, collection, mongo.Pipeline{{{Key: "$indexStats", Value: bson.D{}}}}, math.MaxInt)
	if err != nil {
		return nil, err
	}
	var out []indexUse
	for _, raw := range shards {
		var s struct {
			Name string `bson:"name"`
			Key  bson.D `bson:"key"`
			Use  struct {
				Times float64   `bson:"ops"`
				Since time.Time `bson:"since"`
			} `bson:"accesses"`
			Spec struct {
				Unique bool          `bson:"unique"`
				Hidden bool          `bson:"hidden"`
				Expire bson.RawValue `bson:"expireAfterSeconds"`
			} `bson:"spec"`
		}
		if err := bson.Unmarshal(raw, &s); err != nil {
			return nil, fmt.Errorf("read an index of %s: %w", collection, err)
		}
		i := slices.IndexFunc(out, func(u indexUse) bool { return u.name == s.Name })
		if i < 0 {
			u := indexUse{name: s.Name, since: s.Use.Since, hidden: s.Spec.Hidden, bound: s.Spec.Unique || !s.Spec.Expire.IsZero()}
			for _, field := range s.Key {
				u.key = append(u.key, field.Key)
			}
			out, i = append(out, u), len(out)
		}
		out[i].used += s.Use.Times
		if s.Use.Since.After(out[i].since) {
			out[i].since = s.Use.Since // what holds for all shards
		}
	}
	return out, nil
}

// leastUnused is how long an index must have been unused: by then a daily query has
// run once.
const leastUnused = 24 * time.Hour

var (
	// needed are indexes that Brim makes, and MongoDB's own.
	needed = []string{"_id_", "brim_retention", "brim_sensor_time"}
	// appended are the fields of a bucket's document that an append changes.
	appended = []string{"count", "bytes", "last", "first", "measurements", "stats", "w", "full"}
)

// unusedIndexes cost each write and speed up nothing.
func unusedIndexes(f *facts) []Finding {
	var out []Finding
	for _, s := range f.streams {
		for _, use := range f.indexes[s.Name] {
			idle := f.now.Sub(use.since)
			if slices.Contains(needed, use.name) || use.bound || use.used > 0 || use.since.IsZero() || idle < leastUnused {
				continue
			}
			collection := fmt.Sprintf("db.getCollection(%q)", f.collection(s).name)
			action := fmt.Sprintf("in mongosh: %s.hideIndex(%q); and when nothing has got slower in some days: %s.dropIndex(%q)", collection, use.name, collection, use.name)
			if use.hidden {
				action = fmt.Sprintf("it is hidden already; in mongosh: %s.dropIndex(%q)", collection, use.name)
			}
			upkeep := "each new document is entered in it; appends leave it alone"
			if s.Storage != store.Bucket {
				upkeep = "each new bucket of the collection is entered in it"
			}
			for _, field := range use.key {
				if first, _, _ := strings.Cut(field, "."); s.Storage == store.Bucket && slices.Contains(appended, first) {
					upkeep = "each append changes " + first + ", so its entries are written again with each"
				}
			}
			out = append(out, advice("index", fmt.Sprintf("index: nothing uses %s of stream %s", use.name, s.Name),
				fmt.Sprintf("used 0 times in %s, since %s; it takes %s, and %s",
					config.FormatDuration(coarse(idle)), use.since.UTC().Format("2006-01-02 15:04"), size(f.collection(s).indexes[use.name]), upkeep),
				action, "hiding needs no restart and is undone by unhideIndex; once dropped it must be built again from all documents. "+
					"Use is counted on this member since its start: queries of other members do not show")...)
		}
	}
	return out
}

// unseenSettings reports what could not be examined: a finding for each role that
// would help, and one for each answer that no role gives. What the samples lack is
// reported by Diagnose.
func unseenSettings(f *facts) []Finding {
	var out []Finding
	add := func(cause, evidence, action, cost string) {
		out = append(out, Finding{Name: "unseen_settings", Kind: Unseen, Class: Unknown, Cause: cause, Evidence: evidence, Action: action, Cost: cost})
	}
	if f.topology == sharded {
		add("settings of the shards: a mongos has no storage engine", "history window, checkpoints, journal, cache and members were not examined",
			"brim doctor --mongo-uri mongodb://MEMBER/?directConnection=true, for a member of each shard", "none, it only reads")
	}
	var status struct {
		Info struct {
			Users []struct {
				User string `bson:"user"`
				DB   string `bson:"db"`
			} `bson:"authenticatedUsers"`
		} `bson:"authInfo"`
	}
	user, db := "USER", "admin"
	if bson.Unmarshal(f.answers["connectionStatus"], &status) == nil && len(status.Info.Users) > 0 {
		user, db = status.Info.Users[0].User, status.Info.Users[0].DB
	}
	for _, role := range []struct{ name, of string }{{clusterMonitor, "admin"}, {readRole, cmp.Or(f.database, "DATABASE")}} {
		var commands, needs []string
		for _, r := range f.refusals {
			if r.role == role.name && NotPermitted(r.err) && !slices.Contains(needs, r.need) {
				commands, needs = append(commands, r.command), append(needs, r.need)
			}
		}
		if len(commands) > 0 {
			add(fmt.Sprintf("settings: the user is not allowed to run %s; the role %s permits it", join(", ", slices.Compact(commands)...), role.name), "not examined: "+join(", ", needs...),
				fmt.Sprintf("in mongosh: db.getSiblingDB(%q).grantRolesToUser(%q, [{role: %q, db: %q}])", db, user, role.name, role.of), "the user may read more; no restart")
		}
	}
	for _, r := range f.refusals {
		if !NotPermitted(r.err) {
			add(r.need+": "+r.command+" was not answered", r.err.Error(), "try again; a hosted MongoDB may not answer it at all", "none, it only reads")
		}
	}
	return out
}
