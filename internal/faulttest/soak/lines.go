//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/scrape"
)

// whose says with which process a value begins anew.
type whose int

const (
	daemons whose = iota
	mongods
	nobodys // it outlives them
)

// A line is a value over time.
type line struct {
	plot, name string
	unit       chart.Unit
	whose      whose
	read       func(*probe) float64 // NaN: unknown now
	free       bool                 // it may grow
}

// lines are what is measured. Whatever else should not grow is one more row.
func lines() []line {
	metric := func(name string) func(*probe) float64 {
		return func(p *probe) float64 { return p.metrics.Value(name, nil) }
	}
	took := func(workload int, without float64) func(*probe) float64 {
		return func(p *probe) float64 { return slowest(p.took[workload], without) }
	}
	return []line{
		{"Memory", "daemon", chart.Bytes, daemons, metric("process_resident_memory_bytes"), false},
		{"Memory", "daemon's heap in use", chart.Bytes, daemons, metric("go_memstats_heap_inuse_bytes"), false},
		{"Memory", "mongod", chart.Bytes, mongods, func(p *probe) float64 { return p.mongodMemory }, false},
		{"Goroutines", "daemon", chart.Count, daemons, metric("go_goroutines"), false},
		{"Descriptors", "daemon", chart.Count, daemons, metric("process_open_fds"), false},
		{"Descriptors", "mongod", chart.Count, mongods, func(p *probe) float64 { return p.mongodFiles }, false},
		{"Journal files", "files", chart.Count, nobodys, func(p *probe) float64 { return p.journalFiles }, false},
		{"Journal bytes", "bytes", chart.Bytes, nobodys, func(p *probe) float64 { return p.journalBytes }, false},
		{"Waiting readings", "readings", chart.Count, daemons, metric("brim_queue_readings"), false},
		{"Response, stored", "median", chart.Seconds, nobodys, took(0, 0.5), false},
		{"Response, stored", "99 %", chart.Seconds, nobodys, took(0, 0.01), false},
		{"Response, journaled", "median", chart.Seconds, nobodys, took(1, 0.5), false},
		{"Response, journaled", "99 %", chart.Seconds, nobodys, took(1, 0.01), false},
		{"Stored", "collections and indexes", chart.Bytes, nobodys, func(p *probe) float64 { return p.storedBytes }, false},
		{"Files of the data directory", "all, with the oplog of up to 1 GiB", chart.Bytes, nobodys, func(p *probe) float64 { return p.allBytes }, true},
		{"Rate", "requests answered", chart.PerSecond, nobodys, func(p *probe) float64 { return p.rate }, true},
	}
}

func slowest(took []time.Duration, without float64) float64 {
	if len(took) == 0 {
		return math.NaN()
	}
	return faulttest.Slowest(took, without).Seconds()
}

// A probe is what is read at one moment.
type probe struct {
	metrics                    scrape.Sample
	mongodMemory, mongodFiles  float64
	journalFiles, journalBytes float64
	storedBytes, allBytes      float64
	rate                       float64
	took                       [][]time.Duration // by workload
}

// A sample has the values of all lines at one moment.
type sample struct {
	at     float64 // seconds of the run
	life   [2]int  // which daemon, and which mongod
	age    float64 // of the daemon, in seconds
	values []float64
}

// measure samples until ctx ends.
func (s *soak) measure(ctx context.Context) {
	for machine.Pause(ctx, s.sampleEvery) == nil {
		s.samples = append(s.samples, s.sample(ctx))
	}
}

func (s *soak) sample(ctx context.Context) sample {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // mongod may be stopped
	defer cancel()
	now := time.Now()
	p := probe{mongodMemory: math.NaN(), mongodFiles: math.NaN(), storedBytes: math.NaN()}
	p.metrics, _ = scrape.Get(ctx, http.DefaultClient, "http://"+s.addresses[2]+"/metrics") // it may be away
	if pid := s.mongod(); pid != 0 {
		if memory, _, err := machine.Memory(pid); err == nil {
			p.mongodMemory = float64(memory)
		}
		if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
			p.mongodFiles = float64(len(open))
		}
	}
	p.journalFiles, p.journalBytes = filesIn(filepath.Join(s.dataDir(), "journal"))
	_, p.allBytes = filesIn(s.dataDir())
	var stats struct {
		StorageSize float64 `bson:"storageSize"`
		IndexSize   float64 `bson:"indexSize"`
	}
	if s.mongo.Database("brim").RunCommand(ctx, bson.D{{Key: "dbStats", Value: 1}}).Decode(&stats) == nil {
		p.storedBytes = stats.StorageSize + stats.IndexSize
	}
	s.mu.Lock()
	answered := s.retired
	for _, one := range s.producers {
		p.took = append(p.took, one.Counts.Took())
		answered += one.Counts.Answered.Load()
	}
	one := sample{at: now.Sub(s.began).Seconds(), life: s.life, age: now.Sub(s.started).Seconds()}
	s.mu.Unlock()
	p.rate = math.NaN()
	if !s.lastSampled.IsZero() {
		p.rate = float64(answered-s.lastAnswered) / now.Sub(s.lastSampled).Seconds()
	}
	s.lastSampled, s.lastAnswered = now, answered
	for _, l := range lines() {
		one.values = append(one.values, l.read(&p))
	}
	return one
}

// mongod is the process of the embedded mongod, 0 if none is known.
func (s *soak) mongod() int {
	var memory struct{ Pid int }
	text, err := os.ReadFile(filepath.Join(s.dataDir(), "mongod", "brim.json"))
	if err != nil || json.Unmarshal(text, &memory) != nil || memory.Pid == 0 {
		return 0
	}
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", memory.Pid))
	if !strings.Contains(string(line), s.dataDir()) {
		return 0 // it has ended, and another process may have its number
	}
	return memory.Pid
}

// filesIn counts the files below a directory, and the bytes in them.
func filesIn(dir string) (files, size float64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		if info, err := entry.Info(); err == nil {
			files, size = files+1, size+float64(info.Size())
		}
		return nil
	})
	return files, size
}

// rule is how climbing lines are told, for the page.
const rule = "A line climbs if, over the last three quarters of the run, the least-squares line through it rises by more than a tenth of its mean " +
	"and by more than four standard errors. Values are averaged over forty-eighths of the run first. Where a process has begun anew, the line may have " +
	"another level, and the first twentieth of the run after the start is left out."

// A trend is how a line develops.
type trend struct {
	mean    float64
	rise    float64 // over the last three quarters of the run
	noise   float64 // standard error of the rise
	points  int
	climbs  bool
	unknown bool // there are too few points
}

const (
	slices48   = 48
	fewest     = 12
	tooSteep   = 0.1 // of the mean
	certainty  = 4   // standard errors
	skipped    = 0.25
	youthShare = 0.05
)

// trendOf fits parallel lines to the values of the processes' lives.
func (s *soak) trendOf(i int) trend {
	length := s.samples[len(s.samples)-1].at
	type key struct{ life, slice int }
	type sums struct{ x, y, n float64 }
	averages := make(map[key]*sums)
	first := make(map[int]float64) // sample of a life
	whose := lines()[i].whose
	for _, one := range s.samples {
		life := 0
		if whose != nobodys {
			life = one.life[whose]
		}
		if _, seen := first[life]; !seen {
			first[life] = one.at
		}
		young := whose != nobodys && one.at-first[life] < youthShare*length
		if one.at < skipped*length || young || math.IsNaN(one.values[i]) {
			continue
		}
		k := key{life, int(one.at / length * slices48)}
		if averages[k] == nil {
			averages[k] = &sums{}
		}
		a := averages[k]
		a.x, a.y, a.n = a.x+one.at, a.y+one.values[i], a.n+1
	}
	lives := make(map[int]*sums)
	var t trend
	for k, a := range averages {
		a.x, a.y = a.x/a.n, a.y/a.n
		if lives[k.life] == nil {
			lives[k.life] = &sums{}
		}
		of := lives[k.life]
		of.x, of.y, of.n = of.x+a.x, of.y+a.y, of.n+1
		t.mean, t.points = t.mean+a.y, t.points+1
	}
	t.mean /= float64(max(t.points, 1))
	var xx, xy, yy float64
	for k, a := range averages {
		of := lives[k.life]
		dx, dy := a.x-of.x/of.n, a.y-of.y/of.n
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	free := float64(t.points - len(lives) - 1)
	if t.unknown = t.points < fewest || free < fewest/2 || xx == 0; t.unknown {
		return t
	}
	span := (1 - skipped) * length
	slope := xy / xx
	t.rise = slope * span
	t.noise = math.Sqrt(max(0, yy-slope*xy)/free/xx) * span
	t.climbs = !lines()[i].free && t.rise > tooSteep*t.mean && t.rise > certainty*t.noise
	return t
}

// climbing names the lines that climb.
func (s *soak) climbing() (out []string) {
	if len(s.samples) == 0 {
		return nil
	}
	for i, l := range lines() {
		if s.trendOf(i).climbs {
			out = append(out, l.plot+" ("+l.name+")")
		}
	}
	return out
}
