package settings

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/brim-telemetry/brim/internal/doctor"
)

const (
	ownInterval  = 60.0  // s from one checkpoint to the next, by default
	mostInterval = 300.0 // the longest that is published as sensible
)

// interval is the time from one checkpoint to the next in s that is in force,
// NaN if it is not told.
func (f *facts) interval() float64 {
	switch {
	case f.major >= doctor.ObeysSyncDelay && f.parameters != nil && f.parameters.SyncDelay != nil:
		if *f.parameters.SyncDelay < 0 {
			return ownInterval
		}
		return *f.parameters.SyncDelay
	case f.major >= doctor.ObeysSyncDelay || f.options == nil:
		return math.NaN()
	case f.options.Parsed.Storage.SyncPeriod != nil:
		return *f.options.Parsed.Storage.SyncPeriod
	}
	return ownInterval
}

// intervalAction sets the interval.
func (f *facts) intervalAction(seconds float64) string {
	action := "in mongod.conf: storage: {syncPeriodSecs: " + plain(seconds) + "}"
	if f.major >= doctor.ObeysSyncDelay {
		return "in mongosh, on each member: db.adminCommand({setParameter: 1, syncdelay: " + plain(seconds) + "}); and so that it stays, " + action
	}
	return action + " on each member, and restart (this version does not obey setParameter syncdelay)"
}

func (f *facts) intervalCost() string {
	if f.major >= doctor.ObeysSyncDelay {
		return "no restart"
	}
	return "a restart"
}

// checkpointsSeen says how many checkpoints were counted.
func (f *facts) checkpointsSeen() string {
	n := f.span.growth("checkpoints_total")
	if math.IsNaN(n) {
		return ""
	}
	text := fmt.Sprintf("; %s checkpoints were taken %s", amount(n), f.span)
	if n > 0 {
		text += fmt.Sprintf(", the last took %s s", amount(f.look.value("checkpoint_last_seconds")))
	}
	return text
}

// secondClock: the storage engine can be told to take checkpoints by itself,
// beside those that mongod takes.
func secondClock(f *facts) []doctor.Finding {
	where, config := "", ""
	if f.options != nil {
		where, config = "storage.wiredTiger.engineConfig.configString", f.options.Parsed.Storage.WiredTiger.Engine.Config
	}
	if engineClock(config) == "" && f.parameters != nil {
		where, config = "the parameter wiredTigerEngineRuntimeConfig", f.parameters.Engine
	}
	clock := engineClock(config)
	if clock == "" {
		return nil
	}
	cost := "a restart"
	action := "take checkpoint=(…) out of " + where + " and restart; the one clock is storage.syncPeriodSecs"
	if !strings.HasPrefix(where, "storage") {
		action = `in mongosh: db.adminCommand({setParameter: 1, wiredTigerEngineRuntimeConfig: "checkpoint=(wait=0,log_size=0)"})`
		cost = "no restart"
	}
	return advice{
		name:     "setting_checkpoint",
		cause:    "checkpoints: a second clock takes them, checkpoint=(" + clock + ")",
		evidence: "it stands in " + where + "; mongod's own clock goes on beside it" + f.every() + f.checkpointsSeen(),
		action:   action,
		cost:     cost,
	}.alone()
}

func (f *facts) every() string {
	if s := f.interval(); !math.IsNaN(s) {
		return ", every " + plain(s) + " s"
	}
	return ""
}

// engineClock is what is inside checkpoint=(…) of the engine's settings if it
// makes the engine take checkpoints: after a time, or so many bytes of journal.
func engineClock(config string) string {
	_, inside, ok := strings.Cut(config, "checkpoint=(")
	if !ok {
		return ""
	}
	inside, _, _ = strings.Cut(inside, ")")
	for part := range strings.SplitSeq(inside, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		digits := strings.TrimRight(value, "BKMGTPbkmgtp")
		if n, err := strconv.ParseFloat(digits, 64); err == nil && n > 0 && (name == "wait" || name == "log_size") {
			return inside
		}
	}
	return ""
}

// noCheckpoints: an interval of 0 switches them off.
func noCheckpoints(f *facts) []doctor.Finding {
	if f.interval() != 0 {
		return nil
	}
	return advice{
		name:  "setting_checkpoint",
		cause: "checkpoints: the interval is 0, so that there are none but those that are asked for",
		evidence: "the journal is kept since the last one and is carried out anew after a crash; the cache fills with what was changed" +
			f.checkpointsSeen() + f.journalRate(),
		action: f.intervalAction(ownInterval),
		cost:   f.intervalCost() + "; the checkpoints' writes",
	}.alone()
}

func (f *facts) journalRate() string {
	rate := f.span.rate("journal_written_bytes_total")
	if math.IsNaN(rate) {
		return ""
	}
	return fmt.Sprintf("; the journal grew by %s a second %s", size(rate), f.span)
}

// deafParameter: before MongoDB 7 the parameter is told and not obeyed.
func deafParameter(f *facts) []doctor.Finding {
	if f.major >= doctor.ObeysSyncDelay || f.parameters == nil || f.parameters.SyncDelay == nil || f.options == nil ||
		*f.parameters.SyncDelay == f.interval() {
		return nil
	}
	return advice{
		name:  "setting_checkpoint",
		cause: "checkpoints: the parameter syncdelay says " + plain(*f.parameters.SyncDelay) + " s, and this version does not obey it",
		evidence: fmt.Sprintf("in force are %s s, from storage.syncPeriodSecs or by default%s",
			plain(f.interval()), f.checkpointsSeen()),
		action: f.intervalAction(*f.parameters.SyncDelay) + "; or take the parameter back: db.adminCommand({setParameter: 1, syncdelay: " + plain(f.interval()) + "})",
		cost:   "a restart; or none",
	}.alone()
}

// Bounds from which on an interval is too short.
const (
	mostOfTheTime = 1.0 / 3 // of it a checkpoint is under way
	muchWritten   = 1 << 20 // bytes/s by checkpoints
	rewritten     = 2.0     // times the journal's bytes
)

// shortInterval: checkpoints that run most of the time, or that write the same
// pages again and again.
func shortInterval(f *facts) []doctor.Finding {
	interval := f.interval()
	if interval == 0 {
		return nil
	}
	each := f.checkpointSeconds()
	if share := each / (each + interval); share >= mostOfTheTime {
		longer := min(max(math.Ceil(4*each/30)*30, ownInterval), mostInterval)
		if longer <= interval {
			return nil // it is the disk or the processor, and not the interval
		}
		return advice{
			name:  "setting_checkpoint",
			cause: "checkpoints: the interval is too short, one is under way most of the time",
			evidence: fmt.Sprintf("one takes %s s and begins %s s after the last one ended, so that it runs %s %% of the time%s",
				amount(each), plain(interval), amount(100*share), f.checkpointsSeen()),
			action: f.intervalAction(longer),
			cost:   fmt.Sprintf("%s; after a crash the journal of up to %s s is carried out anew, and each checkpoint writes more at once", f.intervalCost(), plain(longer)),
		}.alone()
	}
	written, logged := f.span.rate("block_checkpoint_written_bytes_total"), f.span.rate("journal_written_bytes_total")
	if !(interval < ownInterval && written >= muchWritten && written >= rewritten*logged) {
		return nil
	}
	return advice{
		name:  "setting_checkpoint",
		cause: "checkpoints: the interval is short, the same pages are written again and again",
		evidence: fmt.Sprintf("every %s s; checkpoints wrote %s a second, %s times what the journal did, %s: each writes every bucket that got an append",
			plain(interval), size(written), amount(written/logged), f.span),
		action: f.intervalAction(ownInterval),
		cost:   fmt.Sprintf("%s; after a crash the journal of up to %s s is carried out anew", f.intervalCost(), plain(ownInterval)),
	}.alone()
}

// checkpointSeconds is what a checkpoint takes: on average where several were
// seen, else the last one.
func (f *facts) checkpointSeconds() float64 {
	if n := f.span.growth("checkpoints_total"); n >= 2 {
		return f.span.growth("checkpoint_seconds_total") / n
	}
	return f.look.value("checkpoint_last_seconds")
}

// longInterval: so long that a crash's recovery is long.
func longInterval(f *facts) []doctor.Finding {
	interval := f.interval()
	if !(interval > mostInterval) {
		return nil
	}
	evidence := "it is " + plain(interval) + " s" + f.checkpointsSeen()
	if rate := f.span.rate("journal_written_bytes_total"); !math.IsNaN(rate) {
		evidence += fmt.Sprintf("; the journal grew by %s a second, so up to %s are carried out anew after a crash, during which nothing is stored", size(rate), size(rate*interval))
	}
	return advice{
		name:     "setting_checkpoint",
		cause:    "checkpoints: the interval is so long that recovery from a crash takes long",
		evidence: evidence,
		action:   f.intervalAction(ownInterval),
		cost:     f.intervalCost() + "; pages that are changed again and again are written more often",
	}.alone()
}
