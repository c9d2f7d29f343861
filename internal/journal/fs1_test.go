package journal_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
)

// FS-1: the power goes at a random instant, also while an earlier loss is being
// mended, and takes any part of what was not synced with it.
func TestFS1PowerCut(t *testing.T) {
	t.Parallel()
	report(t, "FS-1", longer(40, 3000), powerCut, fault.Fsync, fault.Keys)
}

func powerCut(seed uint64, off ...fault.Protection) counts {
	random := rand.New(rand.NewPCG(seed, 4))
	files, l := faulttest.NewFiles(seed), newLedger()
	var out counts
	for life := range 4 {
		j, err := journal.Open(fakeConfig(files, fmt.Sprintf("life%d", life), off))
		if err != nil {
			out.bad++
			out.wrong("open: %v", err)
			return out
		}
		files.CutAfter(random.IntN(150))
		var producers, consumers sync.WaitGroup
		done := make(chan struct{})
		consumers.Go(func() { l.consume(j, seed, done) })
		for i := range uint64(3) {
			producers.Go(func() { l.produce(j, seed*3+i, 200) })
		}
		producers.Wait()
		next := files.PowerCut()
		close(done)
		consumers.Wait()
		_ = j.Close() // on a dead disk
		out.faults++
		// Now and then the power goes again during the repair.
		for random.IntN(2) == 0 {
			next.CutAfter(random.IntN(12))
			if j, err := journal.Open(fakeConfig(next, "repair", off)); err == nil {
				_ = j.Close()
			}
			next = next.PowerCut()
			out.faults++
		}
		files = next
	}
	j, err := journal.Open(fakeConfig(files, "last", off))
	if err != nil {
		out.bad++
		out.wrong("open: %v", err)
		return out
	}
	defer j.Close()
	out.add(l.check(j))
	return out
}
