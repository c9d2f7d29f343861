package transfer

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/internal/files"
)

// progress is the state of importing a file into a stream.
type progress struct {
	Version int    `json:"version"`
	Path    string `json:"path"` // for people
	Stream  string `json:"stream"`
	Daemon  string `json:"daemon"`
	// Run is part of the keys of requests when a file is imported again.
	Run      string `json:"run,omitempty"`
	Chunks   int    `json:"chunks"`          // number of chunks acknowledged, without a gap
	Ahead    []int  `json:"ahead,omitempty"` // further acknowledged chunks
	Readings int64  `json:"readings"`
	Refused  int64  `json:"refused"`
	Complete bool   `json:"complete"`

	file      string // path of the state file
	identity  string
	continued bool
	skipped   bool // it was complete before
}

// openProgress reads the progress of an earlier run. It is identified by the file's content, the
// daemon, the stream, and the options that affect how rows are read.
func (c *ImportConfig) openProgress(file *os.File, size int64) (*progress, error) {
	content := sha256.New()
	if _, err := io.Copy(content, io.NewSectionReader(file, 0, size)); err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	format := c.Format
	if of, ok := files.FormatOf(filepath.Base(file.Name())); ok && of == format {
		format = "" // as if it had not been given
	}
	of := sha256.Sum256(fmt.Appendf(nil, "%x\n%q %q\n%q %q", content.Sum(nil), c.Daemon, c.Stream, format, c.Options))
	identity := hex.EncodeToString(of[:16])
	fresh := &progress{Version: 1, Path: file.Name(), Stream: c.Stream, Daemon: c.Daemon, file: filepath.Join(c.StateDir, identity+".json"), identity: identity}
	text, err := os.ReadFile(fresh.file)
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	known := progress{file: fresh.file, identity: fresh.identity}
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err == nil && known.Version != 1 {
		err = fmt.Errorf("its version is %d, and this program knows 1", known.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("read how far an earlier import came, %s: %w", fresh.file, err)
	}
	if known.Complete && c.Again {
		fresh.Run = rand.Text()
		return fresh, fresh.save() // so that a run that continues this one has the same keys
	}
	return &known, nil
}

// key returns the idempotency key of a chunk's request.
func (p *progress) key(number int) string {
	of := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", p.identity, p.Run, number))
	return "import-" + hex.EncodeToString(of[:16])
}

// has reports whether a chunk was acknowledged.
func (p *progress) has(number int) bool {
	return number < p.Chunks || slices.Contains(p.Ahead, number)
}

// add records that a chunk was acknowledged.
func (p *progress) add(number int) {
	p.Ahead = append(p.Ahead, number)
	slices.Sort(p.Ahead)
	for len(p.Ahead) > 0 && p.Ahead[0] == p.Chunks {
		p.Ahead = p.Ahead[1:]
		p.Chunks++
	}
}

// save replaces the state file. It does not sync it: after a machine failure, the idempotency keys
// of the last requests prevent storing them twice.
func (p *progress) save() error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("record the progress: %w", err)
	}
	next := strings.TrimSuffix(p.file, ".json") + ".new"
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("record the progress: %w", err)
	}
	if err := os.Rename(next, p.file); err != nil {
		return fmt.Errorf("record the progress: %w", err)
	}
	return nil
}
