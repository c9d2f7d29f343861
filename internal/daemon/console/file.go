package console

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/scrape"
)

const (
	fileFormat = 2
	// maxFile bounds what is read of a file that may be anything: twice what 256
	// streams take when each is written in every second.
	maxFile = 64 << 20
)

// saved is the form of the file: gob within gzip, whose checksum finds damage.
type saved struct {
	Format      int
	Names       []string
	Seconds     []second
	Checkpoints []savedCheckpoint
}

type savedCheckpoint struct {
	At       int64 // Unix milliseconds
	Run      int
	Families [][]byte // protobuf
}

// save writes the history into the file. What goes wrong is logged when it
// begins and when it ends, not every ten seconds in between.
func (c *Console) save() {
	if c.cfg.File == "" {
		return
	}
	c.mu.Lock()
	s, err := c.history.saved()
	c.mu.Unlock()
	if err == nil {
		err = replace(c.cfg.File, s.encode)
	}
	switch {
	case err != nil && !c.unsaved:
		c.unsaved = true
		c.log.Warn("cannot keep the live page's history", "file", c.cfg.File, "err", err)
	case err == nil && c.unsaved:
		c.unsaved = false
		c.log.Info("the live page's history is kept again", "file", c.cfg.File)
	}
}

// load takes over the history of an earlier process. A file that is too old is
// of no use, one that is damaged neither; the page just begins anew.
func (c *Console) load() {
	s, err := read(c.cfg.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err == nil:
		err = c.history.restore(s, c.cfg.Now())
	}
	if err != nil {
		c.log.Warn("the live page's history cannot be read and begins anew", "file", c.cfg.File, "err", err)
	}
}

// saved returns a copy of the history, with a checkpoint of the last look.
func (h *history) saved() (*saved, error) {
	out := &saved{Format: fileFormat, Names: slices.Clone(h.names), Seconds: slices.Clone(h.seconds)}
	checkpoints := h.checkpoints
	if h.last != nil {
		checkpoints = append(slices.Clip(checkpoints), checkpoint{at: h.lastAt.UnixMilli(), run: h.run, look: summed(h.last)})
	}
	for _, c := range checkpoints {
		one := savedCheckpoint{At: c.at, Run: c.run}
		for _, name := range sums {
			if c.look[name] == nil {
				continue
			}
			raw, err := proto.Marshal(c.look[name])
			if err != nil {
				return nil, fmt.Errorf("encode %s: %w", name, err)
			}
			one.Families = append(one.Families, raw)
		}
		out.Checkpoints = append(out.Checkpoints, one)
	}
	return out, nil
}

// restore fills an empty history.
func (h *history) restore(s *saved, now time.Time) error {
	if s.Format != fileFormat {
		return fmt.Errorf("read the history: its format is %d, not %d", s.Format, fileFormat)
	}
	if !s.sound() {
		return errors.New("read the history: its streams make no sense")
	}
	restored := history{most: h.most, names: s.Names, seconds: s.Seconds}
	for _, c := range s.Checkpoints {
		look := make(scrape.Look, len(c.Families))
		for _, raw := range c.Families {
			var f dto.MetricFamily
			if err := proto.Unmarshal(raw, &f); err != nil {
				return fmt.Errorf("read the history: %w", err)
			}
			look[f.GetName()] = &f
		}
		restored.checkpoints = append(restored.checkpoints, checkpoint{at: c.At, run: c.Run, look: look})
		restored.run = max(restored.run, c.Run+1)
	}
	slices.SortStableFunc(restored.seconds, func(a, b second) int { return int(a.At - b.At) })
	restored.forget(now)
	restored.prune()
	*h = restored
	return nil
}

// sound reports whether every place is that of a name, and they are in order.
func (s *saved) sound() bool {
	if len(s.Names) == 0 || s.Names[0] != "" || len(s.Names) > maxStreams+1 {
		return false
	}
	for i := range s.Seconds {
		last := int32(-1)
		for _, w := range s.Seconds[i].Writes {
			if w.Place <= last || int(w.Place) >= len(s.Names) {
				return false
			}
			last = w.Place
		}
	}
	return true
}

func (s *saved) encode(to io.Writer) error {
	zip, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(zip).Encode(s), zip.Close())
}

// replace writes a file beside another and then in its place, so that there is
// always a whole one. The name is always the same: what a crash leaves is
// written over by the next. It is not synced: a machine that goes down takes a
// picture with it, and an fsync every ten seconds would hold up the journal's.
func replace(path string, write func(io.Writer) error) error {
	beside := path + ".new"
	f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		return fmt.Errorf("write the history: %w", errors.Join(err, os.Remove(beside)))
	}
	return nil
}

// read reads a whole file before it believes any of it, since the checksum
// comes last.
func read(path string) (*saved, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(zip, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	if len(raw) > maxFile {
		return nil, fmt.Errorf("read the history: it is larger than %d bytes", maxFile)
	}
	s := new(saved)
	if err := gob.NewDecoder(bytes.NewReader(raw)).Decode(s); err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	return s, nil
}
