package main

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/compact"
)

func TestCompactFailsForMembersThatWereAskedForAndNotDone(t *testing.T) {
	t.Parallel()
	for kind, fails := range map[compact.Reason]string{
		compact.NoGain:  "",
		compact.Primary: "",
		compact.Busy:    "not compacted: a:1 is busy, and --force was not given",
		compact.Unseen:  "not compacted: a:1: it is so",
		compact.Running: "not compacted: a:1: it is so",
	} {
		report := &compactReport{Left: []compact.Skipped{{Member: "a:1", Kind: kind, Why: "it is so"}}}
		if err := report.failure(); fails == "" {
			require.NoError(t, err, kind)
		} else {
			require.EqualError(t, err, fails, kind)
		}
		report.DryRun = true
		require.NoError(t, report.failure(), kind)
	}
}

func TestCompactReportShowsMembersThatAreAwayAndWhatIsLeftToDo(t *testing.T) {
	t.Parallel()
	report := &compactReport{
		Stream: "machines",
		Deployment: &compact.Deployment{Set: "rs", Collection: "brim.machines", Old: "machines.brim_old", Members: []*compact.Member{
			{Host: "a:1", Role: compact.RolePrimary, Version: "6.0.5", Sizes: compact.Sizes{File: 3 << 30, Free: 1 << 30}, Load: compact.Load{Over: time.Second, Writes: 3, Reads: math.NaN()}},
			{Host: "b:1", Role: "unknown", Unseen: "it cannot be reached"},
		}},
		Left: []compact.Skipped{{Member: "a:1", Kind: compact.Primary, Why: "it is the primary", Do: "step it down"}},
	}
	members := report.members()
	assert.Contains(t, members, "stream machines: collection brim.machines, replica set rs of 2 members with data")
	assert.Regexp(t, `a:1 +primary +6\.0\.5 +3\.0 GiB +1\.0 GiB +0 B +0 B +33\.3 % +3 +- +no`, members)
	assert.Regexp(t, `b:1 +unknown +it cannot be reached`, members)
	text := report.text()
	assert.Contains(t, text, "a:1 is not compacted: it is the primary\n  what to do: step it down\n")
	assert.Contains(t, text, "machines.brim_old is what `brim recompress` or `brim migrate` of an earlier release has left behind")
}

func TestCompactResultTellsBeforeAndAfter(t *testing.T) {
	t.Parallel()
	disk := float64(2 << 20)
	caughtUp := 0.25
	r := &compact.Result{
		Member: "b:1", Before: compact.Sizes{File: 400 << 20, Free: 100 << 20}, After: compact.Sizes{File: 300 << 20}, GivenBack: 100 << 20, Seconds: 3.21,
		Passes: make([]compact.Pass, 2), DiskMore: &disk, CaughtUp: &caughtUp, Ended: "MongoDB has ended it",
	}
	text := resultText(r)
	for _, part := range []string{
		"b:1: 100 MiB given back in 3.2 s, 2 passes\n", "400 MiB → 300 MiB, free in it 100 MiB → 0 B", "0 B in these files, 2.0 MiB in the file system",
		"in 0.2 s", "MongoDB has ended it",
	} {
		assert.Contains(t, text, part)
	}
}

func TestCompactTellsProgressNowAndThenWhereItIsKept(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	live := newProgressLine(&out, tellEvery)
	show := showCompaction(live)
	p := compact.Progress{Member: "a:1", Pass: 1, Elapsed: time.Second, GivenBack: -1 << 20, Files: 2 << 20, Free: 1 << 20}
	show(p)
	show(p) // too soon to repeat
	p.Pass = 2
	show(p)
	p.Note = "asked MongoDB to end it"
	show(p)
	live.say("stopping")
	live.end()
	assert.Equal(t, "a:1: pass 1, 1.0 s, -1.0 MiB given back, files 2.0 MiB, free in them 1.0 MiB\n"+
		"a:1: pass 2, 1.0 s, -1.0 MiB given back, files 2.0 MiB, free in them 1.0 MiB\n"+
		"a:1: pass 2, 1.0 s, -1.0 MiB given back, files 2.0 MiB, free in them 1.0 MiB; asked MongoDB to end it\nstopping\n", out.String())
}
