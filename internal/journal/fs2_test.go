package journal_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
)

// FS-2: the last write is torn at every byte offset, and behind the tear there is
// nothing, or zeros, or rubbish. What stood whole is kept; what is appended then
// is safe.
func TestFS2TornTail(t *testing.T) {
	t.Parallel()
	report(t, "FS-2", longer(1, 8), func(seed uint64, off ...fault.Protection) counts {
		return tornTail(t, seed, off...)
	}, fault.RepairTail)
}

func tornTail(t *testing.T, seed uint64, off ...fault.Protection) counts {
	random := rand.New(rand.NewPCG(seed, 6))
	files := faulttest.NewFiles(seed)
	j, err := journal.Open(fakeConfig(files, "first", nil))
	require.NoError(t, err)
	mark := files.Bytes(fakeDir + "/mark")
	var sizes []int // of the segment behind each record
	var name string
	var numbers []int // of readings that are whole in so many bytes
	total := 0
	for range 4 {
		n := 1 + random.IntN(3)
		mustAppend(t, j, makeBatch("readings", total, n))
		total += n
		name = segmentsOf(files)[0]
		sizes, numbers = append(sizes, len(files.Bytes(name))), append(numbers, total)
	}
	whole := files.Bytes(name)
	require.NoError(t, j.Close())
	var out counts
	for size := range whole {
		for _, fill := range fills(random) {
			torn := append([]byte{}, whole[:size]...)
			for len(torn) < len(whole) && fill > 0 {
				torn = append(torn, byte(random.Uint32())*byte(fill-1))
			}
			// What is filled in may be by chance what was there.
			kept := 0
			for i, end := range sizes {
				if end <= len(torn) && bytes.Equal(torn[:end], whole[:end]) {
					kept = numbers[i]
				}
			}
			disk := faulttest.NewFiles(random.Uint64())
			disk.SetBytes(name, torn)
			disk.SetBytes(fakeDir+"/mark", mark)
			out.faults++
			out.acked += kept + 2
			out.add(reopenTorn(disk, kept, off))
			if out.bad > 0 {
				return out
			}
		}
	}
	return out
}

// reopenTorn opens the journal, appends to it, and opens it again.
func reopenTorn(disk *faulttest.Files, kept int, off []fault.Protection) (out counts) {
	j, err := journal.Open(fakeConfig(disk, "second", off))
	if err != nil {
		out.bad++
		out.wrong("open: %v", err)
		return out
	}
	l := newLedger()
	l.next = kept
	for n := range kept {
		l.acked[n] = true
	}
	l.produce(j, 1, 1)
	if err := j.Close(); err != nil {
		out.bad++
		out.wrong("close: %v", err)
	}
	if j, err = journal.Open(fakeConfig(disk, "third", off)); err != nil {
		out.bad++
		out.wrong("open again: %v", err)
		return out
	}
	defer j.Close()
	found := l.check(j)
	found.acked = 0
	out.add(found)
	return out
}

// fills chooses what stands behind the tear: nothing, zeros, rubbish.
func fills(random *rand.Rand) []int {
	if full() {
		return []int{0, 1, 2}
	}
	return []int{random.IntN(3)}
}
