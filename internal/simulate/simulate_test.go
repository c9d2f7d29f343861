package simulate

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failedOnce are seeds that have failed, with the reason, the oldest first. They run before
// all others. A step of a run depends on the seed and on what is possible then, so a seed
// keeps most of its meaning when the simulation learns another event.
var failedOnce = []struct {
	seed uint64
	why  string
}{
	{237, "706ee6f: an insert into a time series that was delayed over an election is carried out twice"},
	{56, "706ee6f: a daemon on a copied journal shows readings twice, until its claim is refused"},
	{147, "706ee6f: as 56"},
	{776, "f0deb5f: a query is answered with 500 once the journal's folder was removed"},
	{3308, "3211878: a daemon that starts long after an election still reads from the former primary"},
	{7337, "0f41a40: a deletion that arrives late is seen once a majority has it"},
	{3652, "0f41a40: a daemon never stores readings of a deleted sensor whose part another one has closed"},
	{7765, "0f41a40: as 3652"},
	{970, "eb6c098: a bucket that MongoDB refuses is probed without a pause, and a request for others is never answered"},
	{2396, "71d1a8f2: under a rule on duplicates, a summary counts each reading once for each of the stream's collections"},
}

// TestSeeds runs the simulation of many seeds: BRIM_SEEDS of them, from BRIM_FIRST_SEED on.
// Each that fails leaves its trace in a file. The first ones run twice, and must mostly have the
// same trace. With BRIM_SEED it runs that one alone, and prints its trace.
func TestSeeds(t *testing.T) { //nolint:tparallel // explore runs them in parallel
	t.Parallel()
	if os.Getenv("BRIM_SEED") != "" {
		runAlone(t, number(t, "BRIM_SEED", 0))
		return
	}
	count, first := uint64(150), number(t, "BRIM_FIRST_SEED", 1)
	if sabotaged() {
		count = 1000
	}
	count = number(t, "BRIM_SEEDS", count)
	var seeds []uint64
	for _, one := range failedOnce {
		seeds = append(seeds, one.seed)
	}
	for n := range count {
		seeds = append(seeds, first+n)
	}
	explore(t, seeds)
}

// sabotaged reports whether a protection was removed from the source, see internal/sabotage.
// Then the first seed that fails is enough.
func sabotaged() bool { return os.Getenv("BRIM_OVERLAY") != "" }

// twice is how many seeds run a second time, for their hash. A few traces in a hundred differ:
// where goroutines wake at one instant, the runtime chooses which comes first, see the package
// comment.
const twice = 30

// explore runs seeds on all processors, and fails with those that violate something.
func explore(t *testing.T, seeds []uint64) {
	var (
		done, differ atomic.Int64
		failed       sync.Map
		next         atomic.Int64
		stop         atomic.Bool
	)
	ended := make(chan struct{})
	go progress(len(seeds), &done, ended)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // runs make much garbage
	t.Run("workers", func(t *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				for at := int(next.Add(1)) - 1; at < len(seeds) && !stop.Load(); at = int(next.Add(1)) - 1 {
					r := runWatched(t, seeds[at])
					switch {
					case r.Violated != "":
						failed.Store(r.Seed, r)
						stop.Store(sabotaged())
					case at < twice && !sabotaged() && Run(t, r.Seed, false).Hash != r.Hash:
						differ.Add(1)
						t.Logf("seed %d differs when it runs again", r.Seed)
					}
					done.Add(1)
				}
			})
		}
	})
	close(ended)
	for _, seed := range seeds {
		if r, ok := failed.LoadAndDelete(seed); ok {
			report(t, r.(Result))
		}
	}
	if len(seeds) >= twice {
		assert.LessOrEqual(t, int(differ.Load()), twice/3, "seeds that differ when they run again")
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
	for range 10 { // see twice
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

// runAlone runs one seed and prints its trace.
func runAlone(t *testing.T, seed uint64) {
	began := time.Now()
	r := Run(t, seed, true)
	fmt.Fprint(os.Stdout, r)
	fmt.Fprintf(os.Stdout, "%d steps, %d readings, %v of simulated time in %v; hash %x\n", r.Steps, r.Readings, r.Took, time.Since(began), r.Hash)
	assert.Empty(t, r.Violated)
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
