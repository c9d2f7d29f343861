package trend

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// From where on two series are said to move together, from where on writes are
// slower whether or not the way there was a trend, and what is no change of the
// traffic.
const (
	moveTogether = 0.6
	slower       = 1.25
	sameTraffic  = 0.1
)

func (r *Report) calendar() calendar {
	const short = 10 * day
	return calendar{now: r.To, fine: r.Seen.To.Sub(r.Seen.From) < short}
}

// words says what the figures say, the most important first.
func (r *Report) words() []string {
	var out []string
	add := func(sentences ...string) {
		out = append(out, slices.DeleteFunc(sentences, func(s string) bool { return s == "" })...)
	}
	slow := r.writesSlower()
	add(r.ofWrites(slow), r.ofTraffic(slow), r.ofCompany(slow))
	add(r.ofCrossed()...)
	add(r.ofAhead(), r.ofSeen())
	if slow {
		add("What holds writes up now: brim doctor --over 10s. What to do about each cause is in deploy/RUNBOOK.md.")
	}
	return out
}

// writesSlower reports whether p99 of the writes has grown.
func (r *Report) writesSlower() bool {
	p99 := r.find(writeP99)
	return p99.Trend == Rising && p99.Now > p99.Begin || p99.Now > slower*p99.Begin
}

func (r *Report) ofWrites(slow bool) string {
	p99 := r.find(writeP99)
	span := "over " + days(r.Seen.To.Sub(r.Seen.From))
	switch {
	case math.IsNaN(float64(p99.Now)):
		return "Nothing was seen of writes: none were made, or " + p99.Why + "."
	case slow:
		return fmt.Sprintf("Writes got slower %s: p99 from %s to %s (%s).", span, p99.amount(p99.Begin), p99.amount(p99.Now), growth(float64(p99.Begin), float64(p99.Now)))
	case p99.Trend == Falling:
		return fmt.Sprintf("Writes got faster %s: p99 from %s to %s.", span, p99.amount(p99.Begin), p99.amount(p99.Now))
	case p99.Trend == Unsure:
		return fmt.Sprintf("Whether writes get slower cannot be said yet: %s; p99 is %s.", p99.Why, p99.amount(p99.Now))
	default:
		return fmt.Sprintf("Writes did not get slower %s: p99 is %s, no trend seen.", span, p99.amount(p99.Now))
	}
}

func (r *Report) ofTraffic(slow bool) string {
	t, per := r.find(readingsRate), r.find(readingsPerUpdate)
	if math.IsNaN(float64(t.Begin)) || t.Begin == 0 {
		return ""
	}
	was := fmt.Sprintf("%s then, %s now", t.amount(t.Begin), t.amount(t.Now))
	var text string
	switch ratio := float64(t.Now / t.Begin); {
	case math.Abs(ratio-1) <= sameTraffic && slow:
		text = "Traffic does not explain it: readings/s are flat (" + was + ")"
	case math.Abs(ratio-1) <= sameTraffic:
		text = "Traffic is flat (" + was + ")"
	default:
		text = "Traffic changed: " + growth(float64(t.Begin), float64(t.Now)) + " (" + was + ")"
	}
	if per.Trend == Rising || per.Trend == Falling {
		text += fmt.Sprintf("; readings per update went from %s to %s", per.amount(per.Begin), per.amount(per.Now))
	}
	return text + "."
}

// ofCompany names what grew together with the latency, the closest first; of
// what is no latency itself.
func (r *Report) ofCompany(slow bool) string {
	if !slow {
		return ""
	}
	var found []*Series
	for _, s := range r.Series {
		moves := s.Trend == Rising || s.Trend == Falling
		if moves && s.Name != writeP99 && s.Name != writeP50 && math.Abs(float64(s.Correlation)) >= moveTogether {
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		return "Nothing else that was looked at moved together with it."
	}
	// What stands at the end in a bad class is nearer to the cause than what
	// merely grows.
	slices.SortStableFunc(found, func(a, b *Series) int {
		return cmp.Or(cmp.Compare(b.Class, a.Class), cmp.Compare(math.Abs(float64(b.Correlation)), math.Abs(float64(a.Correlation))))
	})
	texts := make([]string, len(found))
	for i, s := range found {
		texts[i] = fmt.Sprintf("%s %s (%.2f)", inSentence(s.Title), s.move(), float64(s.Correlation))
	}
	texts = firstOf(texts)
	return "What moved together with it (rank correlation with p99): " + strings.Join(texts, ", ") + "."
}

// move writes from where to where a series went; of what has no natural bounds
// by how much.
func (s *Series) move() string {
	if s.Unit == "%" || s.Begin == 0 {
		return fmt.Sprintf("%s → %s", strings.TrimSuffix(s.amount(s.Begin), " "+s.Unit), s.amount(s.Now))
	}
	return growth(float64(s.Begin), float64(s.Now))
}

func (s *Series) amount(v number) string { return amount(float64(v), s.Unit) }

// ofCrossed names the signals that went from one class to a worse one while it
// was looked at, and those that are bad all the time.
func (r *Report) ofCrossed() []string {
	var began, always []string
	when := r.calendar()
	for _, s := range r.Series {
		if !s.Signal || s.Class < doctor.Degrading {
			continue
		}
		var since *time.Time
		if s.Class == doctor.Bottleneck {
			since = s.Bottleneck.At
		} else {
			since = s.Degrading.At
		}
		if since == nil {
			always = append(always, fmt.Sprintf("%s (%s, %s)", inSentence(s.Title), s.amount(s.Now), s.Class))
			continue
		}
		text := fmt.Sprintf("%s: %s since %s", s.Title, s.Class, when.write(*since))
		if d := s.Degrading.At; s.Class == doctor.Bottleneck && d != nil && d.Before(*since) {
			text += ", degrading since " + when.write(*d)
		}
		began = append(began, fmt.Sprintf("%s (%s → %s).", text, s.amount(s.Begin), s.amount(s.Now)))
	}
	if len(always) > 0 {
		began = append(began, "Not healthy in all that was seen: "+strings.Join(always, ", ")+".")
	}
	return began
}

// ofAhead names what will be crossed within a year, the next first.
func (r *Report) ofAhead() string {
	type ahead struct {
		at   time.Time
		text string
	}
	var found []ahead
	when := calendar{now: r.To}
	for _, s := range r.Series {
		if s.rule == nil {
			continue
		}
		for _, c := range []struct {
			class doctor.Class
			*Crossing
			threshold float64
		}{{doctor.Degrading, s.Degrading, s.rule.Threshold.Degrading}, {doctor.Bottleneck, s.Bottleneck, s.rule.Threshold.Bottleneck}} {
			if c.Crossing != nil && c.State == Ahead {
				found = append(found, ahead{*c.At, fmt.Sprintf("%s is at %s (%s) about %s", inSentence(s.Title), s.amount(number(c.threshold)), c.class, when.write(*c.At))})
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	slices.SortStableFunc(found, func(a, b ahead) int { return a.at.Compare(b.at) })
	texts := make([]string, len(found))
	for i, f := range found {
		texts[i] = f.text
	}
	texts = firstOf(texts)
	return "If it goes on like this: " + strings.Join(texts, "; ") + "."
}

// ofSeen says what to mind with all of it.
func (r *Report) ofSeen() string {
	const short = 3 * day
	if r.Seen.To.Sub(r.Seen.From) < short {
		return "Less than three days were seen: the ups and downs of a day look like trends."
	}
	return ""
}

// firstOf keeps a sentence readable; all is in the table.
func firstOf(texts []string) []string {
	const most = 8
	if len(texts) <= most {
		return texts
	}
	return append(slices.Clip(texts[:most-1]), fmt.Sprintf("and %d more", len(texts)-most+1))
}

// inSentence writes a title within a sentence.
func inSentence(title string) string {
	return strings.ToLower(title[:1]) + title[1:]
}

// days writes a span in days, or in hours or minutes where it is short.
func days(d time.Duration) string {
	n := d.Hours() / 24
	if d.Round(time.Minute) < 2*time.Hour {
		return digits(math.Round(d.Minutes())) + " minutes"
	}
	if n < 3 {
		return digits(math.Round(d.Hours())) + " hours"
	}
	return digits(math.Round(n)) + " days"
}
