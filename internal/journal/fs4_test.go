package journal_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
)

// FS-4: an fsync fails, once or from then on, and with it what it should have
// made durable; the power goes later.
func TestFS4FsyncFails(t *testing.T) {
	t.Parallel()
	report(t, "FS-4", longer(40, 2000), fsyncFails, fault.StopOnFsync)
}

func fsyncFails(seed uint64, off ...fault.Protection) counts {
	random := rand.New(rand.NewPCG(seed, 5))
	files, l := faulttest.NewFiles(seed), newLedger()
	var out counts
	for life := range 3 {
		j, err := journal.Open(fakeConfig(files, fmt.Sprintf("life%d", life), off))
		if err != nil {
			out.bad++
			out.wrong("open: %v", err)
			return out
		}
		var producers, consumers sync.WaitGroup
		done := make(chan struct{})
		consumers.Go(func() { l.consume(j, seed, done) })
		healthy := 1 + random.IntN(20)
		for i := range uint64(3) {
			producers.Go(func() { l.produce(j, seed*3+i, healthy) })
		}
		producers.Wait()
		times := 1
		if random.IntN(2) == 0 {
			times = -1
		}
		before := l.unknown
		files.FailSync(syscall.EIO, times)
		for i := range uint64(3) {
			producers.Go(func() { l.produce(j, seed*3+i, 20) })
		}
		producers.Wait()
		if l.unknown > before && j.Err() == nil {
			out.bad++
			out.wrong("the journal takes more after a failed fsync")
		}
		out.faults += files.Failed()
		next := files.PowerCut()
		close(done)
		consumers.Wait()
		_ = j.Close()
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

// FS-4, once more: after the failed fsync the daemon is started again, as its log
// asks for, clients repeat the requests that were not answered, and then the power
// fails.
func TestFS4FsyncFailsBeforeARestart(t *testing.T) {
	t.Parallel()
	report(t, "FS-4", longer(40, 2000), fsyncFailsBeforeARestart, fault.Renew)
}

func fsyncFailsBeforeARestart(seed uint64, off ...fault.Protection) counts {
	random := rand.New(rand.NewPCG(seed, 10))
	files, l := faulttest.NewFiles(seed), newLedger()
	var out counts
	for life := range 3 {
		for _, restarted := range []bool{false, true} {
			j, err := journal.Open(fakeConfig(files, fmt.Sprintf("life%d-%t", life, restarted), off))
			if err != nil {
				out.bad++
				out.wrong("open: %v", err)
				return out
			}
			l.sendAgain(j)
			l.produce(j, seed, 1+random.IntN(20))
			if !restarted {
				files.FailSync(syscall.EIO, 1+random.IntN(2))
				for range 3 { // the mark's may be one of them
					l.produce(j, seed, 5)
				}
				out.faults += files.Failed()
			}
			files.FailSync(nil, 0)
			_ = j.Close()
		}
		files = files.PowerCut()
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
