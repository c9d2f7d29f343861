package access

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"time"
)

// A sight is what was seen of the access file.
type sight struct {
	info    os.FileInfo       // nil: it could not be read
	at      time.Time         // when it was read
	sum     [sha256.Size]byte // of the content
	problem error             // why it could not be used; nil: it could
}

const (
	// lookEvery is how often the file is looked at, at most.
	lookEvery = time.Second
	// stillFor is how long a change must stay as it is before it is taken: who
	// writes a file in place may be in the middle of it.
	stillFor = 500 * time.Millisecond
	// calm is how long ago a file must have changed to be taken at first sight,
	// where nobody has looked for as long.
	calm = 2 * time.Second
	// rereadEvery is how often the file is read that seems to be the same.
	rereadEvery = time.Minute
	// settled is the age from which on a change of the file must show in its time:
	// clocks of file systems tick in milliseconds on local disks, and in up to two
	// seconds elsewhere.
	settled = 3 * time.Second
	// maxFileBytes is room for some 100,000 identities of 300 bytes.
	maxFileBytes = 32 << 20
)

// look reads the access file if it has changed, and if nobody looked a moment
// ago. One caller looks, those beside it go on with what is known.
func (g *Guard) look(now time.Time) {
	since, last, every := now.Sub(g.began), g.looked.Load(), lookEvery
	if g.waits.Load() {
		every = stillFor
	}
	quiet := since - time.Duration(last)
	if quiet >= 0 && quiet < every { // below zero the clock was set back
		return
	}
	if g.looked.CompareAndSwap(last, int64(since)) && g.mu.TryLock() {
		defer g.mu.Unlock()
		_ = g.refresh(now, func(info os.FileInfo) bool { // it is logged, and the metrics tell
			return quiet >= calm && now.Sub(changedAt(info)) >= calm
		})
	}
}

// Reload takes the access file as it is now, and says what is wrong with it. What
// it held before stays in force then.
func (g *Guard) Reload() error {
	if !g.Asks() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refresh(g.now(), func(os.FileInfo) bool { return true })
}

// refresh puts the file in force if it has changed and holds still, or may be
// taken at once. Without a change it returns what was wrong the last time.
func (g *Guard) refresh(now time.Time, atOnce func(os.FileInfo) bool) error {
	info, err := os.Stat(g.path)
	if err != nil {
		return g.keep(fmt.Errorf("look at the access file: %w", err))
	}
	before := &g.seen
	if before.info != nil && unchanged(before.info, info) && before.at.Sub(changedAt(info)) > settled && now.Sub(before.at).Abs() < rereadEvery {
		g.await(sight{})
		return before.problem
	}
	content, info, err := g.read()
	if err != nil {
		return g.keep(err)
	}
	s := sight{info: info, at: now, sum: sha256.Sum256(content)}
	if before.info != nil && s.sum == before.sum {
		g.await(sight{})
		before.info, before.at = info, now
		return before.problem
	}
	if !g.still(s) && !atOnce(info) {
		return before.problem
	}
	entries, err := g.parse(content)
	if err != nil {
		err = g.keep(err)
	} else {
		g.take(entries)
		g.warn(info)
		g.logger.Info("access file is loaded", "file", g.path, "identities", len(entries))
	}
	s.problem = err
	g.seen = s
	g.await(sight{})
	return err
}

// still reports whether a change is the one that was seen a moment ago.
func (g *Guard) still(s sight) bool {
	if n := &g.next; n.info != nil && n.sum == s.sum && unchanged(n.info, s.info) {
		return s.at.Sub(n.at).Abs() >= stillFor
	}
	g.await(s)
	return false
}

// await has the next look come sooner, which is to find the same; a sight of
// nothing ends the waiting.
func (g *Guard) await(s sight) {
	g.next = s
	g.waits.Store(s.info != nil)
}

// parse reads the content of a file that is to be put in force. It refuses what
// is likely to be the beginning of one only.
func (g *Guard) parse(content []byte) ([]Entry, error) {
	if len(content) > 0 && content[len(content)-1] != '\n' {
		return nil, fmt.Errorf("%s:%d: the last line of the access file has no line break, as if it was not written to its end; add one", g.path, 1+bytes.Count(content, []byte{'\n'}))
	}
	entries, emptied, err := parseFile(g.path, content)
	if err != nil {
		return nil, err
	}
	if known := g.table.Load(); len(entries) == 0 && !emptied && known != nil && len(known.all) > 0 {
		return nil, fmt.Errorf("%s:1: the access file holds no identities any more; to shut everybody out write: %s: []", g.path, keyIdentities)
	}
	return entries, nil
}

func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode() && statusTime(a).Equal(statusTime(b))
}

// changedAt is when a file was changed last. Copies keep the one time, and no
// tool can set the other.
func changedAt(info os.FileInfo) time.Time {
	if at := statusTime(info); at.After(info.ModTime()) {
		return at
	}
	return info.ModTime()
}

// keep stays with the identities that are known, and says so once. The file is
// read again at the next look.
func (g *Guard) keep(err error) error {
	g.metrics.ok.Set(0)
	if g.seen.problem == nil || err.Error() != g.seen.problem.Error() {
		g.logger.Error("access file cannot be used, what it held before stays in force", "file", g.path, "error", err)
	}
	g.seen.problem, g.seen.info = err, nil
	g.await(sight{})
	return err
}

// take puts the identities of a file in force. Those that are known stay, with
// what they have used of their quota.
func (g *Guard) take(entries []Entry) {
	before := g.table.Load()
	if before == nil {
		before = &table{}
	}
	known, used := make(map[string]*Identity, len(before.all)), make(map[string]*usage, len(before.all))
	for credential, i := range before.credentials() {
		known[i.Name+"\x00"+credential] = i
		used[i.Name] = i.usage
	}
	t := &table{byHash: make(map[[prefixBytes]byte]held), byCertificate: make(map[string]*Identity)}
	for n := range entries {
		e := &entries[n]
		key := e.Name + "\x00" + e.credential()
		i := known[key]
		delete(known, key)
		if i == nil {
			i = &Identity{Name: e.Name, guard: g, usage: used[e.Name]}
		}
		if i.usage == nil {
			i.usage = &usage{}
		}
		i.may.Store(&rights{scopes: e.Scopes, prefix: e.SensorPrefix, expires: e.Expires, own: e.Quota, quota: e.Quota.over(g.defaults)})
		t.all = append(t.all, i)
		if e.Certificate != "" {
			t.byCertificate[certificateKey(e.Certificate)] = i
		} else {
			t.byHash[[prefixBytes]byte(e.hash[:])] = held{hash: e.hash, identity: i}
		}
	}
	g.table.Store(t)
	for _, i := range known { // those that are not there any more
		i.gone.Store(true)
	}
	g.metrics.ok.Set(1)
	g.metrics.identities.Set(float64(len(t.all)))
}

// credentials yields every identity with what it shows, in no order.
func (t *table) credentials() func(yield func(string, *Identity) bool) {
	return func(yield func(string, *Identity) bool) {
		for _, h := range t.byHash {
			if !yield(string(h.hash[:]), h.identity) {
				return
			}
		}
		for name, i := range t.byCertificate {
			if !yield(name, i) {
				return
			}
		}
	}
}
