// Package fault injects faults where a test asks for them. The packages on the
// write path name the points at which the process may crash and the protections
// that keep their promises; an Injector crashes the process at a point and
// switches protections off. A nil Injector does neither, and only programs built
// with the tag fault have another.
package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Point is a place on the write path.
type Point string

// The points of the write path, in order.
const (
	BeforeAppend    Point = "append.before"     // nothing of a request is written
	AfterAppend     Point = "append.after"      // written, not fsynced yet
	BeforeFsync     Point = "fsync.before"      //
	AfterFsync      Point = "fsync.after"       // durable, not acknowledged
	BeforeAck       Point = "ack.before"        // the request is about to be answered
	AfterAck        Point = "ack.after"         // the answer is with the server
	BeforeBulk      Point = "bulk.before"       // an update is about to be sent
	AfterBulk       Point = "bulk.after"        // its reply arrived
	BeforeClosePart Point = "close-part.before" // a part is about to be fenced
	AfterClosePart  Point = "close-part.after"
	BeforeTrim      Point = "trim.before" // the journal is about to delete what is stored
	AfterTrim       Point = "trim.after"
)

// The points of a move of a collection, in order.
const (
	MoveCreated  Point = "move.created"  // the new collection is there, and empty
	MoveCopied   Point = "move.copied"   // some groups are written, the state does not say so
	MoveFollowed Point = "move.followed" // changed groups are copied again, the state does not say so
	MoveVerified Point = "move.verified" // some groups are compared, the state does not say so
	MoveFenced   Point = "move.fenced"   // daemons wait
	MoveDrained  Point = "move.drained"  // both collections are equal
	MoveSwapping Point = "move.swapping" // the state says that the names are being swapped; they are not yet
	MoveHalf     Point = "move.half"     // one of two renames is done
	MoveSwapped  Point = "move.swapped"  // they are swapped, the state does not say so
)

// The points of a change of storage, in the order of either direction.
const (
	SeriesFenced    Point = "series.fenced"    // the buckets refuse writes, the state does not say so
	SeriesRenamed   Point = "series.renamed"   // the name is free
	SeriesMade      Point = "series.made"      // the time-series collection exists, the state does not say so
	SeriesSent      Point = "series.sent"      // old readings are inserted, the state does not say so
	SeriesWritten   Point = "series.written"   // bucket documents are written beside a time series
	SeriesSwitching Point = "series.switching" // the time series is about to be dropped
	SeriesDropped   Point = "series.dropped"   // the name is free
)

// SeriesPoints lists those of a change of storage, which are not on the write path.
func SeriesPoints() []Point {
	return []Point{SeriesFenced, SeriesRenamed, SeriesMade, SeriesSent, SeriesWritten, SeriesSwitching, SeriesDropped}
}

// MovePoints lists those of a move, which are not on the write path.
func MovePoints() []Point {
	return []Point{
		MoveCreated, MoveCopied, MoveFollowed, MoveVerified, MoveFenced, MoveDrained, MoveSwapping, MoveHalf, MoveSwapped,
	}
}

// Points lists those of the write path.
func Points() []Point {
	return []Point{
		BeforeAppend, AfterAppend, BeforeFsync, AfterFsync, BeforeAck, AfterAck,
		BeforeBulk, AfterBulk, BeforeClosePart, AfterClosePart, BeforeTrim, AfterTrim,
	}
}

// A Protection is a rule without which readings would be lost or stored twice.
type Protection string

// The protections that can be switched off.
const (
	Fsync        Protection = "fsync"         // acknowledge only what is fsynced
	Replay       Protection = "replay"        // store what an earlier process left in the journal
	Order        Protection = "order"         // sequence, journal and lane position in one critical section
	GuardFirst   Protection = "guard-first"   // the guard is on the first sequence of an update, not on the last
	Guard        Protection = "guard"         // any guard at all
	Fence        Protection = "fence"         // a part is closed before its readings continue in the next
	Look         Protection = "lookup"        // after a crash all parts are read before readings are sent again
	OneInFlight  Protection = "one-in-flight" // one update of a bucket in flight
	Retry        Protection = "retry"         // what is not known to be stored is kept
	NewSession   Protection = "new-session"   // sessions are never used twice
	Lock         Protection = "lock"          // one daemon per journal
	Home         Protection = "folder"        // a journal whose folder was removed or replaced accepts nothing
	Claim        Protection = "claim"         // one daemon per session, wherever its journal was copied to
	Checksum     Protection = "checksum"      // of journal records
	Keys         Protection = "keys"          // a retry with the same Idempotency-Key gets the first answer
	SeriesLook   Protection = "series-lookup" // a time-series collection is read before readings are inserted again
	SeriesOrder  Protection = "series-order"  // the lookup follows a write on the session of the insert in doubt
	Limit        Protection = "limit"         // no more is accepted than memory and journal may hold
	Isolate      Protection = "isolate"       // a reading that MongoDB rejects is set aside alone
	SetAside     Protection = "set-aside"     // a bucket that cannot be written waits in the journal, not in its lane's memory
	LookAhead    Protection = "look-ahead"    // a full lane that writes nothing tries buckets that do not fit into its memory
	Divide       Protection = "divide"        // a command that hangs is divided until the write that hangs is alone
	Granularity  Protection = "granularity"   // a record is replayed with the settings it was journaled with
	Majority     Protection = "majority"      // w: majority, j: true
	StopOnFsync  Protection = "stop-on-fsync" // nothing is acknowledged after a failed fsync
	RepairTail   Protection = "repair-tail"   // a torn tail is cut off before more is appended
	Renew        Protection = "renew"         // a start rewrites the last journal segment before it trusts it
	DocumentRule Protection = "document-rule" // caps in the filter of an update
	OwnTags      Protection = "own-tags"      // a reading whose tags differ from its part's keeps its own
	PartTags     Protection = "part-tags"     // the filter of an update names the tags of the part it was made for
	Hold         Protection = "hold"          // no readings are accepted while a collection is dropped
	Drain        Protection = "drain"         // everything is stored before a stream's storage changes
	CopyLook     Protection = "copy-look"     // a migration reads which readings it has sent before it sends them again
	Tombstones   Protection = "tombstones"    // a moved document leaves its _id and its guard behind
	DueTime      Protection = "due-time"      // the load generator measures from when a request was due
	Follow       Protection = "follow"        // a move copies again what was written meanwhile
	MoveFence    Protection = "move-fence"    // daemons wait while a move swaps the collections
	Target       Protection = "target"        // a write names its collection by UUID
	Forget       Protection = "forget"        // what is remembered of a replaced collection's parts is dropped
	Quota        Protection = "quota"         // limits new sensors of a sender; the test leaves it out of the access file
	Gathering    Protection = "gathering"     // the journal keeps readings that gather in memory
	FlushAll     Protection = "flush-all"     // a flush leaves out no bucket
	Age          Protection = "age"           // an update's age is that of its first reading, not of its last
	Copy         Protection = "copy"          // a bucket's rows refer to the right copies of its readings
	InflateLimit Protection = "inflate-limit" // limits decompressed bytes; the test sets it to its maximum
)

// Protections lists them.
func Protections() []Protection {
	return []Protection{
		Fsync, Replay, Order, GuardFirst, Guard, Fence, Look, OneInFlight, Retry, NewSession, Lock, Home, Claim, Checksum, Keys,
		SeriesLook, SeriesOrder, Limit, Isolate, SetAside, LookAhead, Divide, Granularity, Majority, StopOnFsync, RepairTail, Renew, DocumentRule,
		OwnTags, PartTags, Hold, Drain, CopyLook, Tombstones, Follow, MoveFence, Target, Forget, DueTime, Quota, InflateLimit,
		Gathering, FlushAll, Age, Copy,
	}
}

// An Injector is called at each point. Its methods are safe for concurrent use,
// and on nil.
type Injector struct {
	// Crash is what happens at the chosen point; nil ends the process by a panic
	// that cannot be recovered.
	Crash func(Point)

	off []Protection

	mu   sync.Mutex
	left map[Point]int // arrivals until the crash
}

// Parse makes an Injector from a text such as "crash=fsync.after:3,off=guard":
// crash at the third arrival at a point, switch a protection off. Both may be
// repeated. An empty text makes nil.
func Parse(text string) (*Injector, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // a nil Injector is one that does nothing
	}
	i := &Injector{left: make(map[Point]int)}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "crash":
			name, count, counted := strings.Cut(value, ":")
			n := 1
			if counted {
				var err error
				if n, err = strconv.Atoi(count); err != nil || n < 1 {
					return nil, fmt.Errorf("fault %q: %q is not a number of arrivals from 1", part, count)
				}
			}
			if all := slices.Concat(Points(), MovePoints(), SeriesPoints()); !slices.Contains(all, Point(name)) {
				return nil, fmt.Errorf("fault %q: there is no point %q; there are %v", part, name, all)
			}
			i.left[Point(name)] = n
		case "off":
			if !slices.Contains(Protections(), Protection(value)) {
				return nil, fmt.Errorf("fault %q: there is no protection %q; there are %v", part, value, Protections())
			}
			i.off = append(i.off, Protection(value))
		default:
			return nil, fmt.Errorf("fault %q: allowed are crash=POINT[:N] and off=PROTECTION", part)
		}
	}
	return i, nil
}

// Without returns an Injector with these protections switched off.
func Without(off ...Protection) *Injector { return &Injector{off: off} }

// At crashes the process if this is the chosen arrival at the point.
func (i *Injector) At(p Point) {
	if i == nil || i.left == nil {
		return
	}
	i.mu.Lock()
	n := i.left[p] - 1
	if n >= 0 {
		i.left[p] = n
	}
	i.mu.Unlock()
	if n != 0 {
		return
	}
	if i.Crash != nil {
		i.Crash(p)
		return
	}
	// Servers recover the panics of their handlers, but not those of other goroutines.
	go panic("the test ends the process at " + string(p)) //nolint:forbidigo // its purpose
	select {}
}

// Off reports whether the protection is switched off.
func (i *Injector) Off(p Protection) bool {
	return i != nil && slices.Contains(i.off, p)
}
