package journal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
)

// FS-3: one bit is flipped, in every file. Either the journal says where it is
// damaged, or everything is as it was. With the damage accepted, no more than
// the damaged record is given up, or the segment if its header is hit.
func TestFS3BitFlip(t *testing.T) {
	t.Parallel()
	report(t, "FS-3", longer(1, 4), func(seed uint64, off ...fault.Protection) counts {
		return bitFlips(t, seed, off...)
	}, fault.Checksum)
}

// closedJournal returns a disk with a journal of three sessions and the records
// in it.
func closedJournal(t *testing.T, seed uint64) (*faulttest.Files, []batch.Record) {
	t.Helper()
	files := faulttest.NewFiles(seed)
	random := rand.New(rand.NewPCG(seed, 7))
	total := 0
	for life := range 3 {
		j, err := journal.Open(fakeConfig(files, fmt.Sprintf("life%d", life), nil))
		require.NoError(t, err)
		for range 6 {
			n := 1 + random.IntN(2)
			mustAppend(t, j, makeBatch([]string{"readings", "events"}[random.IntN(2)], total, n))
			total += n
		}
		require.NoError(t, j.Close())
	}
	return files, contents(t, files, nil)
}

// contents returns all records of a journal.
func contents(t *testing.T, files *faulttest.Files, off []fault.Protection) []batch.Record {
	t.Helper()
	j, err := journal.Open(fakeConfig(files.Clone(), "reader", off))
	require.NoError(t, err)
	defer j.Close()
	return follow(t, j, j.Oldest())
}

func bitFlips(t *testing.T, seed uint64, off ...fault.Protection) counts {
	random := rand.New(rand.NewPCG(seed, 8))
	files, want := closedJournal(t, seed)
	var out counts
	for _, name := range files.Names() {
		size := len(files.Bytes(name))
		for at := random.IntN(longer(7, 1)); at < size; at += 1 + longer(6, 0) {
			if strings.HasSuffix(name, "/mark") && at >= 64 && at < 4096 {
				continue // nothing is there
			}
			disk := files.Clone()
			disk.Flip(name, int64(at), uint(random.IntN(8)))
			out.faults++
			out.acked += len(want)
			one := openFlipped(t, disk, want, name, at, off)
			out.add(one)
		}
	}
	return out
}

func openFlipped(t *testing.T, disk *faulttest.Files, want []batch.Record, name string, at int, off []fault.Protection) (out counts) {
	cfg := fakeConfig(disk, "reader", off)
	j, err := journal.Open(cfg)
	if err == nil {
		defer j.Close()
		compare(&out, j, want, fmt.Sprintf("%s at %d", name, at))
		return out
	}
	var damage *journal.CorruptionError
	if !errors.As(err, &damage) || damage.File != name {
		out.bad++
		out.wrong("%s at %d: %v", name, at, err)
		return out
	}
	if int64(at) < damage.Offset || damage.Offset > 0 && int64(at) > damage.Offset+400 {
		out.bad++
		out.wrong("%s at %d: the error names offset %d", name, at, damage.Offset)
	}
	out.add(acceptLoss(t, cfg, want, damage))
	return out
}

// compare counts what is not as it was.
func compare(out *counts, j *journal.Journal, want []batch.Record, where string) {
	c := j.Follow(j.Oldest(), batch.Part{})
	defer c.Close()
	for i := range want {
		got, found, err := c.Next()
		switch {
		case err != nil:
			out.bad++
			out.wrong("%s: %v", where, err)
			return
		case !found:
			out.lost += len(want) - i
			out.wrong("%s: %d records are gone and nobody said so", where, len(want)-i)
			return
		case got.Position != want[i].Position || got.Batch.Session != want[i].Batch.Session || got.Batch.FirstSeq != want[i].Batch.FirstSeq ||
			!reflect.DeepEqual(content(got.Batch), content(want[i].Batch)):
			out.lost++
			out.wrong("%s: record %d is another one", where, i)
		}
	}
}

// content returns all that a batch holds, in a form that can be compared.
func content(b *batch.Batch) []any {
	out := []any{b.Received.UnixNano()}
	for i := range uint32(b.Len()) {
		r := b.Row(i)
		out = append(out, *b.Series(r), r.Index, r.Size, b.Reading(i))
	}
	return out
}

// acceptLoss opens the journal without what cannot be read, twice.
func acceptLoss(t *testing.T, cfg journal.Config, want []batch.Record, damage *journal.CorruptionError) (out counts) {
	cfg.AcceptLoss = true
	for _, session := range []string{"acceptor", "later"} {
		cfg.Session = session
		j, err := journal.Open(cfg)
		if err != nil {
			out.bad++
			out.wrong("accept the loss: %v", err)
			return out
		}
		l := newLedger()
		l.next = 1000
		l.produce(j, 1, 1)
		kept := 0
		records, err := walk(j, j.Oldest())
		if err != nil {
			out.bad++
			out.wrong("follow: %v", err)
		}
		for _, r := range records {
			if strings.HasPrefix(r.Batch.Session, "life") {
				kept++
			}
		}
		least := len(want) - 1
		if damage.Offset == 0 {
			least = len(want) - 6
		}
		if kept < least {
			out.lost += least - kept
			out.wrong("%d of %d records are left after %v", kept, len(want), damage)
		}
		if session == "later" {
			if n := len(records) - kept; n != 2 {
				out.lost += 2 - n
				out.wrong("%d of 2 records are there that were appended after %v", n, damage)
			}
		}
		assert.NoError(t, j.Close())
		cfg.AcceptLoss = false
	}
	if cfg.Files.(*faulttest.Files).Bytes(damage.File+".corrupt") == nil {
		out.bad++
		out.wrong("no copy was kept of %s", damage.File)
	}
	return out
}
