package faulttest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/brim-telemetry/brim/internal/journal"
)

// ErrPower is the error of every operation after a power cut.
var ErrPower = errors.New("power cut")

// Files is an in-memory disk that can lose what a real disk may lose. Writes are
// visible at once, like in a page cache, but survive PowerCut only if they were
// synced, or by chance. It implements journal.Files.
type Files struct {
	mu     sync.Mutex
	random *rand.Rand
	dead   bool
	left   int // operations until the power cut; negative: unlimited

	names   map[string]*inode // as visible
	durable map[string]*inode // as of the last SyncDir
	changes []nameChange      // since then
	locks   map[string]*lock

	capacity  int64
	failSync  failure
	failWrite failure
	syncs     int
	failed    int
	around    func(op, name string, do func() error) error
}

// The operations that are passed to Around.
const (
	Create  = "create"
	Write   = "write"
	Sync    = "sync"
	Remove  = "remove"
	Rename  = "rename"
	SyncDir = "sync-dir"
)

// Around makes fn wrap each operation that changes the disk. fn calls do to execute it, may
// wait before and after, or return an error instead. Calls are concurrent.
func (f *Files) Around(fn func(op, name string, do func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.around = fn
}

// carryOut calls do with f locked, through Around's fn if there is one.
func (f *Files) carryOut(op, name string, do func() error) error {
	f.mu.Lock()
	around := f.around
	f.mu.Unlock()
	if around == nil {
		return f.locked(do)
	}
	return around(op, name, func() error { return f.locked(do) })
}

// locked calls do with f locked, which counts as an operation.
func (f *Files) locked(do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		f.dead = true
	}
	if f.dead {
		return ErrPower
	}
	if f.left > 0 {
		f.left--
	}
	return do()
}

// Kill ends the use of the disk by a process, like a kill, and returns the disk for the
// next one. All writes are visible there, but a power cut still loses what was not synced.
func (f *Files) Kill() *Files {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	next := NewFiles(f.random.Uint64())
	next.names, next.durable, next.changes, next.capacity = maps.Clone(f.names), maps.Clone(f.durable), f.changes, f.capacity
	return next
}

// failure makes an operation fail some number of times, or always if times is negative.
type failure struct {
	err   error
	times int
}

func (f *failure) take() error {
	if f.times == 0 {
		return nil
	}
	f.times--
	return f.err
}

// nameChange is a change of a directory: name refers to node, or to nothing.
type nameChange struct {
	name string
	node *inode
	from string // for renames
}

// NewFiles returns an empty disk; randomness depends only on seed.
func NewFiles(seed uint64) *Files {
	return &Files{
		random: rand.New(rand.NewPCG(seed, 1)), left: -1,
		names: make(map[string]*inode), durable: make(map[string]*inode), locks: make(map[string]*lock),
	}
}

// CutAfter cuts the power after n more operations.
func (f *Files) CutAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = n
}

// FailSync makes the next syncs of files fail, or all if times is negative. The
// affected data never becomes durable.
func (f *Files) FailSync(err error, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failSync = failure{err, times}
}

// FailWrite makes the next writes fail after a partial write.
func (f *Files) FailWrite(err error, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failWrite = failure{err, times}
}

// SetCapacity limits the bytes of all files; 0 removes the limit.
func (f *Files) SetCapacity(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = n
}

// Syncs counts the successful syncs of files.
func (f *Files) Syncs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.syncs
}

// Failed counts the operations that were made to fail.
func (f *Files) Failed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// PowerCut cuts the power, if that has not happened yet, and returns the disk as the
// next start finds it: with all synced data and a random part of the rest.
func (f *Files) PowerCut() *Files {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	next := NewFiles(f.random.Uint64())
	names := maps.Clone(f.durable)
	// A directory's changes reach the disk in order.
	for _, c := range f.changes[:f.random.IntN(len(f.changes)+1)] {
		c.apply(names)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) { // sorted, so that randomness depends only on the seed
		next.names[name] = newInode(names[name].survive(f.random))
	}
	next.durable = maps.Clone(next.names)
	return next
}

// Clone returns another disk with the same files, all durable.
func (f *Files) Clone() *Files {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := NewFiles(f.random.Uint64())
	for name, node := range f.names {
		next.names[name] = newInode(slices.Clone(node.seen))
	}
	next.durable = maps.Clone(next.names)
	return next
}

// Names returns the names of all files, sorted.
func (f *Files) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.names))
}

// Bytes returns a copy of a file's content; nil if there is none.
func (f *Files) Bytes(name string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if node := f.names[name]; node != nil {
		return append([]byte{}, node.seen...)
	}
	return nil
}

// SetBytes durably sets a file's content.
func (f *Files) SetBytes(name string, content []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := newInode(slices.Clone(content))
	f.names[name], f.durable[name] = node, node
}

// Flip flips one bit of a file.
func (f *Files) Flip(name string, offset int64, bit uint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.names[name]
	content := slices.Clone(node.seen)
	content[offset] ^= 1 << (bit % 8)
	*node = *newInode(content)
}

// RemoveAll durably removes all files and locks. Open files stay usable without a
// name.
func (f *Files) RemoveAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.names)
	clear(f.locks)
	f.durable, f.changes = make(map[string]*inode), nil
}

func (c nameChange) apply(names map[string]*inode) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.node == nil {
		delete(names, c.name)
		return
	}
	names[c.name] = c.node
}

func (f *Files) change(c nameChange) {
	c.apply(f.names)
	f.changes = append(f.changes, c)
}

// MakeDir implements journal.Files; directories are only parts of names.
func (f *Files) MakeDir(string) error { return f.locked(func() error { return nil }) }

// Create implements journal.Files.
func (f *Files) Create(name string) (journal.File, error) {
	node := &inode{}
	err := f.carryOut(Create, name, func() error {
		if f.names[name] != nil {
			return &os.PathError{Op: "create", Path: name, Err: os.ErrExist}
		}
		f.change(nameChange{name: name, node: node})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &file{disk: f, node: node, name: name, write: true}, nil
}

// Open implements journal.Files.
func (f *Files) Open(name string, write bool) (opened journal.File, err error) {
	err = f.locked(func() error {
		node := f.names[name]
		if node == nil {
			return &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		}
		opened = &file{disk: f, node: node, name: name, write: write}
		return nil
	})
	return opened, err
}

// Remove implements journal.Files.
func (f *Files) Remove(name string) error {
	return f.carryOut(Remove, name, func() error {
		if f.names[name] == nil {
			return &os.PathError{Op: "remove", Path: name, Err: os.ErrNotExist}
		}
		f.change(nameChange{name: name})
		return nil
	})
}

// Rename implements journal.Files.
func (f *Files) Rename(from, to string) error {
	return f.carryOut(Rename, to, func() error {
		node := f.names[from]
		if node == nil {
			return &os.PathError{Op: "rename", Path: from, Err: os.ErrNotExist}
		}
		f.change(nameChange{name: to, node: node, from: from})
		return nil
	})
}

// List implements journal.Files.
func (f *Files) List(dir string) (names []string, err error) {
	err = f.locked(func() error {
		for _, name := range slices.Sorted(maps.Keys(f.names)) {
			if filepath.Dir(name) == filepath.Clean(dir) {
				names = append(names, filepath.Base(name))
			}
		}
		return nil
	})
	return names, err
}

// SyncDir implements journal.Files. There is one directory, in effect.
func (f *Files) SyncDir(dir string) error {
	return f.carryOut(SyncDir, dir, func() error {
		f.durable, f.changes = maps.Clone(f.names), nil
		return nil
	})
}

// Space implements journal.Files.
func (f *Files) Space(string) (free, total uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.capacity == 0 {
		return 0, 0, nil
	}
	return uint64(max(0, f.capacity-f.used())), uint64(f.capacity), nil
}

func (f *Files) used() int64 {
	n := int64(0)
	for _, node := range f.names {
		n += int64(len(node.seen))
	}
	return n
}

// Lock implements journal.Files.
func (f *Files) Lock(name string) (held journal.Lock, err error) {
	err = f.locked(func() error {
		if f.locks[name] != nil {
			return fmt.Errorf("lock %s: %w", name, journal.ErrLocked)
		}
		l := &lock{f, name}
		f.locks[name], held = l, l
		return nil
	})
	return held, err
}

type lock struct {
	disk *Files
	name string
}

// Held implements journal.Lock.
func (l *lock) Held() error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	if l.disk.locks[l.name] != l {
		return &os.PathError{Op: "stat", Path: l.name, Err: os.ErrNotExist}
	}
	return nil
}

// Close implements io.Closer.
func (l *lock) Close() error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	if l.disk.locks[l.name] == l {
		delete(l.disk.locks, l.name)
	}
	return nil
}

// sector is the unit of writing of a disk.
const sector = 512

// An inode is a file's content, without its name.
type inode struct {
	seen   []byte   // in the page cache
	synced []byte   // on the disk
	dirty  []change // not yet on the disk
}

// change is a write, or a truncation if data is nil.
type change struct {
	at   int64
	data []byte
}

func (c change) apply(b []byte) []byte {
	if c.data == nil {
		return resize(b, c.at)
	}
	if end := c.at + int64(len(c.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[c.at:], c.data)
	return b
}

func resize(b []byte, n int64) []byte {
	if n <= int64(len(b)) {
		clear(b[n:])
		return b[:n]
	}
	return append(b, make([]byte, n-int64(len(b)))...)
}

// newInode returns an inode with its content on the disk.
func newInode(content []byte) *inode {
	return &inode{seen: content, synced: slices.Clone(content)}
}

func (n *inode) change(c change) {
	n.seen = c.apply(n.seen)
	n.dirty = append(n.dirty, c)
}

func (n *inode) sync() {
	for _, c := range n.dirty {
		n.synced = c.apply(n.synced)
	}
	n.dirty = nil
}

// survive returns the content after a power cut: what was synced, and random
// sectors of the rest.
func (n *inode) survive(random *rand.Rand) []byte {
	out := slices.Clone(n.synced)
	mood := random.Float64() // from almost nothing to almost everything
	for _, c := range n.dirty {
		if c.data == nil {
			if random.Float64() < mood {
				out = c.apply(out)
			}
			continue
		}
		for from := int64(0); from < int64(len(c.data)); {
			to := min(int64(len(c.data)), (c.at+from)/sector*sector+sector-c.at)
			if random.Float64() < mood {
				out = change{c.at + from, c.data[from:to]}.apply(out)
			}
			from = to
		}
	}
	return out
}

// A file is an open inode.
type file struct {
	disk  *Files
	node  *inode
	name  string
	write bool
}

// ReadAt implements journal.File.
func (f *file) ReadAt(p []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.dead {
		return 0, ErrPower
	}
	if at >= int64(len(f.node.seen)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.seen[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements journal.File.
func (f *file) WriteAt(p []byte, at int64) (n int, err error) {
	err = f.disk.carryOut(Write, f.name, func() error {
		n, err = f.writeAt(p, at)
		return err
	})
	return n, err
}

func (f *file) writeAt(p []byte, at int64) (int, error) {
	d := f.disk
	if !f.write {
		return 0, &os.PathError{Op: "write", Path: f.name, Err: os.ErrPermission}
	}
	err := d.failWrite.take()
	n := len(p)
	if err != nil {
		d.failed++
		n /= 2
	} else if grow := at + int64(n) - int64(len(f.node.seen)); d.capacity > 0 && grow > 0 && d.used()+grow > d.capacity {
		d.failed++
		n = int(max(0, int64(n)-(d.used()+grow-d.capacity)))
		err = syscall.ENOSPC
	}
	if n > 0 {
		f.node.change(change{at, slices.Clone(p[:n])})
	}
	if err != nil {
		return n, &os.PathError{Op: "write", Path: f.name, Err: err}
	}
	return n, nil
}

// Truncate implements journal.File.
func (f *file) Truncate(size int64) error {
	return f.disk.locked(func() error {
		f.node.change(change{at: size})
		return nil
	})
}

// Sync implements journal.File.
func (f *file) Sync() error {
	d := f.disk
	return d.carryOut(Sync, f.name, func() error {
		if err := d.failSync.take(); err != nil {
			d.failed++
			// The cache now considers the pages clean; later syncs do not write them.
			f.node.dirty = nil
			return &os.PathError{Op: "sync", Path: f.name, Err: err}
		}
		d.syncs++
		f.node.sync()
		return nil
	})
}

// Size implements journal.File.
func (f *file) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.dead {
		return 0, ErrPower
	}
	return int64(len(f.node.seen)), nil
}

// Close implements journal.File.
func (f *file) Close() error { return nil }
