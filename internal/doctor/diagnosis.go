package doctor

import (
	"slices"
	"strings"
)

// A diagnosis is one thing that may hold writes up, and what to do about it.
type diagnosis struct {
	name    string   // stable; its heading in the runbook
	cause   string   // in a few words
	because []string // the diagnoses that, where they hold, are why this one does
	// find returns how bad it is, and what shows it; Healthy or Unknown: it is
	// not so.
	find func(s *Seen) (Class, string)
	// remedies are what to do, the cheapest that helps first.
	remedies func(s *Seen) []remedy
	// aside is that it costs disk and hardly any time of writes: it stands behind
	// what does, however bad it is.
	aside bool
	// alone is that it explains most of a write's time, which is then not spent on
	// what else is at its limit.
	alone bool
	// always is that it holds whether writes are slow or not, and also where
	// MongoDB does not answer.
	always bool
}

// A remedy is an action with what it costs.
type remedy struct{ action, cost string }

// Diagnose says in words what holds writes up: findings of kind slow, causes
// before what follows from them and else the worst first, an action each; what
// costs no more than disk comes last. There is none of them when nothing is
// wrong. Behind them, of kind unseen, is what could not be looked at.
func Diagnose(s Seen) []Finding {
	return append(diagnoseWith(&s, diagnoses), unseen(&s)...)
}

// diagnoseWith finds what is in a table. What holds writes up is a resource at its
// limit *and* writes that are slower than usual, and it is no worse than either:
//
//	writes        resource at its limit    finding
//	as usual      whichever                none
//	slow          no                       none; the note says so
//	slow          yes                      the better class of the two
//	not known     yes                      that of the resource; the evidence says so
func diagnoseWith(s *Seen, table []diagnosis) []Finding {
	var found []held
	slow := s.Signal(writeSlowdown)
	for i := range table {
		d := &table[i]
		if !d.always && (!s.Server.Answered || slow.Class == Healthy) {
			continue
		}
		class, evidence := d.find(s)
		switch {
		case class < Degrading:
			continue
		case d.always:
		case slow.Class == Unknown:
			evidence += "; whether writes are slower than usual is not known"
		default:
			class = min(class, slow.Class)
			evidence += "; " + s.WritePath.String()
		}
		found = append(found, held{diagnosis: d, class: class, evidence: evidence})
	}
	if slices.ContainsFunc(found, func(h held) bool { return h.alone }) {
		found = slices.DeleteFunc(found, func(h held) bool { return !h.alone && !h.always })
	}
	slices.SortStableFunc(found, func(a, b held) int {
		switch {
		case a.aside == b.aside:
			return int(b.class - a.class)
		case a.aside:
			return 1
		default:
			return -1
		}
	})
	var out []Finding
	for _, h := range causesFirst(found) {
		out = append(out, h.findings(s, found)...)
	}
	return out
}

// A held diagnosis is one that holds.
type held struct {
	*diagnosis
	class    Class
	evidence string
}

// causesFirst keeps the order but where something stands before its cause.
func causesFirst(found []held) []held {
	var out []held
	done := make(map[string]bool)
	var put func(h held)
	put = func(h held) {
		if done[h.name] {
			return
		}
		done[h.name] = true
		for _, cause := range found {
			if slices.Contains(h.because, cause.name) {
				put(cause)
			}
		}
		out = append(out, h)
	}
	for _, h := range found {
		put(h)
	}
	return out
}

// findings are those of one diagnosis, an action each.
func (h held) findings(s *Seen, found []held) []Finding {
	evidence := h.evidence
	var causes []string
	for _, other := range found {
		if slices.Contains(h.because, other.name) {
			causes = append(causes, other.short())
		}
	}
	if len(causes) > 0 {
		evidence += ". It may follow from what stands above: " + join(", ", causes...)
	}
	var out []Finding
	for _, r := range h.remedies(s) {
		out = append(out, Finding{
			Name: h.name, Kind: Slow, Class: h.class, Cause: h.cause, Evidence: evidence, Action: r.action, Cost: r.cost,
		})
	}
	return out
}

// short is what stands before the colon of the cause.
func (d *diagnosis) short() string {
	for i, r := range d.cause {
		if r == ':' {
			return d.cause[:i]
		}
	}
	return d.cause
}

// tell lists signals with their values, as in "disk busy 92 %, disk latency 7.1 ms".
// Those that cannot be seen are left out.
func (s *Seen) tell(signals ...string) string {
	var out []string
	for _, name := range signals {
		if one := s.Signal(name); one.Class != Unknown {
			out = append(out, lower(one.Title)+" "+one.Text())
		}
	}
	return join(", ", out...)
}

// count lists rates with their values; those that are not known, or 0, are left
// out.
func (s *Seen) count(rates ...string) string {
	var out []string
	for _, r := range s.Rates {
		if slices.Contains(rates, r.Name) && r.Value > 0 {
			out = append(out, lower(r.Title)+" "+r.Text())
		}
	}
	return join(", ", out...)
}

// lower writes a title within a sentence; abbreviations stay.
func lower(title string) string {
	if title == "" || strings.HasPrefix(title, "CPU") {
		return title
	}
	return string(title[0]|0x20) + title[1:]
}

// WorstOf returns the worst class of the findings that say what is slow; Healthy
// if there are none.
func WorstOf(findings []Finding) Class {
	worst := Healthy
	for i := range findings {
		if findings[i].Kind == Slow {
			worst = max(worst, findings[i].Class)
		}
	}
	return worst
}

// worst returns the worst class of some signals.
func (s *Seen) worst(names ...string) Class {
	worst := Unknown
	for _, name := range names {
		worst = max(worst, s.Signal(name).Class)
	}
	return worst
}
