package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// Roles that permit what is asked.
const (
	clusterMonitor = "clusterMonitor" // on admin
	readRole       = "read"           // on the streams' database
)

var errNoEngine = errors.New("a mongos has no storage engine")

// A refusal is something that was not answered.
type refusal struct {
	role, command, need string
	err                 error
}

// note keeps what was not answered; that there is nothing to answer is no
// refusal.
func (g *gathering) note(role, command, need string, err error) {
	if err == nil || missing(err) {
		return
	}
	g.facts.refusals = append(g.facts.refusals, refusal{role: role, command: command, need: need, err: err})
}

// unseen says what could not be looked at: one finding for each role that
// would help, and one for each answer that no role gives.
func unseen(f *facts) []doctor.Finding {
	var out []doctor.Finding
	if f.kind == sharded {
		out = append(out, doctor.Finding{
			Name: "unseen_settings", Kind: doctor.Unseen, Class: doctor.Unknown,
			Cause:    "settings of the shards: a mongos has no storage engine",
			Evidence: "history window, checkpoints, journal, cache and members were not looked at",
			Action:   "brim doctor --mongo-uri mongodb://MEMBER/?directConnection=true, for a member of each shard",
			Cost:     "none, it only reads",
		})
	}
	for _, role := range []string{clusterMonitor, readRole} {
		var commands, needs []string
		for _, r := range f.refusals {
			if r.role == role && refused(r.err) {
				commands, needs = appendNew(commands, r.command), appendNew(needs, r.need)
			}
		}
		if len(commands) > 0 {
			out = append(out, f.lacks(role, commands, needs))
		}
	}
	for _, r := range f.refusals {
		if !refused(r.err) {
			out = append(out, doctor.Finding{
				Name: "unseen_settings", Kind: doctor.Unseen, Class: doctor.Unknown,
				Cause:    r.need + ": " + r.command + " was not answered",
				Evidence: r.err.Error(),
				Action:   "look again; a hosted MongoDB may not answer it at all",
				Cost:     "none, it only reads",
			})
		}
	}
	return out
}

func (f *facts) lacks(role string, commands, needs []string) doctor.Finding {
	user, db := f.user.User, f.user.DB
	if user == "" {
		user, db = "USER", "admin"
	}
	of := "admin"
	if role == readRole {
		of = cmp.Or(f.database, "DATABASE")
	}
	return doctor.Finding{
		Name: "unseen_settings", Kind: doctor.Unseen, Class: doctor.Unknown,
		Cause:    fmt.Sprintf("settings: the user may not ask for %s; the role %s permits it", list(commands), role),
		Evidence: "not looked at: " + list(needs),
		Action:   fmt.Sprintf("in mongosh: db.getSiblingDB(%q).grantRolesToUser(%q, [{role: %q, db: %q}])", db, user, role, of),
		Cost:     "the user may read more; no restart",
	}
}

func appendNew(to []string, s string) []string {
	if slices.Contains(to, s) {
		return to
	}
	return append(to, s)
}
