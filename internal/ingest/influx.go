package ingest

import (
	"fmt"
	"net/http"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// serveLines takes line protocol, as clients of InfluxDB 1 and 2 send it. What
// they say of databases, buckets and organisations is ignored.
func (d *Door) serveLines(x *exchange) error {
	p, err := precisionOf(x.r)
	if err != nil {
		return err
	}
	stream, err := d.stream("")
	if err != nil {
		return err
	}
	in, err := x.intake(stream)
	if err != nil {
		return err
	}
	return x.take(in, func(in *intake, b *body) error { return in.decodeLineProtocol(b, p) })
}

// precisionOf returns the unit of a request's timestamps.
func precisionOf(r *http.Request) (precision, error) {
	name, allowed := "", "n, u, ns, us, ms, s, m, h"
	if r.URL.RawQuery != "" {
		name = r.URL.Query().Get("precision")
	}
	switch name {
	case "", "ns", "n":
		return precision{name: "ns", ratio: -1_000_000}, nil
	case "us", "u":
		return precision{name: "us", ratio: -1_000}, nil
	case "ms":
		return precision{name: "ms", ratio: 1}, nil
	case "s":
		return precision{name: "s", ratio: 1_000}, nil
	case "m":
		return precision{name: "m", ratio: 60_000}, nil
	case "h":
		return precision{name: "h", ratio: 3_600_000}, nil
	}
	return precision{}, telemetry.Errorf(telemetry.Invalid, codePrecision,
		"precision %s is unknown; allowed are %s", telemetry.Quote([]byte(name)), allowed)
}

// answerLines tells what became of the lines, in the words of InfluxDB, which tell
// Telegraf not to send the refused lines again: "partial write" where the others
// were taken, "unable to parse" where none was.
func (x *exchange) answerLines(r result, in *intake) {
	status := statuses[r].line
	a := &in.answer
	if a.Rejected == 0 {
		x.w.WriteHeader(status)
		return
	}
	first := a.Errors[0]
	p := problem{Code: codePartialWrite, Line: in.lines[first.Index]}
	reason := fmt.Sprintf("line %d: %s: %s dropped=%d", p.Line, first.Code, first.Message, a.Rejected)
	if a.Accepted > 0 {
		p.Message = fmt.Sprintf("partial write: %d of %d lines were refused, the others were taken; %s", a.Rejected, in.count, reason)
	} else {
		p.Code = codeNothingTaken
		p.Message = fmt.Sprintf("unable to parse: %d of %d lines were refused, nothing was taken; %s", a.Rejected, in.count, reason)
	}
	p.Error = p.Message
	writeJSON(x.w, status, p)
}
