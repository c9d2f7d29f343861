package settings

import (
	"fmt"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/doctor"
)

// topology: a MongoDB that is no replica set.
func topology(f *facts) []doctor.Finding {
	if f.kind != standalone {
		return nil
	}
	return advice{
		name:  "setting_topology",
		cause: "topology: a standalone server, no replica set",
		evidence: "hello names no set. A majority is this one server, writes that break off are not repeated by the driver, and there are no change streams, " +
			"which brim recompress and brim migrate follow live writes by",
		action: "in mongod.conf: replication: {replSetName: rs0}; restart; then once in mongosh: rs.initiate()",
		cost: "a restart; disk for the oplog (5 % of the free space unless oplogSizeMB says less); each write goes to the oplog too: " +
			"two thirds of the appends a second, where it was measured. Set minSnapshotHistoryWindowInSeconds to 0 with it",
	}.alone()
}

// voting returns the members that vote, and how many of them hold data.
func (c *replicaConfig) voting() (voters, holding int) {
	for _, m := range c.Config.Members {
		if m.Votes == 0 {
			continue
		}
		voters++
		if !m.Arbiter {
			holding++
		}
	}
	return voters, holding
}

// arbiters vote and hold nothing: with one of three, a majority needs every
// member that holds data.
func arbiters(f *facts) []doctor.Finding {
	if f.config == nil {
		return nil
	}
	var names []string
	for _, m := range f.config.Config.Members {
		if m.Arbiter {
			names = append(names, m.Host)
		}
	}
	if len(names) == 0 {
		return nil
	}
	voters, holding := f.config.voting()
	majority := voters/2 + 1
	effect := fmt.Sprintf("%d more than a majority can be away", holding-majority)
	if holding <= majority {
		effect = "when one of them is away no write is acknowledged by a majority, and history is kept until it is back, which fills the cache"
	}
	return advice{
		name:     "setting_topology",
		cause:    "topology: an arbiter in place of a member that holds data",
		evidence: fmt.Sprintf("%s holds nothing; a majority is %d of %d votes, and %d members hold data: %s", list(names), majority, voters, holding, effect),
		action:   fmt.Sprintf("add a member that holds data: in mongosh rs.remove(%q), then rs.add(\"HOST:PORT\")", names[0]),
		cost:     "a machine with the disk for all data; the first copy reads all of it from another member; no restart",
	}.alone()
}

// States of a member.
const (
	statePrimary   = 1
	stateSecondary = 2
	stateArbiter   = 7
)

// leastLag is from where on a member lags. An idle set's members are told to
// each other every two seconds and write something every ten.
const leastLag = 30 * time.Second

// members that are away or behind.
func members(f *facts) []doctor.Finding {
	if f.status == nil {
		return nil
	}
	var newest time.Time
	for _, m := range f.status.Members {
		if m.State == statePrimary {
			newest = m.Applied
		}
	}
	var behind []string
	for _, m := range f.status.Members {
		switch lag := newest.Sub(m.Applied); {
		case m.State == statePrimary, m.State == stateArbiter && m.Health > 0:
		case m.Health == 0:
			behind = append(behind, m.Name+" is away")
		case m.State != stateSecondary:
			behind = append(behind, m.Name+" is "+strings.ToLower(m.Text))
		case !newest.IsZero() && lag-f.delay(m.Name) >= leastLag:
			behind = append(behind, m.Name+" is "+config.FormatDuration(coarse(lag))+" behind")
		}
	}
	if len(behind) == 0 {
		return nil
	}
	return advice{
		name:     "setting_topology",
		cause:    "topology: members are away or behind",
		evidence: list(behind) + ". Writes wait for the majority, and what a majority does not have yet is kept as history, which fills the cache",
		action:   "on that member: see that mongod runs, and brim doctor --mongo-uri mongodb://MEMBER/?directConnection=true; in mongosh: rs.printSecondaryReplicationInfo()",
		cost:     "none to look; a member further behind than the oplog reaches has to copy all data anew",
	}.alone()
}

// leastHeldBack is for how long in a second writes must have waited: less is
// what taking a ticket costs.
const leastHeldBack = 0.05

// flowControl: the primary lets few writes in while the majority is behind. No
// signal of its own engine or disk shows that.
func flowControl(f *facts) []doctor.Finding {
	if f.kind != replicaSet {
		return nil
	}
	waited := f.span.heldBack()
	if !(waited >= leastHeldBack) {
		return nil
	}
	return advice{
		name:  "setting_topology",
		cause: "topology: the primary holds writes back until the majority has caught up (flow control)",
		evidence: fmt.Sprintf("writes waited for %s ms in each second to be let in, all of them added up, %s; it lets in %s a second now",
			amount(1000*waited), f.span, amount(f.look.own.Flow.Target)),
		action: "find the member that is behind, and why: rs.printSecondaryReplicationInfo() in mongosh, and brim doctor --mongo-uri mongodb://MEMBER/?directConnection=true; " +
			"its disk and processors have to keep up with the primary's",
		cost: "none to look. To switch it off (enableFlowControl: false) lets history gather in the primary's cache instead",
	}.alone()
}

// delay is what a member lags on purpose.
func (f *facts) delay(name string) time.Duration {
	if f.config != nil {
		for _, m := range f.config.Config.Members {
			if m.Host == name {
				return time.Duration(m.Delay * float64(time.Second))
			}
		}
	}
	return 0
}

// voters in an even number bear no more failures than one fewer.
func voters(f *facts) []doctor.Finding {
	if f.config == nil {
		return nil
	}
	voters, _ := f.config.voting()
	if voters == 0 || voters%2 != 0 {
		return nil
	}
	majority := voters/2 + 1
	bears := "none can be away"
	if voters > 2 {
		bears = fmt.Sprintf("%d can be away, as with %d", voters-majority, voters-1)
	}
	return advice{
		name:     "setting_topology",
		cause:    "topology: an even number of votes",
		evidence: fmt.Sprintf("%d members vote, a majority is %d: %s", voters, majority, bears),
		action: "add a member that holds data: in mongosh rs.add(\"HOST:PORT\"); or take one's vote: " +
			"cfg = rs.conf(); cfg.members[N].votes = 0; cfg.members[N].priority = 0; rs.reconfig(cfg)",
		cost: "a machine for the further member; or a member that cannot become primary. No restart",
	}.alone()
}
