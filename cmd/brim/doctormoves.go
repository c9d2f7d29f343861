package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/maintain"
	"github.com/brim-telemetry/brim/internal/store"
)

// lookAtMoves finds what commands of maintenance have left behind in the
// streams. What cannot be looked at is said once.
func (x *examination) lookAtMoves(parent context.Context) {
	ctx, cancel := context.WithTimeout(parent, lookTimeout)
	defer cancel()
	for _, one := range x.site.streams {
		if one.Storage == store.Memory {
			continue
		}
		traces, err := maintain.LookForTraces(ctx, x.conn.Database(), one.Name)
		if err != nil {
			x.moves = append(x.moves, movesUnseen(err))
			return
		}
		x.moves = append(x.moves, movesLeft(traces, x.where())...)
	}
}

func movesUnseen(err error) doctor.Finding {
	f := doctor.Finding{
		Name: "unseen_moves", Kind: doctor.Unseen, Class: doctor.Unknown,
		Cause: "not examined: whether brim recompress or brim migrate was interrupted", Evidence: err.Error(),
		Action: "try again when MongoDB answers", Cost: "none",
	}
	if doctor.NotPermitted(err) {
		f.Evidence = "the user is not allowed to read the streams' database: the role read on it permits it"
		f.Action, f.Cost = "grant the user the role read on the database of the streams", "the user may read the readings"
	}
	return f
}

// movesLeft says what is to be done about work on a stream that nobody goes on
// with; where are the flags that commands need to find the stream.
func movesLeft(t *maintain.Traces, where string) []doctor.Finding {
	if t.Alive {
		return nil // it ends by itself what it has begun
	}
	pasted := func(command string) string { return "`" + command + where + "`" }
	begun := "brim_maintenance records no command"
	if t.Kind != "" {
		begun = fmt.Sprintf("`brim %s` to %s is in phase %s, and no process is working on it", t.Kind, t.To, t.Phase)
	}
	var out []doctor.Finding
	add := func(f doctor.Finding, actions ...[2]string) {
		for _, a := range actions {
			f.Action, f.Cost = a[0], a[1]
			out = append(out, f)
		}
	}
	const waits = "waiting readings are then stored"
	again := [][2]string{
		{"run the same command again, which continues from there: " + pasted(t.Again), "load on the disk while it runs"},
		{"or abort it, if possible: " + pasted(t.Abort), "the copy is dropped"},
	}
	fence := doctor.Finding{
		Name: doctor.FoundFenced, Kind: doctor.Slow, Class: doctor.Bottleneck,
		Cause:    "fenced: nothing of stream " + t.Stream + " is stored, since maintenance blocks writes",
		Evidence: "the validator of its collection refuses every document; readings wait in the daemons' journals; " + begun,
	}
	unfinished := doctor.Finding{
		Name: "setting_move", Kind: doctor.Setting, Class: doctor.Degrading,
		Cause: "maintenance of stream " + t.Stream + " was interrupted", Evidence: begun,
	}
	if t.Copy != nil {
		unfinished.Evidence += fmt.Sprintf("; its copy %s takes %s of disk", t.Copy.Collection, humanize.IBytes(uint64(t.Copy.Bytes)))
	}
	switch {
	case t.Fenced && t.Again != "":
		again[0][1], again[1][1] = waits, waits+"; the copy is dropped"
		add(fence, again...)
	case t.Fenced:
		add(fence, [2]string{fmt.Sprintf("in mongosh, if no command runs: db.runCommand({collMod: %q, validator: {}})", t.Stream), waits})
	case t.Kind != "" && !t.Done:
		add(unfinished, again...)
	case t.Copy != nil:
		add(unfinished, dropByHand(t.Copy))
	}
	if t.Old == nil || t.Kind != "" && !t.Done {
		return out // while it is not done, it may be needed
	}
	old := doctor.Finding{
		Name: "setting_old_collection", Kind: doctor.Setting, Class: doctor.Degrading,
		Cause:    "the old collection of stream " + t.Stream + " is still there",
		Evidence: fmt.Sprintf("%s takes %s of disk, and no daemon reads it", t.Old.Collection, humanize.IBytes(uint64(t.Old.Bytes))),
	}
	drop := dropByHand(t.Old)
	if t.DropOld != "" {
		drop = [2]string{"when all daemons have stored what they accepted before the move: " + pasted(t.DropOld), "it can no longer be read"}
	}
	add(old, drop)
	return out
}

func dropByHand(t *maintain.Trace) [2]string {
	return [2]string{
		fmt.Sprintf("check what is in it, and drop it in mongosh if no command runs: db.getCollection(%q).drop()", t.Collection),
		"it can no longer be read",
	}
}

// siteWords are the flags with which a further command finds the same site, with
// a space before each. A password is not shown.
func siteWords(flags *pflag.FlagSet) string {
	var out strings.Builder
	for _, name := range []string{"config", daemon.UriSetting, daemon.UriFileSetting, "database", "admin"} {
		if f := flags.Lookup(name); f.Changed {
			out.WriteString(" --" + name + " " + config.ShellWord(config.MaskURI(f.Value.String())))
		}
	}
	return out.String()
}
