package fill

import (
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/scrape"
)

// A Latency is that of writes, in seconds; all 0 where there were none.
type Latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Mean float64 `json:"mean"`
}

// A Tenth is one of a window, by the time of the readings.
type Tenth struct {
	From     float64 `json:"fill_from"`
	To       float64 `json:"fill_to"`
	Updates  float64 `json:"updates"`
	Write    Latency `json:"store_write_seconds"`
	Seconds  float64 `json:"write_seconds_total"` // of all its updates, those of one command side by side
	Response Latency `json:"response_seconds"`    // of the requests of its readings; without mean
	// Clock is of the writes in this tenth of the time, and MongodCPU processor
	// seconds a reading that was stored in it; 0 where a passage is not one window
	// long.
	Clock     Latency `json:"store_write_seconds_by_clock"`
	MongodCPU float64 `json:"mongod_cpu_seconds_per_reading,omitempty"`
}

// Figures are what came of a passage.
type Figures struct {
	OfferedRate  float64 `json:"offered_rate"` // readings a second
	AchievedRate float64 `json:"achieved_rate"`
	// FirstRate and LastRate are the readings that MongoDB stored a second in the
	// first and in the last sixth of the time: behind what was acknowledged by as
	// long as readings gather.
	FirstRate float64 `json:"stored_rate_first_sixth"`
	LastRate  float64 `json:"stored_rate_last_sixth"`
	// BehindSeconds is how long it took, once the last reading was acknowledged,
	// until all were stored, or the wait for that ended; Left were not stored then.
	BehindSeconds     float64 `json:"behind_seconds"`
	Left              float64 `json:"left"`
	Readings          float64 `json:"readings"` // stored
	ReadingsPerUpdate float64 `json:"readings_per_update"`
	UpdateRate        float64 `json:"updates_per_second"`

	// Write is of all writes, Loaded of those while readings came: where MongoDB
	// falls behind, it has the machine to itself when the load has ended.
	Write    Latency `json:"store_write_seconds"`
	Loaded   Latency `json:"store_write_seconds_under_load"`
	Response Latency `json:"response_seconds"`
	// First and Last are of the first and the last third of the window.
	First  Latency   `json:"store_write_seconds_first_third"`
	Last   Latency   `json:"store_write_seconds_last_third"`
	Tenths [10]Tenth `json:"tenths"`

	// By the clock, where a passage is one window long: the writes in the first six
	// minutes of an hour, between 36 and 48 minutes, and after 48.
	Start   Latency `json:"store_write_seconds_at_start"`
	After40 Latency `json:"store_write_seconds_after_40_minutes"`
	After55 Latency `json:"store_write_seconds_after_55_minutes"`

	// Processor seconds a reading; of mongod's also those in the first and in the
	// last third of the time, where a passage is one window long.
	MongodCPU      float64 `json:"mongod_cpu_seconds_per_reading"`
	MongodCPUFirst float64 `json:"mongod_cpu_seconds_per_reading_first_third,omitempty"`
	MongodCPULast  float64 `json:"mongod_cpu_seconds_per_reading_last_third,omitempty"`
	BrimCPU        float64 `json:"brim_cpu_seconds_per_reading"`

	// By the server's counters, a reading, all until the last was stored.
	JournalBytes   float64 `json:"journal_bytes_per_reading"` // WiredTiger's log
	FileBytes      float64 `json:"file_bytes_per_reading"`    // written to its other files
	HistoryInserts float64 `json:"history_inserts_per_reading"`
	HistoryBytes   float64 `json:"history_bytes_per_reading"` // its file's growth

	Checkpoints       float64 `json:"checkpoints"`
	CheckpointSeconds float64 `json:"checkpoint_seconds"` // of all together
	// During and Outside are of the half seconds in which a checkpoint ran, and of
	// the others; 0 without one.
	During  Latency `json:"store_write_seconds_during_checkpoint"`
	Outside Latency `json:"store_write_seconds_outside_checkpoint"`
}

// figures are made of looks, the first before the load, the last when all was
// stored.
func (p Passage) figures(came *load.Result, looks []look, stored time.Time) *Figures {
	first, last := &looks[0], &looks[len(looks)-1]
	readings := last.readings - first.readings
	per := func(v float64) float64 { return finite(v / readings) }
	counted := func(name string) float64 { return last.counters.Since(first.counters, name) }
	updates := last.updates.Since(first.updates)
	f := &Figures{
		OfferedRate: came.OfferedRate, AchievedRate: came.AchievedRate,
		BehindSeconds: max(0, stored.Sub(came.Began).Seconds()-came.Seconds),
		Left:          max(0, float64(came.Acked)-readings),
		Readings:      readings, ReadingsPerUpdate: finite(updates.Mean()), UpdateRate: finite(updates.Count / p.Duration.Seconds()),
		Write:     latency(last.all().Since(first.all())),
		Response:  Latency{P50: came.Response.P50, P99: came.Response.P99, Mean: came.Response.Mean},
		First:     latency(last.tenths(0, 3).Since(first.tenths(0, 3))),
		Last:      latency(last.tenths(7, 10).Since(first.tenths(7, 10))),
		MongodCPU: per((last.mongod - first.mongod).Seconds()), BrimCPU: per((last.brim - first.brim).Seconds()),
		JournalBytes: per(counted("journal_written_bytes_total")), FileBytes: per(counted("block_written_bytes_total")),
		HistoryInserts: per(counted("history_store_inserts_total")), HistoryBytes: per(max(0, counted("history_store_bytes"))),
		Checkpoints: finite(counted("checkpoints_total")), CheckpointSeconds: finite(counted("checkpoint_seconds_total")),
	}
	f.FirstRate, f.LastRate = sixths(looks, came.Began, p.Duration)
	for i := range f.Tenths {
		h := last.writes[i].Since(first.writes[i])
		f.Tenths[i] = Tenth{From: float64(i) / 10, To: float64(i+1) / 10, Updates: h.Count, Write: latency(h), Seconds: h.Sum}
		if i < len(came.ByFill) {
			f.Tenths[i].Response = Latency{P50: came.ByFill[i].P50, P99: came.ByFill[i].P99}
		}
	}
	f.Loaded = writesBetween(looks, came.Began, came.Began.Add(p.Duration))
	if p.oneWindow() {
		f.byClock(came.Began, p.Duration, looks)
	}
	f.checkpoints(looks)
	return f
}

// byClock sets what mongod took in parts of the time.
func (f *Figures) byClock(began time.Time, took time.Duration, looks []look) {
	between := func(from, to float64) float64 {
		at := func(share float64) (cpu, readings float64) {
			return along(looks, began.Add(time.Duration(share*float64(took))))
		}
		cpu, readings := at(from)
		cpuEnd, readingsEnd := at(to)
		return finite((cpuEnd - cpu) / (readingsEnd - readings))
	}
	writes := func(from, to float64) Latency {
		return writesBetween(looks, began.Add(time.Duration(from*float64(took))), began.Add(time.Duration(to*float64(took))))
	}
	for i := range f.Tenths {
		from, to := float64(i)/10, float64(i+1)/10
		f.Tenths[i].MongodCPU, f.Tenths[i].Clock = between(from, to), writes(from, to)
	}
	f.Start, f.After40, f.After55 = writes(0, 0.1), writes(0.6, 0.8), writes(0.8, 1)
	f.MongodCPUFirst, f.MongodCPULast = between(0, 1./3), between(2./3, 1)
}

// along returns mongod's processor seconds and the readings stored at a time,
// on the straight line between two looks.
func along(looks []look, at time.Time) (cpu, readings float64) {
	i := 1
	for i < len(looks)-1 && looks[i].at.Before(at) {
		i++
	}
	if i >= len(looks) {
		return looks[0].mongod.Seconds(), looks[0].readings
	}
	a, b := &looks[i-1], &looks[i]
	share := min(max(at.Sub(a.at).Seconds()/b.at.Sub(a.at).Seconds(), 0), 1)
	return a.mongod.Seconds() + share*(b.mongod-a.mongod).Seconds(), a.readings + share*(b.readings-a.readings)
}

// writesBetween are those between the looks that are nearest to two times.
func writesBetween(looks []look, from, to time.Time) Latency {
	a, b := nearest(looks, from), nearest(looks, to)
	return latency(b.all().Since(a.all()))
}

func nearest(looks []look, at time.Time) *look {
	best := &looks[0]
	for i := range looks {
		if looks[i].at.Sub(at).Abs() < best.at.Sub(at).Abs() {
			best = &looks[i]
		}
	}
	return best
}

// sixths are the rates of storing in the first and the last sixth of a run.
func sixths(looks []look, began time.Time, took time.Duration) (first, last float64) {
	stored := func(share float64) float64 {
		_, readings := along(looks, began.Add(time.Duration(share*float64(took))))
		return readings
	}
	seconds := took.Seconds() / 6
	return finite((stored(1./6) - stored(0)) / seconds), finite((stored(1) - stored(5./6)) / seconds)
}

// checkpoints parts the writes by whether a checkpoint ran.
func (f *Figures) checkpoints(looks []look) {
	var during, outside scrape.Histogram
	for i := 1; i < len(looks); i++ {
		a, b := &looks[i-1], &looks[i]
		h := b.all().Since(a.all())
		if b.counters.Since(a.counters, "checkpoints_total") > 0 || a.counters.Value("checkpoint_running") > 0 || b.counters.Value("checkpoint_running") > 0 {
			during = during.Add(h)
		} else {
			outside = outside.Add(h)
		}
	}
	if during.Count > 0 && outside.Count > 0 {
		f.During, f.Outside = latency(during), latency(outside)
	}
}

func latency(h scrape.Histogram) Latency {
	return Latency{P50: finite(h.Quantile(0.5)), P99: finite(h.Quantile(0.99)), Mean: finite(h.Mean())}
}

// finite makes 0 of what is not known, which JSON has no word for.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}
