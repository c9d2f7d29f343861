package doctor

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A machineLook is how long the processors of this machine have worked since
// its start, all of them added up. The zero value is one that was not seen.
type machineLook struct {
	total, busy float64 // seconds
}

// busySince returns the share of the processors' time in which they worked;
// NaN if it cannot be known.
func (l machineLook) busySince(before machineLook) float64 {
	if before.total == 0 || l.total <= before.total {
		return math.NaN()
	}
	return min(max((l.busy-before.busy)/(l.total-before.total), 0), 1)
}

// processors are those of the machine of one server process, with its memory.
type processors struct {
	host    string // of the process that was asked
	pid     int
	started time.Time
	count   float64 // 0: not told
	why     string  // count is 0
	memory  float64 // bytes; 0: not told
}

// Why the processors cannot be seen.
const (
	whyNoHostInfo    = "the user may not ask for hostInfo, which tells the processors: the role clusterMonitor permits it"
	whyCoresUnasked  = "MongoDB has not told how many processors it has"
	whyCoresNotThere = "MongoDB does not tell how many processors it has"
)

// lookAtProcessors asks a server process once how many it has, and how much
// memory, and, if it runs on this machine, reads how busy they are.
func (m *Monitor) lookAtProcessors(parent context.Context, now *look) {
	if m.config.DBPath != "" || m.place.here {
		now.machine = m.disks.machine()
	}
	s := now.server
	if s == nil {
		return
	}
	p := m.processors
	if !s.isProcess(p.host, p.pid, p.started) {
		p = processors{host: s.host, pid: s.pid, started: s.started}
		ctx, cancel := context.WithTimeout(parent, m.patience())
		defer cancel()
		raw, err := m.database.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "hostInfo", Value: 1}}).Raw()
		switch {
		case err == nil:
			p.count, p.why = countProcessors(raw)
			p.memory = memoryOf(raw)
		case notPermitted(err):
			p.why = whyNoHostInfo
		default:
			now.coresWhy = whyCoresUnasked
			return // asked again at the next look
		}
		m.processors = p
	}
	now.cores, now.coresWhy, now.memory = p.count, p.why, p.memory
}

// countProcessors reads an answer of hostInfo. A process that may use some of
// the machine's processors has those.
func countProcessors(raw bson.Raw) (count float64, why string) {
	if raw.Validate() != nil {
		return 0, whyNoSense
	}
	for _, name := range []string{"numCoresAvailableToProcess", "numCores"} {
		if n := number(raw, "system", name); n > 0 {
			return n, ""
		}
	}
	return 0, whyCoresNotThere
}

// memoryOf reads how many bytes a process may use of an answer of hostInfo:
// those of its container, or of the machine; 0: not told.
func memoryOf(raw bson.Raw) float64 {
	if raw.Validate() != nil {
		return 0
	}
	for _, name := range []string{"memLimitMB", "memSizeMB"} {
		if n := number(raw, "system", name); n > 0 {
			return n * mebi
		}
	}
	return 0
}

// isProcess reports whether the server is the process that was asked before.
func (s *status) isProcess(host string, pid int, started time.Time) bool {
	const clockError = 5 * time.Second
	return host != "" && s.host == host && s.pid == pid && s.started.Sub(started).Abs() < clockError
}

// processorShare is what of the processors mongod keeps busy, in percent, or
// everything on its machine if that is this one and it is more.
func processorShare(now look, r rates) measured {
	machine := r.value(rateMachineBusy)
	own, why := 100*r.value(rateProcessors)/now.cores, r.serverWhy
	if now.cores <= 0 {
		own = math.NaN()
		if why == "" {
			why = now.coresWhy
		}
	}
	switch {
	case math.IsNaN(own) && math.IsNaN(machine):
		return measured{value: own, unknown: whyNaN(own, why)}
	case math.IsNaN(own):
		return measured{value: machine, about: "of everything on this machine; mongod's own share is not known: " + whyNaN(own, why)}
	case machine > own:
		return measured{value: machine, about: fmt.Sprintf("of everything on this machine; mongod's own share is %.0f %%", own)}
	}
	return measured{value: own}
}
