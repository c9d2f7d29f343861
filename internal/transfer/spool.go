package transfer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"
	"github.com/klauspost/compress/zstd"

	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/internal/machine"
)

// What an export keeps in its folder between runs.
const (
	manifestName = ".brim-export.json"
	lockName     = ".brim-export.lock"
	spoolFolder  = ".brim-export" // a file for each day that is read but not written yet
)

// A manifest has the parameters and the progress of an export. It is replaced atomically.
type manifest struct {
	Version int           `json:"version"`
	Asked   []string      `json:"asked"`
	Format  files.Format  `json:"format"`
	From    int64         `json:"from"` // time range of the readings, in milliseconds
	To      int64         `json:"to"`
	Next    int64         `json:"next"` // the day to read next
	Columns files.Columns `json:"columns"`
	Days    []*dayState   `json:"days"` // days with readings, in order
	Reading *dayProgress  `json:"reading,omitempty"`
}

// A dayState is the state of a day that was read.
type dayState struct {
	Day      int64 `json:"day"` // its start
	Readings int64 `json:"readings"`
	Bytes    int64 `json:"bytes,omitempty"` // of its file, when it is written
	Written  bool  `json:"written"`
}

// dayProgress is the progress of the day that is being read.
type dayProgress struct {
	After    string `json:"after"` // the last sensor that was read
	Bytes    int64  `json:"bytes"` // of the spool
	Readings int64  `json:"readings"`
}

// A folder is where an export writes.
type folder struct {
	path  string
	lock  *flock.Flock
	state manifest
	found bool // the manifest existed before
}

// openFolder creates the folder, or opens one with an interrupted export.
func openFolder(path string) (*folder, error) {
	if err := os.MkdirAll(filepath.Join(path, spoolFolder), 0o755); err != nil {
		return nil, fmt.Errorf("create the folder: %w", err)
	}
	f := &folder{path: path, lock: flock.New(filepath.Join(path, lockName))}
	free, err := f.lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the folder: %w", err)
	}
	if !free {
		return nil, fmt.Errorf("another export is writing to %s", path)
	}
	if err := f.load(); err != nil {
		_ = os.Remove(filepath.Join(path, spoolFolder)) // only if it is empty
		_ = os.Remove(filepath.Join(path, lockName))
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *folder) load() error {
	text, err := os.ReadFile(filepath.Join(f.path, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return f.checkEmpty()
	}
	if err == nil {
		err = json.Unmarshal(text, &f.state)
	}
	if err == nil && f.state.Version != 1 {
		err = fmt.Errorf("its version is %d, and this program knows 1", f.state.Version)
	}
	if err != nil {
		return fmt.Errorf("read what an earlier run left, %s: %w", filepath.Join(f.path, manifestName), err)
	}
	f.found = true
	return nil
}

// checkEmpty refuses a folder with other files.
func (f *folder) checkEmpty() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return fmt.Errorf("read the folder: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			return fmt.Errorf("%s is not empty, and what it has is not of an export; choose another folder", f.path)
		}
	}
	return nil
}

// close unlocks the folder. It removes the working files if the export is complete.
func (f *folder) close() error {
	if f.complete() {
		_ = os.RemoveAll(filepath.Join(f.path, spoolFolder)) // leftovers are harmless
		_ = os.Remove(filepath.Join(f.path, lockName))
	}
	return f.lock.Close()
}

// complete reports whether nothing is left to do.
func (f *folder) complete() bool {
	unwritten := slices.ContainsFunc(f.state.Days, func(d *dayState) bool { return !d.Written })
	return f.state.Version > 0 && f.state.Next >= f.state.To && f.state.Reading == nil && !unwritten
}

// checkFiles checks that the files of a complete export are still there.
func (f *folder) checkFiles() error {
	for _, d := range f.state.Days {
		path := f.dayPath(d.Day)
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s is missing, and this export was complete: nothing was read; choose another folder to export again", path)
		case err != nil:
			return fmt.Errorf("find the file of a day: %w", err)
		case info.Size() != d.Bytes:
			return fmt.Errorf("%s has %d bytes, and had %d when this export was completed: nothing was read; choose another folder to export again", path, info.Size(), d.Bytes)
		}
	}
	return nil
}

// save makes the state durable.
func (f *folder) save() error {
	text, err := json.Marshal(&f.state)
	if err != nil {
		return fmt.Errorf("write the state of the export: %w", err)
	}
	return machine.ReplaceFile(filepath.Join(f.path, manifestName), append(text, '\n'), nil)
}

// spoolPath returns the path of a day's spool.
func (f *folder) spoolPath(day int64) string {
	name := dayName(day) + ".ndjson"
	if f.state.Format != files.NDJSON {
		name += ".zst"
	}
	return filepath.Join(f.path, spoolFolder, name)
}

// dayPath returns the path of a day's file.
func (f *folder) dayPath(day int64) string {
	return filepath.Join(f.path, "day="+dayName(day), "readings."+string(f.state.Format))
}

// publish moves a file durably to the path of the day's file.
func (f *folder) publish(from string, day int64) error {
	to := f.dayPath(day)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("create the folder of the day: %w", err)
	}
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("rename the file of the day: %w", err)
	}
	if err := machine.SyncFolder(filepath.Dir(to)); err != nil {
		return fmt.Errorf("sync the folder of the day: %w", err)
	}
	if err := machine.SyncFolder(f.path); err != nil {
		return fmt.Errorf("sync the folder: %w", err)
	}
	return nil
}

// A spool has the readings of a day as NDJSON. Unless NDJSON is the export's format, it is
// compressed in frames, so that it can be truncated at the end of a frame and appended to.
type spool struct {
	file *os.File
	buf  *bufio.Writer
	zstd *zstd.Encoder // nil: it is not compressed
}

// openSpool opens the spool of a day, and truncates it to the given size.
func (f *folder) openSpool(day, bytes int64) (*spool, error) {
	path := f.spoolPath(day)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the file for the day: %w", err)
	}
	s := &spool{file: file, buf: bufio.NewWriterSize(file, 256<<10)}
	err = file.Truncate(bytes)
	if err == nil {
		_, err = file.Seek(bytes, io.SeekStart)
	}
	if err == nil && f.state.Format != files.NDJSON {
		s.zstd, err = zstd.NewWriter(s.buf, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the file for the day: %w", err), file.Close())
	}
	return s, nil
}

func (s *spool) write(lines []byte) error {
	var to io.Writer = s.buf
	if s.zstd != nil {
		to = s.zstd
	}
	if _, err := to.Write(lines); err != nil {
		return fmt.Errorf("write the readings of the day: %w", err)
	}
	return nil
}

// sync makes what was written durable, and returns how many bytes the file has.
func (s *spool) sync() (size int64, err error) {
	if s.zstd != nil {
		if err = s.zstd.Close(); err == nil { // ends a frame; Reset begins the next
			s.zstd.Reset(s.buf)
		}
	}
	err = errors.Join(err, s.buf.Flush())
	if err == nil {
		err = s.file.Sync()
	}
	if err == nil {
		size, err = s.file.Seek(0, io.SeekCurrent)
	}
	if err != nil {
		return 0, fmt.Errorf("write the readings of the day: %w", err)
	}
	return size, nil
}

func (s *spool) close() error { return s.file.Close() }
