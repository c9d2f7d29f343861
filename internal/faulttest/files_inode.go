package faulttest

import (
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
)

// sector is what a disk writes as one.
const sector = 512

// An inode is a file without its name.
type inode struct {
	seen   []byte   // as in the page cache
	synced []byte   // as on the disk
	dirty  []change // on the way to it
}

// change is a write, or a cut where data is nil.
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

func (n *inode) reset(content []byte) {
	n.seen, n.synced, n.dirty = content, slices.Clone(content), nil
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

// survive returns what is left after a loss of power: what was synced, and any
// part of the rest, sector by sector.
func (n *inode) survive(random *rand.Rand) []byte {
	out := slices.Clone(n.synced)
	mood := random.Float64() // from nothing to nearly everything
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
func (f *file) WriteAt(p []byte, at int64) (int, error) {
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(); err != nil {
		return 0, err
	}
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
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.begin(); err != nil {
		return err
	}
	f.node.change(change{at: size})
	return nil
}

// Sync implements journal.File.
func (f *file) Sync() error {
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(); err != nil {
		return err
	}
	if err := d.failSync.take(); err != nil {
		d.failed++
		// The cache takes the pages for clean now; no later sync writes them.
		f.node.dirty = nil
		return &os.PathError{Op: "sync", Path: f.name, Err: err}
	}
	d.syncs++
	f.node.sync()
	return nil
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
