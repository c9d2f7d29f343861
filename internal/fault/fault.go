// Package fault makes things go wrong where and when a test says so. The parts
// on a reading's way name the points at which they may be ended, and the
// protections that keep their promise; an Injector ends the process at the one
// and switches off the other. A nil Injector does neither, and that is what
// every program has that was not built to be tested.
package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Point is a place on a reading's way.
type Point string

// The points, in the order in which a reading comes by.
const (
	BeforeAppend    Point = "append.before"     // nothing of a request is written
	AfterAppend     Point = "append.after"      // written, not fsynced
	BeforeFsync     Point = "fsync.before"      //
	AfterFsync      Point = "fsync.after"       // durable, nobody knows
	BeforeAck       Point = "ack.before"        // the request's answer is about to be given
	AfterAck        Point = "ack.after"         // it was given to the door
	BeforeBulk      Point = "bulk.before"       // an update is about to be sent
	AfterBulk       Point = "bulk.after"        // its reply came
	BeforeClosePart Point = "close-part.before" // a part is about to be fenced
	AfterClosePart  Point = "close-part.after"
	BeforeTrim      Point = "trim.before" // the journal is about to forget what is stored
	AfterTrim       Point = "trim.after"
)

// The points of a move of a collection, in the order in which it comes by.
const (
	MoveCreated  Point = "move.created"  // the new collection is there, and empty
	MoveCopied   Point = "move.copied"   // some groups were written, the state does not say so
	MoveFollowed Point = "move.followed" // what had changed was made anew, the state does not say so
	MoveVerified Point = "move.verified" // some groups were compared, the state does not say so
	MoveFenced   Point = "move.fenced"   // daemons wait
	MoveDrained  Point = "move.drained"  // both collections are the same
	MoveSwapping Point = "move.swapping" // the state says that the names are being swapped, and they are not
	MoveHalf     Point = "move.half"     // of two renames, one is done
	MoveSwapped  Point = "move.swapped"  // they are swapped, and the state does not say so
)

// The points of a change of storage, in the order in which either way comes by.
const (
	SeriesFenced    Point = "series.fenced"    // the buckets refuse writes, the state does not say so
	SeriesRenamed   Point = "series.renamed"   // the name is free
	SeriesMade      Point = "series.made"      // it is a time-series collection's, the state does not say so
	SeriesSent      Point = "series.sent"      // old readings are there, the state does not say so
	SeriesWritten   Point = "series.written"   // bucket documents were written beside a time series
	SeriesSwitching Point = "series.switching" // the time series is about to be dropped
	SeriesDropped   Point = "series.dropped"   // the name is free
)

// SeriesPoints lists those of a change of storage; no reading comes by them.
func SeriesPoints() []Point {
	return []Point{SeriesFenced, SeriesRenamed, SeriesMade, SeriesSent, SeriesWritten, SeriesSwitching, SeriesDropped}
}

// MovePoints lists those of a move; no reading comes by them.
func MovePoints() []Point {
	return []Point{
		MoveCreated, MoveCopied, MoveFollowed, MoveVerified, MoveFenced, MoveDrained, MoveSwapping, MoveHalf, MoveSwapped,
	}
}

// Points lists those on a reading's way.
func Points() []Point {
	return []Point{
		BeforeAppend, AfterAppend, BeforeFsync, AfterFsync, BeforeAck, AfterAck,
		BeforeBulk, AfterBulk, BeforeClosePart, AfterClosePart, BeforeTrim, AfterTrim,
	}
}

// A Protection is a rule without which readings would be lost or doubled.
type Protection string

// The protections that can be switched off.
const (
	Fsync        Protection = "fsync"         // acknowledge only what is fsynced
	Replay       Protection = "replay"        // bring what an earlier process left to the store
	Order        Protection = "order"         // sequence, journal and lane position in one critical section
	GuardFirst   Protection = "guard-first"   // guard on the first sequence of an update, not on the last
	Guard        Protection = "guard"         // any guard at all
	Fence        Protection = "fence"         // close a part before its readings go on to the next
	Look         Protection = "look"          // look at all parts before readings are sent again after a crash
	OneInFlight  Protection = "one-in-flight" // one operation of a bucket at a time
	Retry        Protection = "retry"         // keep what is not known to be stored
	NewSession   Protection = "new-session"   // sessions are never used twice
	Lock         Protection = "lock"          // one daemon for a journal
	Home         Protection = "home"          // a journal whose folder was removed or replaced accepts nothing
	Claim        Protection = "claim"         // one daemon for a session, wherever its journal was copied to
	Checksum     Protection = "checksum"      // of journal records
	Keys         Protection = "keys"          // a repeated Idempotency-Key is answered as before
	SeriesLook   Protection = "series-look"   // look into a time-series collection before sending again
	SeriesOrder  Protection = "series-order"  // the lookup follows a write on the session of the insert in doubt
	Limit        Protection = "limit"         // take no more than memory and journal may hold
	Isolate      Protection = "isolate"       // a poison reading is put aside alone
	SetAside     Protection = "set-aside"     // a stuck bucket waits in the journal, not in its lane's memory
	LookAhead    Protection = "look-ahead"    // a full lane that writes nothing tries buckets that it has no room for
	Divide       Protection = "divide"        // a command that hangs is divided, until the write that hangs is alone
	Granularity  Protection = "granularity"   // a record is replayed under the settings it was journaled with
	Majority     Protection = "majority"      // w: majority, j: true
	StopOnFsync  Protection = "stop-on-fsync" // nothing is acknowledged after a failed fsync
	RepairTail   Protection = "repair-tail"   // a torn tail is cut off before more is appended
	Renew        Protection = "renew"         // a start rewrites the last journal segment to a new file before it trusts it
	DocumentRule Protection = "document-rule" // caps in the filter of an update
	OwnTags      Protection = "own-tags"      // a reading whose tags are not its part's keeps its own
	PartTags     Protection = "part-tags"     // the filter of an update demands the tags of the part that it was made for
	Hold         Protection = "hold"          // no readings are taken while a collection is dropped
	Drain        Protection = "drain"         // all is stored before a stream's storage changes
	CopyLook     Protection = "copy-look"     // look which readings a migration sent before it sends them again
	Tombstones   Protection = "tombstones"    // a moved document leaves its _id and its guard behind
	DueTime      Protection = "due-time"      // the load generator measures from when a request was due
	Follow       Protection = "follow"        // a move makes anew what was written while it copied
	MoveFence    Protection = "move-fence"    // daemons wait while a move swaps the collections
	Target       Protection = "target"        // a write names the collection that was prepared for it
	Forget       Protection = "forget"        // nothing is remembered of the parts of another collection
	Quota        Protection = "quota"         // a sender may bring so many new sensors; the test leaves it out of the access file
	InflateLimit Protection = "inflate-limit" // of what a request may be when it is decompressed; the test sets it as high as it goes
)

// Protections lists them.
func Protections() []Protection {
	return []Protection{
		Fsync, Replay, Order, GuardFirst, Guard, Fence, Look, OneInFlight, Retry, NewSession, Lock, Home, Claim, Checksum, Keys,
		SeriesLook, SeriesOrder, Limit, Isolate, SetAside, LookAhead, Divide, Granularity, Majority, StopOnFsync, RepairTail, Renew, DocumentRule,
		OwnTags, PartTags, Hold, Drain, CopyLook, Tombstones, Follow, MoveFence, Target, Forget, DueTime, Quota, InflateLimit,
	}
}

// An Injector is told at each point that something has come there. Its methods
// may be called by any number of goroutines, and on nil.
type Injector struct {
	// Crash is what happens at the chosen point; nil ends the process by a panic
	// that nobody can recover.
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

// At says that something has come to the point.
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
	// Servers recover the panics of their handlers, but not those of others.
	go panic("the test ends the process at " + string(p)) //nolint:forbidigo // that is what it is for
	select {}
}

// Off reports whether the protection is switched off.
func (i *Injector) Off(p Protection) bool {
	return i != nil && slices.Contains(i.off, p)
}
