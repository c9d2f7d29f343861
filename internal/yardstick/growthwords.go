package main

import (
	"fmt"
	"strings"
)

// kneeNotes say where merging stops to pay, and what sets that.
func (g *growth) kneeNotes() []string {
	notes := []string{fmt.Sprintf("The lines are of least squares, each point weighed by its own cost. A reading costs a/K + b, so a doubling of K gains less than %.0f %% from where b K is %.1f a: the knee. "+
		"The round trip of an update is its part of the command that carried it; with several writers commands wait for each other.", 100*littleGain, kneeFactor)}
	for i := range g.Fits {
		if f := &g.Fits[i]; f.Sensors == g.grid.centre.Sensors || len(g.Fits) == 1 {
			notes = append(notes, f.words(g.grid.perUpdate)...)
		}
	}
	return append(notes, g.spread()...)
}

// words tell a fit in sentences.
func (f *mergeFit) words(perUpdate []int) []string {
	sensors := count(f.Sensors)
	k, ok := knee(f.Mongod)
	if !ok {
		return []string{fmt.Sprintf("At %s sensors the figures have no knee: by the line, an update costs mongod %.1f us of CPU and %.2f us a reading, which is not both above 0.", sensors, f.Mongod.Base, f.Mongod.Each)}
	}
	where := "beyond the largest that was measured"
	if most := perUpdate[len(perUpdate)-1]; k <= float64(most) {
		where = "within what was measured"
	}
	shares := make([]string, len(perUpdate))
	for i, n := range perUpdate {
		shares[i] = fmt.Sprintf("%.0f %% at %d", 100*f.Mongod.Base/f.Mongod.At(float64(n)), n)
	}
	notes := []string{
		fmt.Sprintf("At %s sensors an update costs mongod %.1f us of CPU whatever it carries and %.2f us more for each reading: as much by itself as %.1f readings. "+
			"From %s readings an update on, %s, a further doubling gains less than %.0f %%.", sensors, f.Mongod.Base, f.Mongod.Each, f.Mongod.Base/f.Mongod.Each, thousands(k, 0), where, 100*littleGain),
		fmt.Sprintf("What sets the knee is the price of an update by itself: finding the document, guard and caps, a version of the document, an entry of the oplog. Its part of mongod's CPU is %s readings an update.", strings.Join(shares, ", ")),
	}
	if k, ok := knee(f.Trip); ok {
		notes = append(notes, fmt.Sprintf("By round trip it is %s us an update and %.2f us a reading, with the knee at %s.", thousands(f.Trip.Base, 1), f.Trip.Each, thousands(k, 0)))
	}
	return notes
}

// spread says how the price of an update, and with it the knee, moves with the
// number of sensors.
func (g *growth) spread() []string {
	if len(g.Fits) < 2 {
		return nil
	}
	a, b := g.Fits[0], g.Fits[len(g.Fits)-1]
	return []string{fmt.Sprintf("From %s to %s sensors the price of an update changes from %.1f to %.1f us of mongod's CPU, that of a reading from %.2f to %.2f us, and the knee from %s to %s readings an update.",
		count(a.Sensors), count(b.Sensors), a.Mongod.Base, b.Mongod.Base, a.Mongod.Each, b.Mongod.Each, kneeWords(a.Mongod), kneeWords(b.Mongod))}
}

func (g *growth) planTable() wordTable {
	t := wordTable{Heads: []string{"readings/s", "readings an update", "brim, us CPU a reading", "cores", "daemons", "mongod, us CPU a reading", "cores", "shards"}}
	for _, p := range g.Plan {
		t.Rows = append(t.Rows, []string{
			thousands(p.Rate, 0), thousands(p.PerUpdate, 1),
			thousands(p.BrimCPU, 2), thousands(p.BrimCores, 1), count(p.Daemons),
			thousands(p.MongodCPU, 2), thousands(p.MongodCores, 1), count(p.Shards),
		})
	}
	return t
}

func (g *growth) planNotes() []string {
	notes := []string{fmt.Sprintf("Brim's CPU a reading is %.2f us: line protocol of ten fields and ten tags through the daemon until stored, %s readings/s here and now, which merged %.1f readings an update and cost mongod %.2f us each. "+
		"The first row of each rate goes by that, the others by the points at %s sensors.",
		g.Lines.BrimCPU, thousands(g.Lines.Rate, 0), g.Lines.Merged, g.Lines.MongodCPU, count(g.grid.centre.Sensors))}
	for i := range g.Plan {
		p := &g.Plan[i]
		if i > 0 && g.Plan[i-1].Rate == p.Rate {
			continue
		}
		best := p
		for j := range g.Plan {
			if other := &g.Plan[j]; other.Rate == p.Rate && other.MongodCPU < best.MongodCPU {
				best = other
			}
		}
		notes = append(notes, fmt.Sprintf("%s readings/s take %s and %s as merged here; %s, with %.1f readings an update, are the fewest.",
			thousands(p.Rate, 0), several(p.Daemons, "daemon"), several(p.Shards, "shard"), several(best.Shards, "shard"), best.PerUpdate))
	}
	return append(notes, fmt.Sprintf("Assumed: a host for each daemon and each shard, with %d cores like these, %.0f %% of them in use; sensors spread evenly; both programs scale with cores. "+
		"A shard counts as its primary: a replica set of three has two more such hosts. Processor time alone is counted; network and disks are not.", planCores, 100*planUse))
}

func several(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(n) + " " + what + "s"
}
