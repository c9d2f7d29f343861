package report

import (
	"bytes"
	"fmt"
	"io"

	"github.com/brim-telemetry/brim/internal/load"
)

// HGRM writes the response time as HdrHistogram's tools print and plot it, in
// milliseconds.
func HGRM(w io.Writer, r *load.Result) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")
	var total int64
	for _, p := range r.Curve {
		total = p.Count
		if part := p.Percent / 100; part < 1 {
			fmt.Fprintf(&b, "%12.3f %2.12f %10d %14.2f\n", p.Seconds*1000, part, p.Count, 1/(1-part))
		} else {
			fmt.Fprintf(&b, "%12.3f %2.12f %10d %14s\n", p.Seconds*1000, 1.0, p.Count, "inf")
		}
	}
	fmt.Fprintf(&b, "#[Mean    = %12.3f]\n", r.Response.Mean*1000)
	fmt.Fprintf(&b, "#[Max     = %12.3f, Total count    = %12d]\n", r.Response.Max*1000, total)
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write percentiles: %w", err)
	}
	return nil
}
