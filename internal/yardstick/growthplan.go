package main

import "math"

// What a plan assumes of the hosts.
const (
	planCores = 16
	planUse   = 0.60 // of their cores, so that peaks and failovers have room
)

// A planRow is what a rate takes.
type planRow struct {
	Rate        float64 `json:"readings_per_second"`
	PerUpdate   float64 `json:"per_update"`
	BrimCPU     float64 `json:"brim_us_per_reading"`
	MongodCPU   float64 `json:"mongod_us_per_reading"`
	BrimCores   float64 `json:"brim_cores"`
	Daemons     int     `json:"daemons"`
	MongodCores float64 `json:"mongod_cores"`
	Shards      int     `json:"shards"`
}

// hostsFor returns how many cores a rate keeps busy at so many microseconds a
// reading, and how many hosts that takes.
func hostsFor(rate, microseconds float64) (cores float64, hosts int) {
	cores = rate * microseconds / 1e6
	return cores, int(math.Ceil(cores/(planCores*planUse) - 1e-9))
}

func planFor(rate, perUpdate, brim, mongod float64) planRow {
	p := planRow{Rate: rate, PerUpdate: perUpdate, BrimCPU: brim, MongodCPU: mongod}
	p.BrimCores, p.Daemons = hostsFor(rate, brim)
	p.MongodCores, p.Shards = hostsFor(rate, mongod)
	return p
}

// plan is for one and for ten million readings a second: with the merging that
// the daemon reached, and with that of the points at the centre's sensors.
func (g *growth) plan() (rows []planRow) {
	for _, rate := range []float64{1e6, 1e7} {
		rows = append(rows, planFor(rate, g.Lines.Merged, g.Lines.BrimCPU, g.Lines.MongodCPU))
		for _, p := range g.pointsOf(g.grid.merges(g.grid.centre.Sensors)) {
			rows = append(rows, planFor(rate, float64(p.PerUpdate), g.Lines.BrimCPU, p.MongodReading))
		}
	}
	return rows
}
