package settings

import (
	"fmt"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// asks is what Brim asks for, whatever the defaults are.
const asks = "Brim asks for w: majority and j: true itself"

// defaultConcern: what writes promise that do not say what they want.
func defaultConcern(f *facts) []doctor.Finding {
	if f.concern == nil || f.concern.w() == "majority" {
		return nil
	}
	return advice{
		name:  "setting_write_concern",
		cause: fmt.Sprintf("write concern: writes that name none are acknowledged with w: %v", f.concern.w()),
		evidence: fmt.Sprintf("the default is %s. %s, so its readings are safe; what other programs write to this MongoDB may be lost with one member%s",
			sourceOf(f.concern.Source), asks, f.waited()),
		action: `in mongosh: db.adminCommand({setDefaultRWConcern: 1, defaultWriteConcern: {w: "majority"}})`,
		cost:   "other programs' writes wait for a majority; no restart; it holds for the whole set",
	}.alone()
}

// w is what the default asks for. A set with an arbiter that makes a majority
// hard to have has the default 1, and the server then tells none.
func (c *defaultConcerns) w() any {
	if c.Write.W == nil {
		return 1
	}
	return c.Write.W
}

func sourceOf(source string) string {
	if source == "global" {
		return "set for the whole set (setDefaultRWConcern)"
	}
	return "the server's own, since with its arbiters a majority cannot be had when one member is away"
}

// majorityJournal: a majority that need not have written to its journal.
func majorityJournal(f *facts) []doctor.Finding {
	if f.config == nil || f.config.Config.Journal == nil || *f.config.Config.Journal {
		return nil
	}
	return advice{
		name:  "setting_write_concern",
		cause: "write concern: writeConcernMajorityJournalDefault is false: a majority may lose what it has acknowledged",
		evidence: fmt.Sprintf("members acknowledge what is only in their memory; one power failure of several takes it away. %s, so its readings are safe; other programs' writes are not%s",
			asks, f.waited()),
		action: "in mongosh: cfg = rs.conf(); cfg.writeConcernMajorityJournalDefault = true; rs.reconfig(cfg)",
		cost:   "other programs' majority writes wait for a sync of the journal, some half a millisecond where it was measured; no restart",
	}.alone()
}

// waited says how long writes waited for others.
func (f *facts) waited() string {
	number, each := f.span.waits()
	if number == 0 {
		return ""
	}
	return fmt.Sprintf("; %s writes waited for others %s, %s each", amount(number), f.span, millis(each))
}

func millis(d time.Duration) string { return amount(float64(d)/float64(time.Millisecond)) + " ms" }

// longWait is where waiting for the majority is most of a write: a sync of the
// journal there and a round trip take a few milliseconds.
const longWait = 50 * time.Millisecond

// fewWaits say nothing: those of a server that starts wait for the others to
// start.
const fewWaits = 100

// majorityWaits: writes that wait long for the other members.
func majorityWaits(f *facts) []doctor.Finding {
	number, each := f.span.waits()
	if f.kind != replicaSet || number < fewWaits || each < longWait {
		return nil
	}
	members := "the other members"
	if f.config != nil && len(f.config.Config.Members) == 1 {
		members = "this server's own journal, since it is the only member"
	}
	return advice{
		name:     "setting_write_concern",
		cause:    "write concern: writes wait long for their acknowledgement",
		evidence: fmt.Sprintf("%s writes waited %s each for %s %s; Brim's acks of stored wait for it, those of journaled do not", amount(number), millis(each), members, f.span),
		action:   "look at the members' disks and at the network between them (brim doctor at each); place members near each other; or let the daemon acknowledge earlier: --ack journaled",
		cost:     "with --ack journaled a reading is on the daemon's own disk, and not yet with a majority, when the sensor hears of it",
	}.alone()
}

// commitInterval is MongoDB's own, in ms.
const commitInterval = 100

// journal: how often it is synced without being asked, and whether there is one.
func journal(f *facts) []doctor.Finding {
	if f.options != nil && f.options.Parsed.Storage.Journal.Enabled != nil && !*f.options.Parsed.Storage.Journal.Enabled {
		return advice{
			name:     "setting_journal",
			cause:    "journal: it is switched off (storage.journal.enabled: false)",
			evidence: "the options of the running server say so: after a crash all since the last checkpoint is lost, and it refuses j: true, which Brim asks for",
			action:   "in mongod.conf: leave storage.journal.enabled out; restart",
			cost:     "a restart; the journal's writes to the disk",
		}.alone()
	}
	if f.parameters == nil || f.parameters.JournalCommit == nil || *f.parameters.JournalCommit == commitInterval || f.kind == sharded {
		return nil
	}
	ms := *f.parameters.JournalCommit
	effect := "which writes with j: true do not wait for: " + asks
	if ms > commitInterval {
		effect = "so other programs' writes without j: true lose up to " + plain(ms) + " ms in a crash; " + asks
	}
	evidence := "it is " + plain(ms) + " ms, " + effect
	if rate := f.span.rate("journal_syncs_total"); !math.IsNaN(rate) {
		evidence += fmt.Sprintf("; the journal was synced %s times a second %s", amount(rate), f.span)
	}
	return advice{
		name:     "setting_journal",
		cause:    fmt.Sprintf("journal: commitIntervalMs is %s, MongoDB's own is %d", plain(ms), commitInterval),
		evidence: evidence,
		action: fmt.Sprintf("in mongosh, on each member: db.adminCommand({setParameter: 1, journalCommitInterval: %d}); and in mongod.conf leave storage.journal.commitIntervalMs out",
			commitInterval),
		cost: "no restart",
	}.alone()
}
