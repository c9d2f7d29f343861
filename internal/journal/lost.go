package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"
)

// A span is a part of the journal that was given up because it could not be
// read. Spans are kept in a file, so that the next start knows of them.
type span struct {
	From uint64    `json:"from"`
	To   uint64    `json:"to"`
	File string    `json:"file"` // where a copy of what was damaged is; empty where a file was missing
	When time.Time `json:"when"`
}

const (
	lostName      = "lost"
	corruptSuffix = ".corrupt"
)

// lostAt returns the span that covers a position, or nil.
func lostAt(lost []span, position uint64) *span {
	i := sort.Search(len(lost), func(i int) bool { return lost[i].To > position })
	if i < len(lost) && lost[i].From <= position {
		return &lost[i]
	}
	return nil
}

// givenUp returns the bytes of all spans.
func givenUp(lost []span) uint64 {
	n := uint64(0)
	for _, s := range lost {
		n += s.To - s.From
	}
	return n
}

func readLost(files Files, dir string) (lost []span, err error) {
	err = readJSON(files, filepath.Join(dir, lostName), &lost)
	return lost, err
}

func writeLost(files Files, dir string, lost []span) error {
	return writeJSON(files, filepath.Join(dir, lostName), lost)
}

// readJSON reads a file, and nothing where there is none.
func readJSON(files Files, path string, into any) error {
	content, err := readWhole(files, path, 64<<20)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func writeJSON(files Files, path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(files, path, append(content, '\n'))
}

// addLost returns the spans with another one, sorted and without overlaps.
func addLost(lost []span, s span) []span {
	lost = append(lost, s)
	sort.Slice(lost, func(i, k int) bool { return lost[i].From < lost[k].From })
	out := lost[:1]
	for _, one := range lost[1:] {
		last := &out[len(out)-1]
		if one.From < last.To {
			last.To = max(last.To, one.To)
			continue
		}
		out = append(out, one)
	}
	return out
}

// copyFile copies a file to a new one, which gets the name to once it is durable.
// Both names may be the same.
func copyFile(files Files, from, to string) error {
	temp := to + tempSuffix
	if err := files.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	dst, err := files.Create(temp)
	if err != nil {
		return err
	}
	if err = errors.Join(copyContent(files, from, dst), dst.Close()); err == nil {
		err = files.Rename(temp, to)
	}
	if err != nil {
		return errors.Join(err, files.Remove(temp)) // a full disk needs its room
	}
	return files.SyncDir(filepath.Dir(to))
}

// copyContent copies the content of a file to the same offsets of dst, and syncs
// that.
func copyContent(files Files, from string, dst File) error {
	src, err := files.Open(from, false)
	if err != nil {
		return err
	}
	defer src.Close()
	size, err := src.Size()
	if err != nil {
		return err
	}
	w := &window{file: src, limit: size, ahead: scanAhead}
	for offset := int64(0); offset < size; {
		piece, err := w.peek(offset, scanAhead)
		if err != nil {
			return err
		}
		if _, err := dst.WriteAt(piece, offset); err != nil {
			return err
		}
		offset += int64(max(len(piece), 1))
	}
	return dst.Sync()
}
