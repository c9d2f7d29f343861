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

func readLost(files Files, dir string) ([]span, error) {
	content, err := readWhole(files, filepath.Join(dir, lostName), 64<<20)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var lost []span
	if err := json.Unmarshal(content, &lost); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, lostName), err)
	}
	return lost, nil
}

func writeLost(files Files, dir string, lost []span) error {
	content, err := json.MarshalIndent(lost, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(files, filepath.Join(dir, lostName), append(content, '\n'))
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

// copyFile keeps a file as it is under another name.
func copyFile(files Files, from, to string) error {
	src, err := files.Open(from, false)
	if err != nil {
		return err
	}
	defer src.Close()
	size, err := src.Size()
	if err != nil {
		return err
	}
	temp := to + tempSuffix
	if err := files.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	dst, err := files.Create(temp)
	if err != nil {
		return err
	}
	w := &window{file: src, limit: size, ahead: scanAhead}
	for at := int64(0); at < size && err == nil; {
		var piece []byte
		if piece, err = w.peek(at, scanAhead); err == nil {
			_, err = dst.WriteAt(piece, at)
			at += int64(max(len(piece), 1))
		}
	}
	if err == nil {
		err = dst.Sync()
	}
	if err = errors.Join(err, dst.Close()); err == nil {
		err = files.Rename(temp, to)
	}
	if err != nil {
		return errors.Join(err, files.Remove(temp)) // a full disk needs its room
	}
	return files.SyncDir(filepath.Dir(to))
}
