package compact

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// A Selection selects the members to compact.
type Selection struct {
	Member string // host:port; empty: see All
	// All selects the secondaries and then the primary. Without All and Member, only the
	// secondaries of a set are selected, or a standalone server.
	All bool
	// Force compacts a server even if it is busy.
	Force bool
}

// A Skipped is a member that is not compacted, and the reason.
type Skipped struct {
	Member string `json:"member"`
	Kind   Reason `json:"kind"`
	Why    string `json:"why"`
	Do     string `json:"do,omitempty"` // what would change it
}

// A Reason is why a member is not compacted.
type Reason string

// The reasons.
const (
	NoGain  Reason = "no_gain"
	Primary Reason = "primary" // it was not asked for
	Busy    Reason = "busy"    // it was asked for, and is refused
	Unseen  Reason = "unseen"
	Running Reason = "running" // another compaction is under way there
)

// ErrNoMember means that the selected member does not exist.
var ErrNoMember = errors.New("there is no such member")

// Advice for the operator.
const (
	// forceCost is a result of the experiment `brim bench storage`.
	forceCost = "writes go on meanwhile, and take longer: their p99 was 3.5 times as long as before when `brim bench storage` measured it"
	stepDown  = "db.adminCommand({replSetStepDown: 120}) makes another member the primary; then run the command again"
)

// Choose returns the members to compact, in this order, and those to skip, with the reasons. It
// skips the primary of a set unless it was selected, a busy server that accepts writes unless that
// is forced, and all members while another compaction is running.
func (c *Compactor) Choose(d *Deployment, choice Selection) (todo []*Member, left []Skipped, err error) {
	if choice.Member != "" && !slices.ContainsFunc(d.Members, func(m *Member) bool { return m.Host == choice.Member }) {
		names := make([]string, len(d.Members))
		for i, m := range d.Members {
			names[i] = m.Host
		}
		return nil, nil, fmt.Errorf("%w: %q; members are %s", ErrNoMember, choice.Member, strings.Join(names, ", "))
	}
	running := ""
	for _, m := range d.Members {
		if m.Running != "" {
			running = m.Host
		}
	}
	var last []*Member // the primary, which is compacted last
	for _, m := range d.Members {
		if choice.Member != "" && m.Host != choice.Member {
			continue
		}
		l := c.skip(m, choice, len(d.Members) > 1)
		if l == nil && running != "" {
			l = &Skipped{m.Host, Running, "member " + running + " is being compacted, and one at a time is enough", "wait for it; db.currentOp() shows it there"}
		}
		if l != nil {
			left = append(left, *l)
			continue
		}
		if m.Role == RolePrimary {
			last = append(last, m)
			continue
		}
		todo = append(todo, m)
	}
	return append(todo, last...), left, nil
}

// skip returns why a member must not be compacted; nil if it may be.
func (c *Compactor) skip(m *Member, choice Selection, several bool) *Skipped {
	l := &Skipped{Member: m.Host}
	switch {
	case !m.Seen():
		l.Kind, l.Why = Unseen, m.Unseen
		return l
	case m.Running != "":
		l.Kind, l.Why, l.Do = Running, m.Running, "wait for it; db.currentOp() shows it"
		return l
	}
	if why := c.notWorthwhile(m.Sizes); why != "" {
		l.Kind, l.Why, l.Do = NoGain, why, m.Sizes.Waits()
		return l
	}
	if m.Role == RoleSecondary {
		return nil
	}
	asked := choice.All || choice.Member != "" || !several
	why := m.Load.Busy()
	switch {
	case !asked:
		l.Kind, l.Why = Primary, fmt.Sprintf("it is the primary, and %s are free in it", bytes(m.Sizes.AllFree()))
		l.Do = stepDown + "; or name it by --member " + m.Host
		if len(why) > 0 {
			l.Do += " --force, since it is busy (" + strings.Join(why, "; ") + ")"
		}
		return l
	case len(why) > 0 && !choice.Force:
		l.Kind = Busy
		l.Why = fmt.Sprintf("it is busy: over %.1f s, %s", m.Load.Over.Seconds(), strings.Join(why, "; "))
		l.Do = "--force does it all the same: " + forceCost
		if several {
			l.Do = stepDown + "; or " + l.Do
		}
		return l
	}
	return nil
}

// bytes formats a size.
func bytes(n int64) string {
	if n < 0 {
		return "-" + humanize.IBytes(uint64(-n))
	}
	return humanize.IBytes(uint64(n))
}
