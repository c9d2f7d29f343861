package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"
)

// printTable prints the time that MongoDB took for a write, by tenth of the
// window, a column for each variant.
func printTable(w io.Writer, o *options, results []outcome) error {
	_, _ = fmt.Fprintf(w, "\nstore_write_seconds by tenth of the window, p50 / p99 in milliseconds (%d sensors, one reading each %v, hourly buckets; %d cores, %s/%s):\n\n",
		o.sensors, o.interval, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.Debug)
	row := func(head string, cell func(i int) string) {
		_, _ = fmt.Fprint(table, head, "\t")
		for i := range results {
			_, _ = fmt.Fprint(table, cell(i), "\t")
		}
		_, _ = fmt.Fprintln(table)
	}
	row("window", func(i int) string { return variants()[i].title })
	for tenth := range results[0].StoreByFill {
		first := results[0].StoreByFill[tenth]
		row(fmt.Sprintf("%.0f-%.0f %%", 100*first.From, 100*first.To), func(i int) string {
			fill := results[i].StoreByFill[tenth]
			if fill.Count == 0 {
				return "none"
			}
			return fmt.Sprintf("%.2f / %.2f", 1e3*fill.P50, 1e3*fill.P99)
		})
	}
	row("readings per write", func(i int) string {
		writes := int64(0)
		for _, fill := range results[i].StoreByFill {
			writes += fill.Count
		}
		return fmt.Sprintf("%.1f", float64(results[i].Acked)/float64(max(writes, 1)))
	})
	row("acknowledged", func(i int) string {
		return fmt.Sprintf("%d of %d", results[i].Acked, results[i].Sent+results[i].Dropped)
	})
	row("all stored after", func(i int) string { return fmt.Sprintf("%.1f s", results[i].behind.Seconds()) })
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	for i := range results {
		if why := results[i].saturation(o.each()); why != "" {
			_, _ = fmt.Fprintf(w, "\nSATURATED: %s: %s\n", variants()[i].title, why)
		}
	}
	return nil
}

// saturation says why a stream's load was more than this machine can take: what
// brim load saw of it, or that MongoDB fell behind the journal, which brim load
// does not see.
func (r *outcome) saturation(each time.Duration) string {
	const part = 10 // of the time in which the load was due
	switch {
	case r.Saturated != "":
		return r.Saturated
	case r.behind > max(time.Second, each/part):
		return fmt.Sprintf("all was stored only %.1f s after the last reading was due. These times include time in a queue. Lower the load (--sensors, --interval or --duration).", r.behind.Seconds())
	}
	return ""
}
