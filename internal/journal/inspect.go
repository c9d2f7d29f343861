package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A Report is what Inspect finds in a journal's directory.
type Report struct {
	Dir string `json:"dir"`

	// From the mark, which may lag behind by the last few milliseconds, or by more
	// after a loss of power: everything before Applied is at rest. Marked is false
	// where there is no mark; then nothing is known to be.
	Marked  bool   `json:"marked"`
	Applied uint64 `json:"applied"`
	Durable uint64 `json:"durable"` // position before which everything is known to be durable
	End     uint64 `json:"end"`     // position behind the last good record

	Bytes     int64           `json:"bytes"`
	Segments  []SegmentReport `json:"segments"`
	Unapplied []Unapplied     `json:"unapplied"` // not known to be stored, by session and stream
	Oldest    time.Time       `json:"oldest"`    // arrival of the first of those; zero if there is none
	Keys      int             `json:"keys"`      // idempotency keys in segments and files of keys, expired ones counted

	Problems []Problem `json:"problems"` // places where there is no good record and should be one
	GivenUp  []GivenUp `json:"given_up"` // at earlier starts
}

// A SegmentReport is one file of the journal.
type SegmentReport struct {
	File     string    `json:"file"`
	Session  string    `json:"session"`
	Started  time.Time `json:"started"` // the session
	Bytes    int64     `json:"bytes"`
	Base     uint64    `json:"base"` // position of the first record
	End      uint64    `json:"end"`  // position behind the last good one
	Records  int       `json:"records"`
	Readings uint64    `json:"readings"`
	FirstSeq uint64    `json:"first_seq"` // of the first and the last reading; 0 if there is none
	LastSeq  uint64    `json:"last_seq"`
}

// A Problem is a place where there should be a good record.
type Problem struct {
	File     string `json:"file"` // the directory where a segment is missing
	Offset   int64  `json:"offset"`
	Position uint64 `json:"position"`
	Wrong    string `json:"wrong"`
	// Torn: the end of what was being written, never acknowledged. Also seen while
	// a daemon is writing. AtRest: what was there is stored. Neither: damage.
	Torn   bool `json:"torn"`
	AtRest bool `json:"at_rest"`
}

// GivenUp is a part of the journal that could not be read and was left out.
type GivenUp struct {
	From uint64    `json:"from"`
	To   uint64    `json:"to"`
	Copy string    `json:"copy"` // of the file as it was; empty where it was missing
	When time.Time `json:"when"`
}

// Damaged reports whether something that was acknowledged cannot be read.
func (r *Report) Damaged() bool {
	for _, p := range r.Problems {
		if !p.Torn && !p.AtRest {
			return true
		}
	}
	return false
}

// Inspect reads the journal in a directory, verifies every checksum, and
// changes nothing. It takes no lock, so that it works beside a running daemon.
// files may be nil for the file system.
func Inspect(dir string, files Files) (Report, error) {
	if files == nil {
		files = osFiles{}
	}
	out := Report{Dir: dir}
	last, marked, err := readMark(files, dir)
	if err != nil {
		return Report{}, fmt.Errorf("read the journal's mark: %w", err)
	}
	lost, err := readLost(files, dir)
	if err != nil {
		return Report{}, fmt.Errorf("read what was given up of the journal: %w", err)
	}
	for _, s := range lost {
		out.GivenUp = append(out.GivenUp, GivenUp{From: s.From, To: s.To, Copy: s.File, When: s.When})
	}
	out.Marked, out.Applied = marked, last.applied
	tally := newTally(last.applied)
	s := &scan{
		files: files, dir: dir, check: true, applied: last.applied, durable: last.durable, lost: lost,
		record: func(s *segment, r *scanned) error {
			if r.key != nil {
				out.Keys++
			}
			at, left, err := tally.add(s, r)
			if left && out.Oldest.IsZero() {
				out.Oldest = at
			}
			return err
		},
	}
	segments, err := s.all()
	if err != nil {
		return Report{}, fmt.Errorf("read the journal in %s: %w", dir, err)
	}
	out.Durable, out.Unapplied = s.durable, tally.unapplied
	out.describe(segments, last, marked, s)
	if err := out.countKeys(files); err != nil {
		return Report{}, err
	}
	return out, nil
}

func (r *Report) describe(segments []*found, last mark, marked bool, s *scan) {
	r.End = last.applied
	for _, f := range segments {
		r.Bytes += f.size
		r.End = max(r.End, f.end)
		r.Segments = append(r.Segments, SegmentReport{
			File: filepath.Join(r.Dir, f.name), Session: f.settings.Session, Started: f.settings.Started, Bytes: f.size,
			Base: f.base, End: f.end, Records: f.records, Readings: f.readings, FirstSeq: f.firstSeq, LastSeq: f.lastSeq,
		})
	}
	for _, b := range s.badPlaces(segments, marked) {
		r.Problems = append(r.Problems, Problem{
			File: filepath.Join(r.Dir, b.segment), Offset: b.offset, Position: b.from, Wrong: b.wrong, Torn: b.verdict == torn, AtRest: b.verdict == stored,
		})
	}
}

func (r *Report) countKeys(files Files) error {
	names, err := keyFileNames(files, r.Dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", r.Dir, err)
	}
	for _, name := range names {
		name = filepath.Join(r.Dir, name)
		content, err := readWhole(files, name, maxKeyFile)
		if errors.Is(err, os.ErrNotExist) {
			continue // the daemon that runs deleted it just now
		}
		if err != nil {
			return fmt.Errorf("read idempotency keys: %w", err)
		}
		entries, err := decodeKeys(content)
		if err != nil {
			r.Problems = append(r.Problems, Problem{File: name, Wrong: err.Error(), AtRest: true})
			continue
		}
		r.Keys += len(entries)
	}
	return nil
}
