package daemon

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/claim"
	"github.com/brim-telemetry/brim/internal/store/generation"
)

// On SIGHUP the daemon reads its file again:
//
//	SIGHUP ─▶ Sources.Load ─┬─ invalid ▶ nothing changes, the log has the errors
//	                        └─ valid ──▶ differences ─┬─ live settings ──▶ ingest, stores, log; then the collections
//	                                                  └─ others ─────────▶ pending: named in the log and in /status
//
// Flags and environment do not change. Pending settings need a restart, or another command.

// Outcomes of a reload.
const (
	reloadApplied = "applied" // all settings are in force
	reloadPartly  = "partly"  // some are pending
	reloadRefused = "refused" // the file is invalid, and nothing was changed
)

// A Difference is a setting with another value in the file than in force.
type Difference struct {
	Setting string `json:"setting"` // a stream's: streams.NAME.SETTING
	Now     string `json:"now"`
	Wanted  string `json:"wanted"`
	Why     string `json:"why,omitempty"` // why it is not in force

	stream string // empty: a setting of the daemon
	name   string // of the setting; empty: the stream as a whole
}

const takesRestart = "takes a restart"

// ConfigStatus is the state of the configuration in /status.
type ConfigStatus struct {
	File     string       `json:"file,omitempty"`
	LoadedAt time.Time    `json:"loaded_at"` // the settings in force
	Outcome  string       `json:"outcome"`   // of the last reload: applied, partly or refused
	Reason   string       `json:"reason,omitempty"`
	Pending  []Difference `json:"pending"` // in the file and not in force
}

// A reloader reads the configuration again and applies what can be changed.
type reloader struct {
	daemon  *daemon
	from    Sources
	asked   <-chan os.Signal
	outcome map[string]prometheus.Counter

	mu    sync.Mutex
	state ConfigStatus
	// unapplied holds the streams whose collections do not have their settings yet.
	unapplied map[string]unapplied
}

// unapplied are settings that a collection does not have yet.
type unapplied struct {
	retention time.Duration // applied by ingest until then
	unable    string        // why retrying does not help; empty: it may help
}

func newReloader(d *daemon, from Sources, asked <-chan os.Signal) *reloader {
	counters := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_config_reloads_total", Help: "Reloads of the configuration, by outcome.",
	}, []string{"outcome"})
	d.registry.MustRegister(counters)
	r := &reloader{
		daemon: d, from: from, asked: asked, outcome: make(map[string]prometheus.Counter), unapplied: make(map[string]unapplied),
		state: ConfigStatus{File: from.file(), LoadedAt: d.began.UTC(), Outcome: reloadApplied},
	}
	for _, outcome := range []string{reloadApplied, reloadPartly, reloadRefused} {
		r.outcome[outcome] = counters.WithLabelValues(outcome)
	}
	return r
}

func (r *reloader) status() ConfigStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.state
	out.Pending = append([]Difference{}, out.Pending...)
	for _, name := range slices.Sorted(maps.Keys(r.unapplied)) {
		why := "the collection does not have its settings yet; retrying"
		if unable := r.unapplied[name].unable; unable != "" {
			why, out.Outcome = "the collection cannot have its settings: "+unable, reloadPartly
		}
		out.Pending = append(out.Pending, Difference{Setting: streamsKey + "." + name, Why: why})
	}
	return out
}

// retryEvery is the pause between two attempts to change collections.
const retryEvery = 5 * time.Second

// run reloads on request, and retries failed changes of collections, until ctx ends.
func (r *reloader) run(ctx context.Context) {
	select {
	case <-r.daemon.storageOpen: // there are stores to change
	case <-ctx.Done():
		return
	}
	again := time.NewTicker(retryEvery)
	defer again.Stop()
	for {
		select {
		case <-r.asked:
			r.reload(ctx)
		case <-again.C:
			r.applyToCollections(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// reload reads the file and applies what can be changed.
func (r *reloader) reload(ctx context.Context) {
	log := r.daemon.log
	defer r.daemon.supervisor.reportReloading()()
	wanted, err := r.from.Load()
	var merged *Config
	var all []Difference
	if err == nil {
		all = differences(r.daemon.current(), wanted)
		r.checkChanges(ctx, all, wanted)
		merged, err = r.daemon.current().merge(all)
	}
	if err != nil {
		for _, problem := range SplitErrors(err) {
			log.Error("the configuration is invalid; nothing was changed", "err", problem)
		}
		r.refused(err)
		return
	}
	var pending []Difference
	var changed []string // streams
	for _, d := range all {
		if d.Why == "" {
			log.Info("setting changed", "setting", d.Setting, "before", d.Now, "now", d.Wanted)
			if d.stream != "" && !slices.Contains(changed, d.stream) {
				changed = append(changed, d.stream)
			}
			continue
		}
		pending = append(pending, d)
		log.Warn("setting is not in force", "setting", d.Setting, "now", d.Now, "wanted", d.Wanted, "why", d.Why)
	}
	outcome := reloadApplied
	if unable := r.apply(ctx, merged, pending, changed); unable || len(pending) > 0 {
		outcome = reloadPartly
	}
	r.reloadFiles(log)
	r.outcome[outcome].Inc()
	log.Info("configuration reloaded", "file", r.from.file(), "outcome", outcome, "changed", len(all)-len(pending), "pending", len(pending))
}

func (r *reloader) refused(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Outcome, r.state.Reason = reloadRefused, err.Error()
	r.outcome[reloadRefused].Inc()
}

// apply puts a configuration into force. unable reports whether a collection cannot have its
// settings.
func (r *reloader) apply(ctx context.Context, to *Config, pending []Difference, changed []string) (unable bool) {
	before := r.daemon.inForce.Swap(to)
	r.mu.Lock()
	r.state = ConfigStatus{File: r.from.file(), LoadedAt: time.Now().UTC(), Outcome: reloadApplied, Pending: pending}
	if len(pending) > 0 {
		r.state.Outcome = reloadPartly
	}
	for _, name := range changed {
		if _, waits := r.unapplied[name]; !waits {
			r.unapplied[name] = unapplied{retention: before.stream(name).Retention}
		}
	}
	r.mu.Unlock()
	d := r.daemon
	d.level.Set(logLevel(to.LogLevel))
	d.ingest.SetMaxFuture(to.MaxFuture)
	d.guard.SetDefault(to.Quota)
	storage := d.storage.Load()
	for _, name := range changed {
		stream := to.stream(name)
		var err error
		if of, ok := storage.stores[name].(*generation.Store); ok {
			err = of.Change(stream.inStore())
		}
		storage.catalog.Stream(name).SetRetention(stream.longestRetention())
		if err == nil {
			err = storage.queue.SetPolicy(name, stream.policy())
		}
		if err != nil {
			d.log.Error("change the stream's settings", "stream", name, "err", err)
		}
		storage.sealer.SetAfter(name, stream.SealAfter)
		storage.staleness.Stream(name).SetAfter(stream.SilentAfter)
	}
	r.updateIngest()
	return r.applyToCollections(ctx)
}

// applyToCollections applies the settings of changed streams to their collections. unable
// reports whether a collection cannot have its settings.
func (r *reloader) applyToCollections(ctx context.Context) (unable bool) {
	r.mu.Lock()
	names := slices.Sorted(maps.Keys(r.unapplied))
	r.mu.Unlock()
	if len(names) == 0 {
		return false
	}
	storage := r.daemon.storage.Load()
	for _, name := range names {
		asked, cancel := context.WithTimeout(ctx, prepareTimeout)
		err := storage.stores[name].Prepare(asked)
		cancel()
		if ctx.Err() != nil {
			return unable
		}
		unable = unable || final(err)
		r.recordResult(name, err)
	}
	r.updateIngest()
	return unable
}

// recordResult records the result for a stream's collection. Even a final error is retried,
// because an operator may fix its cause; it is logged once.
func (r *reloader) recordResult(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.unapplied[name]
	switch {
	case err == nil:
		delete(r.unapplied, name)
	case !final(err):
		r.daemon.log.Warn("the stream's collection does not have its settings yet; retrying", "stream", name, "err", err)
	case u.unable != err.Error():
		u.unable = err.Error()
		r.unapplied[name] = u
		r.daemon.log.Error("the stream's collection cannot have its settings", "stream", name, "err", err)
	}
}

// updateIngest passes the streams to ingest. A longer retention takes effect when MongoDB has
// it; until then MongoDB would remove the additional readings immediately.
func (r *reloader) updateIngest() {
	r.mu.Lock()
	now := r.daemon.current()
	streams := make([]ingest.Stream, len(now.Streams))
	for i, s := range now.Streams {
		if u, waits := r.unapplied[s.Name]; waits {
			s.Retention = shorter(u.retention, s.Retention)
		}
		streams[i] = s.forIngest()
	}
	r.mu.Unlock()
	r.daemon.ingest.SetStreams(streams)
}

// shorter returns the shorter of two retentions; 0 is forever.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// reloadFiles reloads the access file, the TLS files and the thresholds.
func (r *reloader) reloadFiles(log *slog.Logger) {
	if err := r.daemon.guard.Reload(); err != nil {
		log.Error("the access file is invalid; the previous one stays in force", "err", err)
	}
	r.daemon.tls.Reload()
	monitor := r.daemon.monitor.Load()
	if monitor == nil {
		return
	}
	thresholds, err := LoadThresholds(r.daemon.current().Thresholds)
	if err != nil {
		log.Error("the thresholds are invalid; the previous ones stay in force", "err", err)
		return
	}
	monitor.SetThresholds(thresholds)
}

// final reports whether retrying does not help.
func final(err error) bool {
	var mismatch *store.MismatchError
	var concern *store.ConcernError
	var held *claim.HeldError
	return errors.As(err, &mismatch) || errors.As(err, &concern) || errors.As(err, &held)
}

func (c *Settings) hasStream(name string) bool {
	return slices.ContainsFunc(c.Streams, func(s Stream) bool { return s.Name == name })
}

// stream returns the settings of a stream; zero ones if there is no such stream.
func (c *Settings) stream(name string) Stream {
	if at := slices.IndexFunc(c.Streams, func(s Stream) bool { return s.Name == name }); at >= 0 {
		return c.Streams[at]
	}
	return Stream{}
}

// differences lists how wanted differs from now, with reasons for changes that cannot be
// applied. The same value written differently is no difference.
func differences(now, wanted *Config) []Difference {
	var out []Difference
	add := func(d Difference, before, after effective) {
		if before.text == after.text || sameValue(before.Name, before.text, after.text) {
			return
		}
		d.Now, d.Wanted = before.shown().Value, after.shown().Value
		if !before.live {
			d.Why = takesRestart
		}
		out = append(out, d)
	}
	inherited := (&Stream{}).all()
	for i, e := range now.effective {
		if !slices.ContainsFunc(inherited, func(s Setting) bool { return s.Name == e.Name }) { // else a default; that of each stream is compared
			add(Difference{Setting: e.path(), name: e.Name}, e, wanted.effective[i])
		}
	}
	groups := maps.Clone(now.groups)
	maps.Copy(groups, wanted.groups)
	for _, path := range slices.Sorted(maps.Keys(groups)) {
		before, there := now.groups[path]
		after, stays := wanted.groups[path]
		kind, name, _ := strings.Cut(path, ".")
		switch {
		case !there:
			out = append(out, Difference{Setting: path, Now: "not configured", Wanted: "configured", Why: takesRestart})
		case !stays && kind == streamsKey:
			out = append(out, Difference{Setting: path, Now: "configured", Wanted: "removed", Why: takesRestart + "; its collection is left unchanged"})
		case !stays:
			out = append(out, Difference{Setting: path, Now: "configured", Wanted: "removed", Why: takesRestart})
		case kind == mqttKey && name == topSubscription: // its settings are those of the top level
		default:
			for i, e := range before {
				d := Difference{Setting: path + "." + e.keyInGroup()}
				if kind == streamsKey {
					d.stream, d.name = name, e.Name
				}
				add(d, e, after[i])
			}
		}
	}
	return out
}

// sameValue reports whether two texts are the same value of a setting.
func sameValue(name, a, b string) bool {
	var x, y Settings
	errA, errB := settingOf(x.All(), name).set(a), settingOf(y.All(), name).set(b)
	return errA == nil && errB == nil && reflect.DeepEqual(x, y)
}

// settingOf returns the setting of that name, which must be in the list.
func settingOf(list []Setting, name string) Setting {
	return list[slices.IndexFunc(list, func(s Setting) bool { return s.Name == name })]
}

// with returns a copy of the settings with one of them changed; stream is empty for settings
// of the daemon.
func (c Settings) with(stream, name, text string) (Settings, error) {
	c.Streams = slices.Clone(c.Streams)
	list, at := c.All(), slices.IndexFunc(c.Streams, func(s Stream) bool { return s.Name == stream })
	if at >= 0 {
		list = c.Streams[at].all()
	}
	err := settingOf(list, name).set(text)
	if at >= 0 && stream == c.Default.Name {
		c.Default = c.Streams[at]
	}
	return c, err
}

// merge returns the configuration with the changes that can be applied.
func (c *Config) merge(changes []Difference) (*Config, error) {
	out := &Config{Settings: c.Settings, from: c.from, effective: slices.Clone(c.effective), groups: maps.Clone(c.groups)}
	for path, list := range out.groups {
		out.groups[path] = slices.Clone(list)
	}
	var problems []error
	for _, d := range changes {
		if d.Why != "" {
			continue
		}
		var err error
		out.Settings, err = out.with(d.stream, d.name, d.Wanted)
		problems = append(problems, err)
		list := out.effective
		if d.stream != "" {
			list = out.groups[streamsKey+"."+d.stream]
		}
		named(list, d.name).text = d.Wanted
	}
	return out, errors.Join(append(problems, out.checkTogether())...)
}

// concernTimeout is how long MongoDB may take to list its members.
const concernTimeout = 5 * time.Second

// checkChanges sets Why of changes that the state of this daemon or of MongoDB makes
// impossible.
func (r *reloader) checkChanges(ctx context.Context, all []Difference, wanted *Config) {
	for i, d := range all {
		if strings.HasPrefix(d.name, "quota-") && r.daemon.guard == nil {
			all[i].Why = takesRestart + ": it began without an access file and without a quota, and counts nothing"
		}
	}
	storage := r.daemon.storage.Load()
	if storage.conn == nil || storage.available() != nil {
		return // it is checked when MongoDB is available again
	}
	ctx, cancel := context.WithTimeout(ctx, concernTimeout)
	defer cancel()
	for i, d := range all {
		if d.name != "write-concern" || d.stream == "" {
			continue
		}
		if err := wanted.stream(d.stream).WriteConcern.Check(ctx, storage.conn.Database(), d.stream, r.daemon.log); err != nil {
			all[i].Why = "cannot be made: " + err.Error()
		}
	}
}

// inStore returns the settings of the store that can change at run time. Bucket settings
// matter for time series too, because an earlier collection of the stream may have buckets.
func (s Stream) inStore() store.Settings {
	return store.Settings{
		Format: s.BucketFormat, MaxReadings: s.BucketMaxReadings, MaxBytes: s.BucketMaxBytes, MaxReadingsPerUpdate: s.MaxReadingsPerUpdate,
		Retention: s.Retention, WriteConcern: s.WriteConcern, View: s.View == On, Duplicates: s.Duplicates, RollupRetention: s.RollupRetention,
	}
}
