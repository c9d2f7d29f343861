package doctor

import (
	"context"
	"fmt"
	"math"
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

// sampleTime bounds how long documents of a stream are read to try compressors
// on; sampleBytes bounds them as well.
const sampleTime = 2 * time.Second

// CheckSettings asks how MongoDB is set up and returns findings of kind Setting:
// settings that cost performance needlessly, or promise less than they seem to, as
// the last samples confirm. Findings of kind Unseen say what could not be examined.
//
//	commands            ─▶ facts ─▶ settingRules ─▶ findings
//	the last samples    ─────┤
//	sample of documents ─────┘ packed with snappy and zstd (compressor.go)
//
// Nothing is changed. It takes some 20 ms, plus up to 2 s per stream. It fails if
// MongoDB does not answer or ctx ends.
func (m *Monitor) CheckSettings(ctx context.Context) ([]Finding, error) {
	f := m.facts()
	if err := f.gather(ctx); err != nil {
		return nil, fmt.Errorf("check settings: %w", err)
	}
	return f.judge(settingRules), nil
}

func (m *Monitor) facts() *facts {
	return &facts{
		server: m, view: m.seen.Load(), streams: m.config.Streams,
		now: m.config.Now(), sampleTime: sampleTime,
	}
}

// A server answers questions about MongoDB: a Monitor, or in tests a recording.
type server interface {
	// run runs a read command on the admin database.
	run(ctx context.Context, command bson.D) (bson.Raw, error)
	// aggregate returns documents up to maxBytes, even with an error.
	aggregate(ctx context.Context, collection string, pipeline mongo.Pipeline, maxBytes int) ([]bson.Raw, error)
}

func (m *Monitor) aggregate(ctx context.Context, collection string, pipeline mongo.Pipeline, maxBytes int) (out []bson.Raw, err error) {
	const batch = 32 // some MiB of full buckets
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

// facts are the input of the rules.
type facts struct {
	server     server
	view       *view // the last samples
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

// judge applies the rules. A finding's default kind is Setting.
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

// A refusal is a question without an answer, and what the answer is needed for.
type refusal struct {
	why           string // why it is not permitted, as in helps
	command, need string
	err           error
}

// note records a question without an answer, unless there is nothing to answer.
func (f *facts) note(why, command, need string, err error) {
	const noReplicationEnabled = 76
	if err != nil && !hasCode(err, codeNamespaceNotFound, noReplicationEnabled) {
		f.refusals = append(f.refusals, refusal{why: why, command: command, need: need, err: err})
	}
}

func (f *facts) gather(ctx context.Context) error {
	f.answers, f.indexes, f.trials = make(map[string]bson.Raw), make(map[string][]indexUse), make(map[string]*trial)
	if err := f.run(ctx, "hello"); err != nil { // which every user may run
		return err
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
		f.ask(ctx, "the history window and checkpoints", nil, "getParameter", "minSnapshotHistoryWindowInSeconds", "syncdelay")
		f.ask(ctx, "the checkpoint interval", nil, "getCmdLineOpts")
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
		f.ask(ctx, "the topology", &config, "replSetGetConfig")
		f.ask(ctx, "members that lag", &status, "replSetGetStatus")
		f.members, f.states = config.Config.Members, status.Members
	}
	for _, s := range f.streams {
		var err error
		f.indexes[s.Name], err = f.indexUses(ctx, f.collection(s).name)
		f.note(whyNotPermitted, "$indexStats", "the indexes of stream "+s.Name, err)
		f.trials[s.Name], err = f.try(ctx, s)
		f.note(whyNoRead, "documents", "another compressor for stream "+s.Name, err)
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

// ask runs a command that may be refused. The answer is decoded into into unless that is nil.
func (f *facts) ask(ctx context.Context, need string, into any, command string, options ...string) {
	err := f.run(ctx, command, options...)
	if err == nil && into != nil {
		err = bson.Unmarshal(f.answers[command], into)
	}
	f.note(whyNotPermitted, command, need, err)
}

// number returns a number from an answer; NaN: there is none.
func (f *facts) number(command string, path ...string) float64 {
	return number(f.answers[command], path...)
}

func (f *facts) text(command string, path ...string) string {
	return text(f.answers[command], path...)
}

// collection is the one that a stream is written to, as last sampled.
func (f *facts) collection(s Stream) collection { return f.view.last.collections[s.Name] }

// value is a figure of the last sample; NaN: unknown.
func (f *facts) value(k key) float64 { return f.view.last.server.value(k) }

// growth is how much a counter has grown since the previous sample, or else since
// the server's start.
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

// period describes the period of growth and rate, as in "in the last 10s".
func (f *facts) period() string {
	switch {
	case f.view.rates.serverWhy == "":
		return "in the last " + config.FormatDuration(f.view.rates.over.Round(time.Second/10))
	case f.view.last.server == nil:
		return ""
	}
	return "on average since the server's start " + config.FormatDuration(coarse(time.Duration(f.view.last.server.uptime*float64(time.Second)))) + " ago"
}

// coarse rounds long durations.
func coarse(d time.Duration) time.Duration {
	if d >= time.Hour {
		return d.Round(time.Minute)
	}
	return d.Round(time.Second)
}

// size formats bytes, as in 1.5 GiB.
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

// settingRules are in display order. To add one, add a row. Only what Brim pays for
// counts: it asks for w: majority and j: true itself, so the defaults do not matter.
var settingRules = []settingRule{
	{"history window", historyWindow},
	{"topology", topology},
	{"arbiters", arbiters},
	{"members", members},
	{"flow control", flowControl},
	{"waits for the majority", majorityWaits},
	{"cache and memory", cacheAgainstMemory},
	{"checkpoint interval", checkpointInterval},
	{"compressor", compressor},
	{"readings in an update", fewReadings},
	{"indexes", unusedIndexes},
	{"unseen", unseenSettings},
}

// advice returns a single finding.
func advice(name, cause, evidence, action, cost string) []Finding {
	return []Finding{{Name: "setting_" + name, Cause: cause, Evidence: evidence, Action: action, Cost: cost}}
}

// historyWindow: a replica set keeps each replaced version of a document for the
// length of the window, and each append to a bucket makes one.
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
	r := remedies["no history"]
	return advice("history_window", "history window: "+name+" is "+plain(window)+", which bucket streams pay for and do not need", evidence, r.action, r.cost)
}

func topology(f *facts) []Finding {
	if f.topology != standalone {
		return nil
	}
	return advice("topology", "topology: a standalone server, no replica set",
		"hello names no set. A majority is this one server, interrupted writes are not retried by the driver",
		"in mongod.conf: replication: {replSetName: rs0}; restart; then once in mongosh: rs.initiate()",
		"a restart; disk for the oplog (5 % of the free space unless oplogSizeMB says less); each write goes to the oplog too: "+
			"two thirds of the appends a second, where it was measured. Set minSnapshotHistoryWindowInSeconds to 0 with it")
}

// arbiters vote but hold no data: with one among three members, a majority needs
// every data-bearing member.
func arbiters(f *facts) []Finding {
	var names []string
	voters, holding := 0, 0
	for _, m := range f.members {
		switch {
		case m.Arbiter:
			names = append(names, m.Host)
		case m.Votes != 0:
			holding++
		}
		if m.Votes != 0 {
			voters++
		}
	}
	if len(names) == 0 {
		return nil
	}
	majority := voters/2 + 1
	effect := fmt.Sprintf("%d more than a majority can be away", holding-majority)
	if holding <= majority {
		effect = "when one of them is away no write is acknowledged by a majority, and history is kept until it is back, which fills the cache"
	}
	return advice("topology", "topology: an arbiter in place of a member that holds data",
		fmt.Sprintf("%s holds nothing; a majority is %d of %d votes, and %d members hold data: %s", join(", ", names...), majority, voters, holding, effect),
		fmt.Sprintf("add a member that holds data: in mongosh rs.remove(%q), then rs.add(\"HOST:PORT\")", names[0]),
		"a machine with the disk for all data; the first copy reads all of it from another member; no restart")
}

// leastLag is where a member starts to lag. In an idle set, heartbeats come
// every two seconds and writes every ten.
const leastLag = 30 * time.Second

// members finds members that are away or behind.
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
		var delay time.Duration // configured
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

// leastHeldBack is the least time per second for which writes must have waited:
// below that, it is the cost of taking a ticket.
const leastHeldBack = 0.05

// flowControl: the primary admits few writes while the majority lags. Its own
// engine and disk show no sign of that.
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

const (
	// longWait in ms is a wait for the majority that makes up most of a write: a
	// sync of its journal and a round trip take a few milliseconds.
	longWait = 50
	// fewWaits say nothing: a starting server waits for the others.
	fewWaits = 100
)

// majorityWaits finds writes that wait long for the other members.
func majorityWaits(f *facts) []Finding {
	number := f.growth(majorityWaitsTotal)
	each := f.growth(majorityWaitSeconds) / number / millis
	if f.topology != replicaSet || !(number >= fewWaits && each >= longWait) {
		return nil
	}
	others := "the other members"
	if len(f.members) == 1 {
		others = "this server's own journal, since it is the only member"
	}
	return advice("write_concern", "write concern: writes wait long for their acknowledgement",
		fmt.Sprintf("%s writes waited %s ms each for %s %s; Brim's acks wait for it at level stored, not at journaled", round(number), round(each), others, f.period()),
		"check the members' disks and the network between them (brim doctor at each); place members near each other; or let the daemon acknowledge earlier: --ack journaled",
		"with --ack journaled a reading is on the daemon's own disk, and not yet with a majority, when the sensor gets its answer")
}

// mostCache is the share of the memory above which a cache leaves too little
// for connections, sorts, the file system, and other programs.
const mostCache = 0.8

// cacheAgainstMemory finds a cache that is too large for the machine.
func cacheAgainstMemory(f *facts) []Finding {
	cache, memory := f.value(cacheMax), f.view.last.memory
	if memory == 0 || !(cache > mostCache*memory) {
		return nil
	}
	return advice("cache", "cache: larger than the machine's memory allows",
		fmt.Sprintf("the cache may grow to %s of the %s that there are (%s used now), and mongod uses %s in all: when it is full the system swaps, or kills mongod",
			size(cache), size(memory), size(f.value(cacheUsed)), size(f.value("resident_bytes"))),
		strings.ReplaceAll(setCache, "{cache}", plain(math.Floor(defaultCache(memory)/mebi))+"M"), "no restart; buckets that are appended to and no longer fit are read from the disk again")
}

const (
	ownInterval  = 60.0  // s between checkpoints, by default
	mostInterval = 300.0 // the longest that is publicly recommended
)

// interval is the time between checkpoints in effect, in s; NaN: unknown.
func (f *facts) interval() float64 {
	if majorOf(f.view.Server.Version) >= 7 { // older servers report the parameter but keep the interval they started with
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

// checkpointAdvice recommends an interval in seconds, with the command that
// sets it.
func (f *facts) checkpointAdvice(seconds float64, cause, evidence, cost string) []Finding {
	return advice("checkpoint", "checkpoints: "+cause, evidence+f.checkpointsTaken(), strings.ReplaceAll(setInterval, "{seconds}", plain(seconds)), costOfInterval+cost)
}

// checkpointsTaken describes the counted checkpoints.
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

// Bounds for an interval that is too short.
const (
	mostOfTheTime = 1.0 / 3 // a checkpoint is running
	muchWritten   = 1 << 20 // bytes/s written by checkpoints
	rewritten     = 2.0     // times the journal's bytes
)

// checkpointInterval: there are no checkpoints, or so few that recovery takes long,
// or they run most of the time or write the same pages again and again.
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
	running := each / (each + interval) // share of the time in which a checkpoint runs
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
	case running >= mostOfTheTime && longer > interval: // otherwise the disk or the CPU is the cause, not the interval
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

// An indexUse is the use of one index across all shards.
type indexUse struct {
	name   string
	key    []string // fields
	used   float64  // number of uses
	since  time.Time
	hidden bool
	bound  bool // it does more than speed up queries: it is unique or removes old documents
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
			out[i].since = s.Use.Since // the latest applies to all shards
		}
	}
	return out, nil
}

// leastUnused is how long an index must be unused: a daily query has run by then.
const leastUnused = 24 * time.Hour

var (
	// needed are Brim's indexes and MongoDB's own.
	needed = []string{"_id_", "brim_retention", "brim_sensor_time"}
	// appended are the fields of a bucket document that an append changes.
	appended = []string{"count", "bytes", "last", "first", "measurements", "stats", "w", "full"}
)

// unusedIndexes finds indexes that cost every write and speed up nothing.
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

// unseenSettings reports what could not be examined: one finding for each role
// that would help, and for each answer that no role provides. Diagnose reports
// what the samples lack.
func unseenSettings(f *facts) []Finding {
	var out []Finding
	add := func(cause, evidence, action, cost string) {
		out = append(out, Finding{Name: "unseen_settings", Kind: Unseen, Class: Unknown, Cause: cause, Evidence: evidence, Action: action, Cost: cost})
	}
	if f.topology == sharded {
		add("settings of the shards: a mongos has no storage engine", "history window, checkpoints, cache and members were not examined",
			"brim doctor --mongo-uri mongodb://MEMBER/?directConnection=true, for a member of each shard", "none, it only reads")
	}
	for _, why := range []string{whyNotPermitted, whyNoRead} {
		var commands, needs []string
		for _, r := range f.refusals {
			if r.why == why && NotPermitted(r.err) && !slices.Contains(needs, r.need) {
				commands, needs = append(commands, r.command), append(needs, r.need)
			}
		}
		if len(commands) > 0 {
			add("settings: the user is not allowed to run "+join(", ", slices.Compact(commands)...), "not examined: "+join(", ", needs...), helps[why].action, helps[why].cost)
		}
	}
	for _, r := range f.refusals {
		if !NotPermitted(r.err) {
			add(r.need+": "+r.command+" was not answered", r.err.Error(), "try again; a hosted MongoDB may not answer it at all", "none, it only reads")
		}
	}
	return out
}
