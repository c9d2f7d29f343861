package journal

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// A Report is what Inspect finds in a journal's directory.
type Report struct {
	Dir string `json:"dir"`

	// Everything before Applied is stored. Applied is from the mark, which may lag by a few
	// milliseconds, or by more after a power failure. Marked is false if there is no mark; then
	// nothing is known to be stored.
	Marked  bool   `json:"marked"`
	Applied uint64 `json:"applied"`
	Durable uint64 `json:"durable"` // position before which everything is known to be durable
	End     uint64 `json:"end"`     // position after the last good record

	Bytes     int64           `json:"bytes"`
	Segments  []SegmentReport `json:"segments"`
	Unapplied []Unapplied     `json:"unapplied"` // not known to be stored, by session and stream
	Oldest    time.Time       `json:"oldest"`    // arrival of the first of those; zero if there is none
	Keys      int             `json:"keys"`      // idempotency keys in segments and files of keys, including expired ones

	Problems []Problem `json:"problems"` // places where a good record is missing
	GivenUp  []GivenUp `json:"given_up"` // at earlier starts
}

// A SegmentReport is one file of the journal.
type SegmentReport struct {
	File     string    `json:"file"`
	Session  string    `json:"session"`
	Started  time.Time `json:"started"` // the session
	Bytes    int64     `json:"bytes"`
	Base     uint64    `json:"base"` // position of the first record
	End      uint64    `json:"end"`  // position after the last good record
	Records  int       `json:"records"`
	Readings uint64    `json:"readings"`
	FirstSeq uint64    `json:"first_seq"` // of the first and the last reading; 0 if there is none
	LastSeq  uint64    `json:"last_seq"`
}

// A Problem is a place where there should be a good record.
type Problem struct {
	File     string `json:"file"` // with its directory; the directory alone if a segment is missing
	Offset   int64  `json:"offset"`
	Position uint64 `json:"position"` // in the journal
	Wrong    string `json:"wrong"`
	// Torn: an incomplete write at the end, never acknowledged; also seen while a
	// daemon is writing. Stored: the content is in MongoDB. Neither: damage.
	Torn   bool `json:"torn"`
	Stored bool `json:"at_rest"`
}

// GivenUp is a range of the journal that could not be read and was left out.
type GivenUp struct {
	From uint64    `json:"from"`
	To   uint64    `json:"to"`
	Copy string    `json:"copy"` // of the file as it was; empty if it was missing
	When time.Time `json:"when"`
}

// Damaged reports whether something that was acknowledged cannot be read.
func (r *Report) Damaged() bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return !p.Torn && !p.Stored })
}

// Inspect reads the journal in a directory and verifies every checksum. It changes
// nothing and takes no lock, so it works while a daemon is running. files may be nil
// for the file system.
func Inspect(dir string, files Files) (Report, error) {
	if files == nil {
		files = osFiles{}
	}
	out := Report{Dir: dir}
	last, marked, err := readMark(files, dir)
	if err != nil {
		return Report{}, fmt.Errorf("read the journal's mark: %w", err)
	}
	s := newScan(files, dir, last)
	if err := readJSON(files, filepath.Join(dir, lostName), &s.lost); err != nil {
		return Report{}, fmt.Errorf("read what was given up of the journal: %w", err)
	}
	for _, one := range s.lost {
		out.GivenUp = append(out.GivenUp, GivenUp(one))
	}
	s.visit = func(r *record, received time.Time, unapplied bool) {
		if r.key != nil {
			out.Keys++
		}
		if unapplied && out.Oldest.IsZero() {
			out.Oldest = received
		}
	}
	if err := s.run(); err != nil {
		return Report{}, fmt.Errorf("read the journal in %s: %w", dir, err)
	}
	out.Marked, out.Applied, out.Durable, out.Unapplied = marked, last.applied, s.durable, s.unapplied
	out.End = last.applied
	for _, f := range s.segments {
		out.End = max(out.End, f.end)
		out.Bytes += f.size
		out.Segments = append(out.Segments, SegmentReport{
			File: filepath.Join(dir, f.name), Session: f.settings.Session, Started: f.settings.Started, Bytes: f.size,
			Base: f.base, End: f.end, Records: f.records, Readings: f.readings, FirstSeq: f.firstSeq, LastSeq: f.lastSeq,
		})
	}
	for _, b := range s.badRanges(marked) {
		out.Problems = append(out.Problems, b.Problem)
	}
	err = eachKeyFile(files, dir, func(f keyFile, entries []keyEntry, wrong error) {
		if wrong != nil {
			out.Problems = append(out.Problems, Problem{File: filepath.Join(dir, f.name), Wrong: wrong.Error(), Stored: true})
		}
		out.Keys += len(entries)
	})
	if err != nil {
		return Report{}, fmt.Errorf("read idempotency keys: %w", err)
	}
	return out, nil
}
