package daemon

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/claim"
)

// A SIGHUP makes the daemon read its file again:
//
//	SIGHUP ─▶ sources.load ─┬─ wrong ──▶ nothing changes, the log says what is wrong
//	                        └─ right ──▶ differences ─┬─ of liveSettings ──▶ door, stores, log; then the collections follow
//	                                                  └─ others ───────────▶ pending: named in the log and in /status
//
// The flags and the environment are those of the start. What is pending takes a
// restart, or cannot be made at all without another command.

// liveSettings can be changed while the daemon runs; those of streams besides.
var liveSettings = []string{
	"log-level", "stop-timeout", "max-future", "thresholds", "quota-requests", "quota-readings", "quota-new-sensors", "quota-active-sensors",
}

// liveOfStreams are the settings of a stream that can be.
var liveOfStreams = []string{
	"retention", "bucket-max-readings", "bucket-max-bytes", "max-readings-per-update",
	"write-concern", "write-journal", "fields", "other-fields", "view", "silent-after",
}

// Outcomes of a reload.
const (
	reloadApplied = "applied" // what the file says is in force
	reloadPartly  = "partly"  // some of it is pending
	reloadRefused = "refused" // the file is wrong, and nothing of it was taken
)

// A Difference is a setting that the file wants otherwise than it is.
type Difference struct {
	Setting string `json:"setting"` // a stream's: streams.NAME.SETTING
	Now     string `json:"now"`
	Wanted  string `json:"wanted"`
	Why     string `json:"why,omitempty"` // it is not in force

	stream string // whose it is; empty: the daemon's
	name   string // of the setting; empty: the stream as a whole
}

const takesRestart = "takes a restart"

// inForce is the configuration that the daemon goes by.
type inForce struct {
	*Config
	loaded  time.Time
	outcome string // of the last reload; applied before the first
	reason  string // why it was refused
	pending []Difference
}

// ConfigStatus is what /status says of the configuration.
type ConfigStatus struct {
	File     string       `json:"file,omitempty"`
	LoadedAt time.Time    `json:"loaded_at"` // what is in force
	Outcome  string       `json:"outcome"`   // of the last reload: applied, partly or refused
	Reason   string       `json:"reason,omitempty"`
	Pending  []Difference `json:"pending"` // wanted by the file and not in force
}

// A reloader reads the configuration again and puts in force what can be.
type reloader struct {
	daemon  *daemon
	from    Sources
	asked   <-chan struct{}
	outcome map[string]prometheus.Counter

	mu  sync.Mutex
	now inForce
	// following holds the streams whose collections do not have their settings
	// yet, with the retention that the door goes by until then.
	following map[string]time.Duration
	unable    map[string]string // why trying again does not help, by those of following
}

func newReloader(d *daemon, from Sources, asked <-chan struct{}) *reloader {
	counters := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_config_reloads_total", Help: "Times that the configuration was read again, by what came of it.",
	}, []string{"outcome"})
	d.registry.MustRegister(counters)
	r := &reloader{
		daemon: d, from: from, asked: asked, outcome: make(map[string]prometheus.Counter), following: make(map[string]time.Duration), unable: make(map[string]string),
		now: inForce{Config: d.cfg, loaded: d.began, outcome: reloadApplied},
	}
	for _, outcome := range []string{reloadApplied, reloadPartly, reloadRefused} {
		r.outcome[outcome] = counters.WithLabelValues(outcome)
	}
	return r
}

// current returns the configuration in force, which is not changed any more.
func (r *reloader) current() *Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Config
}

func (r *reloader) status() ConfigStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := ConfigStatus{
		File: r.from.file(), LoadedAt: r.now.loaded.UTC(), Outcome: r.now.outcome, Reason: r.now.reason, Pending: append([]Difference{}, r.now.pending...),
	}
	for _, name := range slices.Sorted(keysOf(r.following)) {
		why := "the collection does not have its settings yet; MongoDB is asked again"
		if unable := r.unable[name]; unable != "" {
			why, out.Outcome = "the collection cannot have its settings: "+unable, reloadPartly
		}
		out.Pending = append(out.Pending, Difference{Setting: streamsKey + "." + name, Why: why})
	}
	return out
}

// start runs the reloader until ctx ends; ended waits for that.
func (r *reloader) start(ctx context.Context) (ended func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run reloads whenever it is asked to, and goes on asking MongoDB for what it
// has not done. It returns when ctx ends.
func (r *reloader) run(ctx context.Context) {
	select {
	case <-r.daemon.following: // there are stores to change
	case <-ctx.Done():
		return
	}
	again := time.NewTicker(lastPause)
	defer again.Stop()
	for {
		select {
		case <-r.asked:
			r.reload(ctx)
		case <-again.C:
			r.follow(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// reload reads the file and puts in force what can be.
func (r *reloader) reload(ctx context.Context) {
	log := r.daemon.log
	defer r.daemon.supervisor.reloads()()
	wanted, err := r.from.Load()
	var merged *Config
	var all []Difference
	if err == nil {
		all = differences(r.current(), wanted)
		r.judge(ctx, all, wanted)
		merged, err = r.current().with(all)
	}
	if err != nil {
		for _, problem := range SplitErrors(err) {
			log.Error("the configuration is wrong; nothing of it was taken", "err", problem)
		}
		r.refused(err)
		return
	}
	var pending []Difference
	for _, d := range all {
		if d.Why == "" {
			log.Info("setting changed", "setting", d.Setting, "before", d.Now, "now", d.Wanted)
			continue
		}
		pending = append(pending, d)
		log.Warn("setting is not in force", "setting", d.Setting, "now", d.Now, "wanted", d.Wanted, "why", d.Why)
	}
	r.apply(ctx, merged, pending, changedStreams(all))
	outcome := reloadApplied
	if len(pending) > 0 || r.isUnable() {
		outcome = reloadPartly
	}
	r.reloadFiles(log)
	r.outcome[outcome].Inc()
	log.Info("configuration reloaded", "file", r.from.file(), "outcome", outcome, "changed", len(all)-len(pending), "pending", len(pending))
}

func (r *reloader) refused(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.outcome, r.now.reason = reloadRefused, err.Error()
	r.outcome[reloadRefused].Inc()
}

// apply puts a configuration in force.
func (r *reloader) apply(ctx context.Context, to *Config, pending []Difference, changed []string) {
	before := r.current()
	r.mu.Lock()
	r.now = inForce{Config: to, loaded: time.Now(), outcome: reloadApplied, pending: pending}
	if len(pending) > 0 {
		r.now.outcome = reloadPartly
	}
	for _, name := range changed {
		if _, waits := r.following[name]; !waits {
			r.following[name] = before.stream(name).Retention
		}
	}
	r.mu.Unlock()
	r.putInForce(to)
	storage := r.daemon.storage.Load()
	for _, name := range changed {
		if err := to.stream(name).change(storage.homes[name]); err != nil {
			r.daemon.log.Error("change the stream's settings", "stream", name, "err", err)
		}
		storage.staleness.Stream(name).SetAfter(to.stream(name).SilentAfter)
	}
	r.tellDoor()
	r.follow(ctx)
}

// putInForce brings the daemon's own settings to where they are needed.
func (r *reloader) putInForce(to *Config) {
	d := r.daemon
	d.level.Set(logLevel(to.LogLevel))
	d.door.SetMaxFuture(to.MaxFuture)
	if err := d.guard.SetDefault(to.Quota); err != nil {
		d.log.Error("change the quotas", "err", err)
	}
}

// follow brings the collections of changed streams to their settings, as far
// as MongoDB lets it.
func (r *reloader) follow(ctx context.Context) {
	r.mu.Lock()
	names := slices.Sorted(keysOf(r.following))
	r.mu.Unlock()
	if len(names) == 0 {
		return
	}
	storage := r.daemon.storage.Load()
	for _, name := range names {
		asked, cancel := context.WithTimeout(ctx, prepareTimeout)
		err := storage.homes[name].Prepare(asked)
		cancel()
		if ctx.Err() != nil {
			return
		}
		r.followed(name, err)
	}
	r.tellDoor()
}

// followed notes what became of a stream's collection. Where trying again does
// not help it is tried all the same: somebody may help. That is told once.
func (r *reloader) followed(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		delete(r.following, name)
		delete(r.unable, name)
	case !final(err):
		r.daemon.log.Warn("the stream's collection does not have its settings yet; MongoDB is asked again", "stream", name, "err", err)
	case r.unable[name] != err.Error():
		r.unable[name] = err.Error()
		r.daemon.log.Error("the stream's collection cannot have its settings", "stream", name, "err", err)
	}
}

// isUnable reports whether a collection cannot have its settings.
func (r *reloader) isUnable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unable) > 0
}

// tellDoor gives the door the streams as they are. A retention that grows counts
// when MongoDB knows of it: what is taken earlier would be removed at once.
func (r *reloader) tellDoor() {
	r.mu.Lock()
	streams := slices.Clone(r.now.Streams)
	for i, s := range streams {
		if before, waits := r.following[s.Name]; waits {
			streams[i].Retention = shorter(before, s.Retention)
		}
	}
	r.mu.Unlock()
	if err := r.daemon.setStreams(streams); err != nil {
		r.daemon.log.Error("change what the door knows of the streams", "err", err)
	}
}

// shorter returns the shorter of two retentions; 0 is for ever.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// reloadFiles makes the files that are looked at anyway be looked at now.
func (r *reloader) reloadFiles(log *slog.Logger) {
	if err := r.daemon.guard.Reload(); err != nil {
		log.Error("the access file is wrong; the former one stays in force", "err", err)
	}
	r.daemon.tls.Reload()
	monitor := r.daemon.monitor.Load()
	if monitor == nil {
		return
	}
	thresholds, err := LoadThresholds(r.current().Thresholds)
	if err != nil {
		log.Error("the thresholds are wrong; the former ones stay in force", "err", err)
		return
	}
	monitor.SetThresholds(thresholds)
}

// final reports whether trying again does not help.
func final(err error) bool {
	var mismatch *store.MismatchError
	var concern *store.ConcernError
	var held *claim.HeldError
	return errors.As(err, &mismatch) || errors.As(err, &concern) || errors.As(err, &held)
}

// same reports whether two configurations set the same, however it is written.
func same(a, b any) bool { return reflect.DeepEqual(a, b) }
