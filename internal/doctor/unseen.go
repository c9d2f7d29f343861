package doctor

import (
	"slices"
	"strings"
)

// unseen has a finding for each reason why signals cannot be seen.
func unseen(s *Seen) []Finding {
	var reasons []string
	titles := make(map[string][]string)
	for _, one := range s.Signals {
		if one.Class != Unknown {
			continue
		}
		if !slices.Contains(reasons, one.Why) {
			reasons = append(reasons, one.Why)
		}
		titles[one.Why] = append(titles[one.Why], lower(one.Title))
	}
	var out []Finding
	for _, why := range reasons {
		name, remedy := helps(why)
		evidence := why
		if sync := s.Rate(rateJournalSyncTime); s.Disk.Why == why && sync > 0 {
			evidence += "; what can be told of it: a sync of MongoDB's journal, which writes wait for, took " + round(sync) + " ms in the mean"
		}
		out = append(out, Finding{
			Name: name, Kind: Unseen, Class: Unknown, Cause: "not seen: " + strings.Join(titles[why], ", "),
			Evidence: evidence, Action: remedy.action, Cost: remedy.cost,
		})
	}
	return out
}

// helps says what makes visible what is not, for one reason, with the name of
// the finding.
func helps(why string) (string, remedy) {
	const grant = `db.getSiblingDB("admin").grantRolesToUser(USER, ["clusterMonitor"])`
	switch why {
	case whyNoWrites, whyFewAtFirst:
		return "unseen_rate", remedy{"look again after a minute of writes", "none"}
	case whyFirst, whyNoLook:
		return "unseen_rate", remedy{"look twice: brim doctor --over 10s, or --watch", "the time between the looks"}
	case whyRestarted:
		return "unseen_rate", remedy{"look again", "none"}
	case whyNoPath:
		return "unseen_permission", remedy{grant + "; or name the folder of its files by --disk, if it runs on this machine", "the user may read the server's statistics, and no data"}
	case whyNotPermitted, whyNoHostInfo:
		return "unseen_permission", remedy{grant, "the user may read the server's statistics, and no data"}
	case whyNoRead:
		return "unseen_permission", remedy{"grant the user the role read on the database of the streams", "the user may read the readings"}
	case whyElsewhere:
		return "unseen_disk", remedy{"run brim doctor on the machine of MongoDB's primary; if this is it, name the folder of its files by --disk PATH", "none"}
	case whyRefused:
		return "unseen_server", remedy{"check the user, the password and authSource of --mongo-uri", "none"}
	case whyAway, whyUnasked, whyCoresUnasked:
		return "unseen_server", remedy{"look again when MongoDB answers", "none"}
	case whyMongos:
		return "unseen_mongos", remedy{"name a shard's replica set by --mongo-uri, one after the other", "none"}
	case whyNoCollection:
		return "unseen_collection", remedy{"name the database and the stream by --database and --stream, or the daemon by --admin", "none"}
	case whyNoCheckpoint:
		return "unseen_checkpoint", remedy{"look again after a minute, when there was one", "none"}
	}
	if strings.Contains(why, "names no disk") || strings.Contains(why, "cannot be looked at") || strings.Contains(why, "/proc") {
		return "unseen_disk", remedy{"run brim doctor outside the container, or name a folder on the disk of MongoDB's files by --disk PATH", "none"}
	}
	return "unseen_other", remedy{"none is known", "none"}
}
