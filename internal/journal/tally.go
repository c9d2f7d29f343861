package journal

import "time"

// A tally counts the readings that are not known to be stored.
type tally struct {
	applied   uint64
	readings  uint64
	unapplied []Unapplied
	at        map[[2]string]int // index by session and stream
}

func newTally(applied uint64) *tally { return &tally{applied: applied, at: make(map[[2]string]int)} }

// add looks into a record. left says that its readings were counted.
func (t *tally) add(s *segment, r *scanned) (received time.Time, left bool, err error) {
	var visit func([]byte, int)
	if left = r.position >= t.applied; left {
		visit = func(stream []byte, n int) { t.count(s, stream, uint64(n)) }
	}
	sum, err := r.summarize(visit)
	if err != nil {
		if left { // what was counted before the error is taken back
			_, _ = r.summarize(func(stream []byte, n int) { t.count(s, stream, -uint64(n)) })
		}
		return time.Time{}, false, err
	}
	return sum.Received, left, nil
}

func (t *tally) count(s *segment, stream []byte, n uint64) {
	t.readings += n
	if k := len(t.unapplied) - 1; k >= 0 && t.unapplied[k].Session == s.settings.Session && t.unapplied[k].Stream == string(stream) {
		t.unapplied[k].Readings += n
		return
	}
	key := [2]string{s.settings.Session, string(stream)}
	i, ok := t.at[key]
	if !ok {
		i = len(t.unapplied)
		t.at[key] = i
		t.unapplied = append(t.unapplied, Unapplied{Session: key[0], Stream: key[1], Settings: s.settings.Streams[key[1]]})
	}
	t.unapplied[i].Readings += n
}
