package simulate

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failedOnce are seeds that found something once. They mean another history after each
// change of the world, but remain as good as any.
var failedOnce = []uint64{}

// TestSeeds runs the world of many seeds: BRIM_SEEDS of them, from BRIM_FIRST_SEED on. Each
// that fails leaves its story in a file; `make simulate SEED=n` runs one alone.
func TestSeeds(t *testing.T) { //nolint:tparallel // the group of workers waits for them
	t.Parallel()
	count, first := uint64(300), number(t, "BRIM_FIRST_SEED", 1)
	if sabotaged() {
		count = 1000
	}
	count = number(t, "BRIM_SEEDS", count)
	seeds := slices.Clone(failedOnce)
	for n := range count {
		seeds = append(seeds, first+n)
	}
	explore(t, seeds)
}

// sabotaged reports whether a protection was removed from the source, see internal/sabotage.
// Then the first seed that fails is enough.
func sabotaged() bool { return os.Getenv("BRIM_OVERLAY") != "" }

// explore runs seeds on all processors, and fails with those that violate something.
func explore(t *testing.T, seeds []uint64) {
	var (
		next, done atomic.Int64
		failed     sync.Map
		stop       atomic.Bool
	)
	ended := make(chan struct{})
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // runs make much garbage
	go progress(len(seeds), &done, ended)
	t.Run("workers", func(t *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				for !stop.Load() {
					at := int(next.Add(1)) - 1
					if at >= len(seeds) {
						return
					}
					if r := runWatched(t, seeds[at]); r.Violated != "" {
						failed.Store(seeds[at], r)
						stop.Store(sabotaged())
					}
					done.Add(1)
				}
			})
		}
	})
	close(ended)
	for _, seed := range seeds {
		if r, ok := failed.Load(seed); ok {
			report(t, r.(Result))
		}
	}
	t.Logf("%d seeds", done.Load())
}

// runWatched runs a seed, and says which one if it hangs or panics.
func runWatched(t *testing.T, seed uint64) Result {
	watch := time.AfterFunc(10*time.Minute, func() {
		buf := make([]byte, 4<<20)
		panic(fmt.Sprintf("seed %d does not come to an end:\n%s", seed, buf[:runtime.Stack(buf, true)]))
	})
	defer watch.Stop()
	return Run(t, seed, false)
}

// report fails the test with a seed, and writes its trace to a file.
func report(t *testing.T, r Result) {
	for range 10 { // see TestSameSeedSameStory
		if again := Run(t, r.Seed, true); again.Violated == r.Violated {
			r = again
			break
		}
	}
	name := filepath.Join(os.TempDir(), fmt.Sprintf("brim-seed-%d.txt", r.Seed))
	if err := os.WriteFile(name, []byte(r.String()), 0o600); err != nil {
		name = err.Error()
	}
	assert.Failf(t, "a seed failed", "seed %d: %s\n`make simulate SEED=%d` runs it again; its trace: %s", r.Seed, r.Violated, r.Seed, name)
}

// progress prints to a terminal how many seeds are done.
func progress(of int, done *atomic.Int64, ended <-chan struct{}) {
	terminal, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil || os.Getenv("BRIM_SEEDS") == "" {
		return
	}
	defer terminal.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for began := time.Now(); ; {
		select {
		case <-ended:
			fmt.Fprintln(terminal)
			return
		case <-tick.C:
			n := done.Load()
			fmt.Fprintf(terminal, "\r%d of %d seeds, %.0f a second ", n, of, float64(n)/time.Since(began).Seconds())
		}
	}
}

// TestSeed runs one seed, BRIM_SEED, and prints its trace.
func TestSeed(t *testing.T) {
	text := os.Getenv("BRIM_SEED")
	if text == "" {
		t.Skip("BRIM_SEED is not set")
	}
	seed := number(t, "BRIM_SEED", 0)
	began := time.Now()
	r := Run(t, seed, true)
	fmt.Fprint(os.Stdout, r)
	fmt.Fprintf(os.Stdout, "%d steps, %d readings, %v of simulated time in %v; hash %x\n", r.Steps, r.Readings, r.Took, time.Since(began), r.Hash)
	assert.Empty(t, r.Violated)
}

// TestSameSeedSameStory runs seeds twice, if BRIM_SAME is set. About one in ten differs: where
// several timers of the driver or of the lanes end at one instant, the runtime chooses which
// goroutine comes first.
func TestSameSeedSameStory(t *testing.T) {
	if os.Getenv("BRIM_SAME") == "" {
		t.Skip("BRIM_SAME is not set")
	}
	first, differ := number(t, "BRIM_FIRST_SEED", 1), 0
	count := number(t, "BRIM_SEEDS", 20)
	for seed := first; seed < first+count; seed++ {
		if a, b := Run(t, seed, false), Run(t, seed, false); a.Hash != b.Hash {
			differ++
			t.Logf("seed %d differs", seed)
		}
	}
	assert.LessOrEqual(t, differ, int(count/4))
}

func number(t *testing.T, name string, absent uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return absent
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return n
}
