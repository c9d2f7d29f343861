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

// whose is the process that a value belongs to: it starts over with that process.
type whose int

const (
	daemons whose = iota
	mongods
	independent // of either
)

// A line is a value over time.
type line struct {
	plot, name string
	unit       chart.Unit
	whose      whose
	read       func(*probe) float64 // NaN: unknown now
	least      float64              // the smallest rise that counts; infinite: it may grow
}

// segment is the size of a journal file; only whole files are removed.
const segment = 64 << 20

// lines lists the measurements. To add one, add a row.
func lines() []line {
	metric := func(name string) func(*probe) float64 {
		return func(p *probe) float64 { return p.metrics.Value(name, nil) }
	}
	took := func(workload int, without float64) func(*probe) float64 {
		return func(p *probe) float64 { return slowest(p.took[workload], without) }
	}
	return []line{
		{"Memory", "daemon", chart.Bytes, daemons, metric("process_resident_memory_bytes"), 16 << 20},
		{"Memory", "daemon's heap in use", chart.Bytes, daemons, metric("go_memstats_heap_inuse_bytes"), 16 << 20},
		{"Memory", "mongod", chart.Bytes, mongods, func(p *probe) float64 { return p.mongodMemory }, 64 << 20},
		{"Goroutines", "daemon", chart.Count, daemons, metric("go_goroutines"), 10},
		{"Descriptors", "daemon", chart.Count, daemons, metric("process_open_fds"), 20},
		{"Descriptors", "mongod", chart.Count, mongods, func(p *probe) float64 { return p.mongodFiles }, 40},
		{"Journal files", "files", chart.Count, independent, func(p *probe) float64 { return p.journalFiles }, 3},
		{"Journal bytes", "bytes", chart.Bytes, independent, func(p *probe) float64 { return p.journalBytes }, segment},
		{"Waiting readings", "readings", chart.Count, daemons, metric("brim_queue_readings"), 5000},
		{"Response, stored", "median", chart.Seconds, independent, took(0, 0.5), 0.005},
		{"Response, stored", "99 %", chart.Seconds, independent, took(0, 0.01), 0.02},
		{"Response, journaled", "median", chart.Seconds, independent, took(1, 0.5), 0.005},
		{"Response, journaled", "99 %", chart.Seconds, independent, took(1, 0.01), 0.02},
		{"Stored", "collections and indexes", chart.Bytes, independent, func(p *probe) float64 { return p.storedBytes }, 16 << 20},
		{"Files of the data directory", "all", chart.Bytes, independent, func(p *probe) float64 { return p.allBytes }, math.Inf(1)},
		{"Rate", "requests answered", chart.PerSecond, independent, func(p *probe) float64 { return p.rate }, math.Inf(1)},
	}
}

func slowest(took []time.Duration, without float64) float64 {
	if len(took) == 0 {
		return math.NaN()
	}
	return faulttest.Slowest(took, without).Seconds()
}

// A probe has the figures of one moment.
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
	life   [2]int  // of the daemon and mongod
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
	p.metrics, _ = scrape.Get(ctx, http.DefaultClient, "http://"+s.addresses[2]+"/metrics") // it may be down
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
	one := sample{at: now.Sub(s.began).Seconds(), life: s.life}
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

// mongod returns the embedded mongod's pid, 0 if unknown.
func (s *soak) mongod() int {
	var memory struct{ Pid int }
	text, err := os.ReadFile(filepath.Join(s.dataDir(), "mongod", "brim.json"))
	if err != nil || json.Unmarshal(text, &memory) != nil || memory.Pid == 0 {
		return 0
	}
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", memory.Pid))
	if !strings.Contains(string(line), s.dataDir()) {
		return 0 // it has ended, and its pid may be reused
	}
	return memory.Pid
}

// filesIn returns the number of files below a directory, and their total bytes.
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

// rule tells readers of the page when a line climbs.
const rule = "A line climbs if a least-squares fit over the last three quarters of the run rises by more than a tenth of the mean, by more than four " +
	"standard errors, and by more than the threshold. Each new process has its own level; its first 15 minutes, in which it fills its " +
	"caches, are left out, and the rise is taken over the longest life of a process. Values are averaged over forty-eighths of the run."

// A trend is a line's development.
type trend struct {
	mean    float64
	rise    float64 // over the last three quarters of the run
	noise   float64 // standard error of the rise
	climbs  bool
	unknown bool // too few points
}

const (
	pieces  = 48
	fewest  = 12  // averages
	steep   = 0.1 // of the mean
	certain = 4   // standard errors
	skipped = 0.25
	warmUp  = 15 * 60 // seconds
)

// trendOf fits parallel lines, one per life of the process.
func (s *soak) trendOf(i int) (t trend) {
	l := lines()[i]
	var xx, xy, yy, points, longest float64
	lives := s.averages(i)
	for _, of := range lives {
		var x, y float64 // means
		for _, p := range of {
			x, y = x+p.x/float64(len(of)), y+p.y/float64(len(of))
		}
		for _, p := range of {
			xx, xy, yy = xx+(p.x-x)*(p.x-x), xy+(p.x-x)*(p.y-y), yy+(p.y-y)*(p.y-y)
			t.mean, points = t.mean+p.y, points+1
		}
		longest = max(longest, of[len(of)-1].x-of[0].x)
	}
	t.mean /= max(points, 1)
	free := points - float64(len(lives)) - 1
	if t.unknown = points < fewest || free < fewest/2 || xx == 0; t.unknown {
		return t
	}
	slope := xy / xx
	if math.Abs(slope*longest) < 1e-9*math.Abs(t.mean) {
		slope = 0 // a rounding error
	}
	t.rise, t.noise = slope*longest, math.Sqrt(max(0, yy-slope*xy)/free/xx)*longest
	t.climbs = t.rise > max(steep*t.mean, certain*t.noise, l.least)
	return t
}

// A point is an average of values.
type point struct {
	x, y, n float64
	piece   int
}

// averages returns the averages over the last three quarters of the run, by life.
func (s *soak) averages(i int) map[int][]point {
	length, l := s.samples[len(s.samples)-1].at, lines()[i]
	born, lives := make(map[int]float64), make(map[int][]point)
	for _, one := range s.samples {
		life := 0
		if l.whose != independent {
			life = one.life[l.whose]
		}
		if _, seen := born[life]; !seen {
			born[life] = one.at
		}
		warming := l.whose != independent && one.at-born[life] < warmUp
		if one.at < skipped*length || warming || math.IsNaN(one.values[i]) {
			continue
		}
		of, piece := lives[life], int(one.at/length*pieces)
		if len(of) == 0 || of[len(of)-1].piece != piece {
			of = append(of, point{piece: piece})
		}
		p := &of[len(of)-1]
		p.x, p.y, p.n = p.x+(one.at-p.x)/(p.n+1), p.y+(one.values[i]-p.y)/(p.n+1), p.n+1
		lives[life] = of
	}
	return lives
}

// climbing lists the names of lines that climb.
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
