package batch

import "time"

// A Ref is one reading inside its batch.
type Ref struct {
	Batch *Batch
	Index uint32
}

// Row returns the reading.
func (r Ref) Row() *Row { return &r.Batch.rows[r.Index] }

// Seq returns the reading's sequence within its session.
func (r Ref) Seq() uint64 {
	if places := r.Batch.places; places != nil {
		return r.Batch.FirstSeq + uint64(places[r.Index])
	}
	return r.Batch.FirstSeq + uint64(r.Index)
}

// Arrival returns when the reading's request arrived, in milliseconds since the epoch.
func (r Ref) Arrival() int64 {
	if arrivals := r.Batch.arrivals; arrivals != nil {
		return arrivals[r.Index]
	}
	return r.Batch.Received.UnixMilli()
}

// Pending holds the readings of one bucket that are not stored yet. A lane passes it to a
// store repeatedly, until nothing is left. It belongs to its lane, and to the store
// during a write.
type Pending struct {
	Stream      string
	Sensor      string
	Start       int64         // of the bucket's window, milliseconds since the epoch
	Granularity time.Duration // length of the window
	Session     string        // that the rows were journaled under
	Recovered   bool          // the rows may have been sent before this process started

	// Rows are pending, in rising sequence. A write removes what is stored, without
	// changing the array behind the slice.
	Rows []Ref

	// Verdict and Err are the outcome of the last write.
	Verdict Verdict
	Err     error

	// Found counts the rows that the last write removed because an earlier write had
	// stored them.
	Found int

	// State is the store's memory of this bucket between writes. Losing it costs a
	// lookup in the database, never correctness.
	State any

	// Hung is how many writes in a row ended with the verdict Hangs. A store gives
	// the next of these writes more time.
	Hung int
}

// Verdict is what a store says about pending rows after a write.
type Verdict uint8

const (
	// Stored: every row is stored, none is left.
	Stored Verdict = iota
	// Again: what is left can be written at once; something was stored or learned.
	Again
	// Wait: what is left is not stored, or not known to be; Err says why. Write it
	// again after a while.
	Wait
	// Unsent: nothing was tried, because the commands before it failed, as Err says.
	// Write it again after a while.
	Unsent
	// Hangs: the write was given up because it alone was not answered, while the
	// database answered others. It may still be applied; write it again where
	// nothing has to wait for it.
	Hangs
	// Poison: the database refuses the first row for its content, as Err says,
	// however it is written. The rest can be written at once.
	Poison
)

// DropStored removes the leading rows with sequences up to last and returns how many
// they were.
func (s *Pending) DropStored(last uint64) int {
	n := 0
	for n < len(s.Rows) && s.Rows[n].Seq() <= last {
		n++
	}
	s.Drop(n)
	return n
}

// Drop removes the first n rows, which are stored or refused.
func (s *Pending) Drop(n int) {
	release(s.Rows[:n])
	s.Rows = s.Rows[n:]
}

// DropWhere removes the rows for which stored returns true, and returns how many they
// were.
func (s *Pending) DropWhere(stored func(Ref) bool) int {
	rest := make([]Ref, 0, len(s.Rows))
	for i, r := range s.Rows {
		if stored(r) {
			release(s.Rows[i : i+1])
		} else {
			rest = append(rest, r)
		}
	}
	dropped := len(s.Rows) - len(rest)
	s.Rows = rest
	return dropped
}

// release tells the trackers of rows that these are stored or refused.
func release(rows []Ref) {
	for i := 0; i < len(rows); {
		n := 1
		for i+n < len(rows) && rows[i+n].Batch == rows[i].Batch {
			n++
		}
		if t := rows[i].Batch.Tracker; t != nil {
			t.Released(n)
		}
		i += n
	}
}
