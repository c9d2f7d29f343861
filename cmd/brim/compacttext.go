package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/maintain/compact"
)

// A compactReport is the result of `brim compact`.
type compactReport struct {
	Stream string `json:"stream"`
	DryRun bool   `json:"dry_run"`
	*compact.Deployment
	Chosen    []string          `json:"chosen"` // members that are worth it, in the order in which they are compacted
	Compacted []*compact.Result `json:"compacted,omitempty"`
	Left      []compact.Left    `json:"left,omitempty"`
}

// bytesText writes bytes for people.
func bytesText(n int64) string {
	if n < 0 {
		return "-" + humanize.IBytes(uint64(-n))
	}
	return humanize.IBytes(uint64(n))
}

// printMembers shows who is there.
func (r *compactReport) printMembers(w io.Writer) error {
	where := "a standalone MongoDB"
	if r.Set != "" {
		members := "1 member"
		if n := len(r.Members); n > 1 {
			members = fmt.Sprintf("%d members", n)
		}
		where = fmt.Sprintf("replica set %s of %s with data", r.Set, members)
	}
	if _, err := fmt.Fprintf(w, "stream %s: collection %s, %s\n\n", r.Stream, r.Collection, where); err != nil {
		return fmt.Errorf("print the members: %w", err)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "member\trole\tversion\tfile\tfree\tindexes\tfree\tfree of all\twritten/s\tqueries/s\tbusy") // Flush tells
	for _, m := range r.Members {
		if !m.Seen() {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", m.Host, m.Role, m.Version, printable(m.Unseen))
			continue
		}
		busy := "no"
		if len(m.Load.Busy()) > 0 {
			busy = "yes"
		}
		s := m.Sizes
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f %%\t%s\t%s\t%s\n", m.Host, m.Role, m.Version,
			bytesText(s.File), bytesText(s.Free), bytesText(s.IndexFile), bytesText(s.IndexFree), 100*s.FreeShare(),
			rateText(m.Load.Writes), rateText(m.Load.Reads), busy)
	}
	_, _ = fmt.Fprintln(table)
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the members: %w", err)
	}
	return nil
}

func rateText(v float64) string {
	if math.IsNaN(v) {
		return absent
	}
	return fmt.Sprintf("%.0f", v)
}

// print shows what was done, and what is left.
func (r *compactReport) print(w io.Writer) error {
	var text strings.Builder
	if r.DryRun {
		for i, host := range r.Chosen {
			fmt.Fprintf(&text, "%s would be compacted", host)
			if i > 0 {
				text.WriteString(", when the one before has caught up")
			}
			text.WriteByte('\n')
		}
	}
	for _, one := range r.Compacted {
		text.WriteString(resultText(one))
	}
	for _, l := range r.Left {
		fmt.Fprintf(&text, "%s is not compacted: %s\n", l.Member, printable(l.Why))
		if l.Do != "" {
			fmt.Fprintf(&text, "  what to do: %s\n", printable(l.Do))
		}
	}
	if r.Old != "" {
		fmt.Fprintf(&text, "%s is what a move has left behind; when it is needed no more, dropping it gives all of its space back (brim recompress --drop-old)\n", r.Old)
	}
	if r.DryRun {
		text.WriteString("nothing was done, as --dry-run says\n")
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

// resultText tells what one compaction came to.
func resultText(r *compact.Result) string {
	var text strings.Builder
	passes := "1 pass"
	if len(r.Passes) != 1 {
		passes = fmt.Sprintf("%d passes", len(r.Passes))
	}
	fmt.Fprintf(&text, "%s: %s given back in %.1f s, %s\n", r.Member, bytesText(r.GivenBack), r.Seconds, passes)
	line := func(title, value string) { fmt.Fprintf(&text, "  %-16s%s\n", title, value) }
	if r.Ended != "" {
		line("interrupted", r.Ended)
	}
	if waits := r.After.Waits(); waits != "" && r.GivenBack <= 0 {
		line("what to do", waits)
	}
	line("file", fmt.Sprintf("%s → %s, free in it %s → %s", bytesText(r.Before.File), bytesText(r.After.File), bytesText(r.Before.Free), bytesText(r.After.Free)))
	line("indexes", fmt.Sprintf("%s → %s, free in them %s → %s", bytesText(r.Before.IndexFile), bytesText(r.After.IndexFile), bytesText(r.Before.IndexFree), bytesText(r.After.IndexFree)))
	more := bytesText(r.FilesMore) + " in these files"
	if r.DiskMore != nil {
		more += fmt.Sprintf(", %s in the file system with all that was written meanwhile", bytesText(int64(*r.DiskMore)))
	}
	line("more disk, most", more)
	l := r.Latency
	line("mean write", meansText(l.Before.Write, l.During.Write, l.After.Write))
	line("mean read", meansText(l.Before.Read, l.During.Read, l.After.Read))
	if r.CaughtUp != nil {
		line("caught up", fmt.Sprintf("in %.1f s", *r.CaughtUp))
	}
	return text.String()
}

// meansText shows seconds before, during and after.
func meansText(before, during, after float64) string {
	one := func(v float64) string {
		if math.IsNaN(v) {
			return "none"
		}
		return bench.Seconds.Format(v)
	}
	return fmt.Sprintf("%s before, %s during, %s after", one(before), one(during), one(after))
}

// failure says which members were asked for and not compacted. Nothing to gain,
// and a primary that was not asked for, are no failures.
func (r *compactReport) failure() error {
	if r.DryRun {
		return nil
	}
	var failed []string
	for _, l := range r.Left {
		switch l.Kind {
		case compact.Busy:
			failed = append(failed, l.Member+" is busy, and --force was not given")
		case compact.Unseen, compact.Running:
			failed = append(failed, l.Member+": "+l.Why)
		}
	}
	if failed == nil {
		return nil
	}
	return errors.New("not compacted: " + strings.Join(failed, "; "))
}

// A compactLive tells how it goes: on a terminal in one line, elsewhere in a line
// now and then.
type compactLive struct {
	mu   sync.Mutex
	w    io.Writer
	line statusLine
	last compact.Progress
	told time.Time
}

func newCompactLive(w io.Writer) *compactLive {
	return &compactLive{w: w, line: newStatusLine(w)}
}

// tellEvery is how often progress is told where it is kept, as in a log.
const tellEvery = 10 * time.Second

// show tells how far it is.
func (l *compactLive) show(p compact.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.last
	l.last = p
	switch {
	case l.line.terminal:
		l.line.set(compactText(p))
	case p.Member != last.Member || p.Pass != last.Pass || p.Note != last.Note || time.Since(l.told) >= tellEvery:
		l.told = time.Now()
		_, _ = fmt.Fprintln(l.w, compactText(p)) // who does not listen misses nothing
	}
}

func compactText(p compact.Progress) string {
	if p.Pass == 0 {
		return p.Member + ": " + p.Note
	}
	text := fmt.Sprintf("%s: pass %d, %.1f s, %s given back, files %s, free in them %s",
		p.Member, p.Pass, p.Elapsed.Seconds(), bytesText(p.GivenBack), bytesText(p.Files), bytesText(p.Free))
	if p.Note != "" {
		text += "; " + p.Note
	}
	return text
}

// note shows what is done on a terminal.
func (l *compactLive) note(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line.terminal {
		l.line.set(text)
	}
}

// say tells something of its own.
func (l *compactLive) say(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line.end()
	_, _ = fmt.Fprintln(l.w, text) // as above
}

func (l *compactLive) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line.end()
}
