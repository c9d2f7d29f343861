package doctor

import (
	"context"
	"fmt"

	"github.com/brim-telemetry/brim/internal/maintain"
)

// CheckMaintenance returns findings about interrupted commands that were moving a
// collection, and about what they left behind. Flags are appended to the commands that it
// suggests, so that they find the same MongoDB.
func (m *Monitor) CheckMaintenance(parent context.Context, flags string) []Finding {
	ctx, cancel := context.WithTimeout(parent, maxPatience)
	defer cancel()
	var out []Finding
	for _, s := range m.config.Streams {
		traces, err := maintain.LookForTraces(ctx, m.config.Database, s.Name)
		if err != nil {
			f := Finding{
				Name: "unseen_moves", Kind: Unseen, Class: Unknown, Cause: "not examined: whether brim recompress or brim migrate was interrupted",
				Evidence: err.Error(), Action: "try again when MongoDB answers", Cost: "none",
			}
			if NotPermitted(err) {
				f.Evidence = "the user may not read the streams' database: this needs the role read on it"
				f.Action, f.Cost = helps[whyNoRead].action, helps[whyNoRead].cost
			}
			return append(out, f)
		}
		out = append(out, leftBehind(traces, flags)...)
	}
	return out
}

// leftBehind says what to do about the traces of maintenance: nothing while a process is
// still working on them.
func leftBehind(t *maintain.Traces, flags string) (out []Finding) {
	if t.Alive {
		return nil
	}
	paste := func(command string) string { return "`" + command + flags + "`" }
	drop := func(c *maintain.Trace) string {
		return fmt.Sprintf("check its content, and drop it in mongosh if no command is running: db.getCollection(%q).drop()", c.Collection)
	}
	add := func(f Finding, actions ...[2]string) { // with their costs
		for _, a := range actions {
			f.Action, f.Cost = a[0], a[1]
			out = append(out, f)
		}
	}
	underWay, evidence := t.Kind != "" && !t.Done, "brim_maintenance records no command"
	if t.Kind != "" {
		evidence = fmt.Sprintf("`brim %s` to %s is in phase %s, and no process is working on it", t.Kind, t.To, t.Phase)
	}
	again, abort := "run the same command again, which continues from there: "+paste(t.Again), "or abort it, if possible: "+paste(t.Abort)
	fence := Finding{
		Name: foundFenced, Kind: Slow, Class: Bottleneck, Cause: "fenced: no readings of stream " + t.Stream + " are stored, because maintenance blocks writes",
		Evidence: "the validator of its collection refuses every document; readings wait in the daemons' journals; " + evidence,
	}
	move := Finding{Name: "setting_move", Kind: Setting, Class: Degrading, Cause: "maintenance of stream " + t.Stream + " was interrupted", Evidence: evidence}
	if t.Copy != nil {
		move.Evidence += fmt.Sprintf("; its copy %s takes %s of disk", t.Copy.Collection, size(float64(t.Copy.Bytes)))
	}
	const stored, noReading = "waiting readings are then stored", "it can no longer be read"
	switch {
	case t.Fenced && t.Again != "":
		add(fence, [2]string{again, stored}, [2]string{abort, stored + "; the copy is dropped"})
	case t.Fenced:
		add(fence, [2]string{fmt.Sprintf("in mongosh, if no command is running: db.runCommand({collMod: %q, validator: {}})", t.Stream), stored})
	case underWay:
		add(move, [2]string{again, "load on the disk while it runs"}, [2]string{abort, "the copy is dropped"})
	case t.Copy != nil:
		add(move, [2]string{drop(t.Copy), noReading})
	}
	if t.Old == nil || underWay { // the work may still need it
		return out
	}
	action := drop(t.Old)
	if t.DropOld != "" {
		action = "when all daemons have stored what they accepted before the move: " + paste(t.DropOld)
	}
	add(Finding{
		Name: "setting_old_collection", Kind: Setting, Class: Degrading, Cause: "the old collection of stream " + t.Stream + " is still there",
		Evidence: fmt.Sprintf("%s takes %s of disk, and no daemon reads it", t.Old.Collection, size(float64(t.Old.Bytes))),
	}, [2]string{action, noReading})
	return out
}
