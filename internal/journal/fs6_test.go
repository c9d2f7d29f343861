package journal_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
)

// FS-6: the journal's folder is removed while it is open, and another daemon
// starts in its place. A second later the first acknowledges nothing, and it leaves
// the other's files alone.
func TestFS6FolderRemoved(t *testing.T) {
	t.Parallel()
	report(t, "FS-6", longer(40, 1000), func(seed uint64, off ...fault.Protection) (out counts) {
		synctest.Test(t, func(*testing.T) { out = folderRemoved(seed, off...) })
		return out
	}, fault.Home)
}

func folderRemoved(seed uint64, off ...fault.Protection) (out counts) {
	random := rand.New(rand.NewPCG(seed, 11))
	files := faulttest.NewFiles(seed)
	first, err := journal.Open(fakeConfig(files, "first", off))
	if err != nil {
		out.wrong("open: %v", err)
		out.bad++
		return out
	}
	before := newLedger()
	before.produce(first, seed, 1+random.IntN(60))
	files.RemoveAll()
	out.faults++
	if random.IntN(2) == 0 { // a second is what it may take
		<-time.After(time.Second + time.Millisecond)
	}
	second, err := journal.Open(fakeConfig(files, "second", off))
	if err != nil {
		out.wrong("open in its place: %v", err)
		out.bad++
		return out
	}
	l := newLedger()
	l.produce(second, seed, 60)
	first.Trim(first.End()) // all of the first is stored by now
	<-time.After(time.Second + time.Millisecond)
	acked := len(before.acked)
	before.produce(first, seed, 30)
	if n := len(before.acked) - acked; n > 0 {
		out.lost += n
		out.wrong("%d readings are acknowledged a second after the folder was removed", n)
	}
	if first.Err() == nil {
		out.bad++
		out.wrong("the journal is ready without its folder")
	}
	_ = first.Close()
	l.produce(second, seed, 10)
	next := files.PowerCut()
	_ = second.Close() // on a dead disk
	j, err := journal.Open(fakeConfig(next, "last", off))
	if err != nil {
		out.bad++
		out.wrong("open after the power cut: %v", err)
		return out
	}
	defer j.Close()
	out.add(l.check(j))
	return out
}
