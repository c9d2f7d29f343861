package checkpoint

import (
	"fmt"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

func tables(m *Measured, r *bench.Result) {
	all := append(append([]*Cost(nil), m.Appends...), m.Inserts...)
	for _, t := range []bench.Table{
		settingsTable(m.Settings), intervalsTable(all), bytesTable(all), lawTable(m), recoveryTable(m.Recovery), journalTable(m.Journal),
	} {
		if len(t.Rows) > 0 {
			r.Tables = append(r.Tables, t)
		}
	}
}

func settingsTable(all []Obeyed) bench.Table {
	t := bench.Table{
		Title: "Ways to ask for a checkpoint every second, and what came",
		Head:  []string{"way", "syncdelay as told", "checkpoints", "in", "of each that was due"},
	}
	for _, o := range all {
		t.Rows = append(t.Rows, []string{
			o.Way, bench.Seconds.Format(o.Told), fmt.Sprint(o.Counted), bench.Seconds.Format(o.Observed), bench.Times.Format(o.Share()),
		})
	}
	return t
}

func intervalsTable(all []*Cost) bench.Table {
	t := bench.Table{
		Title: "Checkpoints by interval",
		Head:  []string{"load", "interval", "counted", "due", "dirty before", "of it since the last", "duration", "p99 during", "p99 between"},
		Notes: []string{"dirty before: what WiredTiger's cache holds that no checkpoint has written, at its most; p99: of writes that meet a checkpoint, and of the others"},
	}
	for _, c := range all {
		t.Rows = append(t.Rows, []string{
			c.Load, bench.Seconds.Format(c.Seconds), strconv.Itoa(c.Counted), fmt.Sprintf("%.1f", c.Over/c.Seconds),
			bench.Bytes.Spread(c.Dirty()), bench.Bytes.Spread(c.Gathered()), bench.Seconds.Spread(c.Durations()),
			bench.Seconds.Spread(c.Inside()), bench.Seconds.Spread(c.Outside()),
		})
	}
	return t
}

func bytesTable(all []*Cost) bench.Table {
	t := bench.Table{
		Title: "Bytes written, by the server's counters, at the rate of what was seen",
		Head:  []string{"load", "interval", "files, each checkpoint", "files, an hour", "by checkpoints, an hour", "journal, an hour"},
	}
	for _, c := range all {
		t.Rows = append(t.Rows, []string{
			c.Load, bench.Seconds.Format(c.Seconds), bench.Bytes.Spread(c.WrittenEach()), bench.Bytes.Spread(c.BytesPerHour()),
			bench.Bytes.Spread(c.CheckpointBytesPerHour()), bench.Bytes.Spread(c.JournalBytesPerHour()),
		})
	}
	return t
}

func lawTable(m *Measured) bench.Table {
	t := bench.Table{
		Title: "What these loads would write to the files an hour, by the line through what was seen",
		Head:  []string{"load", "each checkpoint", "each second"},
		Notes: []string{"bytes = each checkpoint x checkpoints + each second x seconds; not measured at these intervals, unless the table above has them"},
	}
	for _, s := range publishedSeconds {
		t.Head = append(t.Head, bench.Seconds.Format(s))
	}
	for _, l := range []struct {
		name string
		law  Law
	}{{nameAppends, m.AppendsLaw}, {nameInserts, m.InsertsLaw}} {
		if !l.law.known() {
			continue
		}
		row := []string{l.name, bench.Bytes.Format(l.law.Once), bench.Bytes.Format(l.law.PerSecond)}
		for _, s := range publishedSeconds {
			row = append(row, bench.Bytes.Format(l.law.BytesPerHour(toDuration(s))))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func recoveryTable(rec *Recovery) bench.Table {
	t := bench.Table{
		Title: "From kill -9 to the first write",
		Head:  []string{"killed", "journal since the checkpoint", "seconds"},
	}
	if rec == nil {
		return t
	}
	if len(rec.Bare) > 0 {
		t.Rows = append(t.Rows, []string{"right after a checkpoint", "next to nothing", bench.Seconds.Spread(rec.Bare)})
	}
	if len(rec.Late) > 0 {
		after := time.Duration(rec.Written.Median() * float64(time.Second)).Round(100 * time.Millisecond)
		t.Rows = append(t.Rows, []string{fmt.Sprintf("after %v of writes", after), bench.Bytes.Spread(rec.Journal), bench.Seconds.Spread(rec.Late)})
	}
	return t
}

func journalTable(all []*Journal) bench.Table {
	t := bench.Table{
		Title: "One small insert after the other: latency by write concern and commit interval",
		Head:  []string{"topology", "commit interval", relaxed, waiting, majority},
		Notes: []string{"the median of each repeat; nothing is merged, so that each write that waits for the journal waits for a sync of its own"},
	}
	for _, j := range all {
		row := []string{j.Topology, bench.Seconds.Format(j.Commit)}
		for _, name := range []string{relaxed, waiting, majority} {
			cell := "–"
			if s := j.Latencies[name]; len(s) > 0 {
				cell = bench.Seconds.Spread(s)
			}
			row = append(row, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
