package faulttest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestFS5 fills the journal's disk, kills the daemon while it is full, and frees
// space.
func TestFS5(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	disk, flags := smallDisk(t), smallParts
	if disk == "" {
		disk, flags = t.TempDir(), append(flags, "--journal-max-bytes", strconv.Itoa(diskBytes))
	}
	d := s.daemon(uri, append(flags, "--journal-dir", filepath.Join(disk, "journal"))...)
	p := s.produce(d, 4, faulttest.ProducerConfig{Batch: 50, Sensors: 50, Rate: 20_000})
	kills := form(2, 20)
	for round := range kills {
		// MongoDB cannot be reached, so nothing is trimmed.
		proxy.Set(faulttest.Faults{Refuse: true})
		proxy.CutAll()
		before := p.Counts.Refused.Load()
		ballast := filepath.Join(disk, "ballast")
		if round%2 == 0 {
			// Another program fills the disk.
			fill(t, ballast)
		}
		require.True(t, d.await(func() bool { return p.Counts.Refused.Load() > before+20 }), "the journal's disk does not get full")
		d.kill()
		require.NoError(t, os.RemoveAll(ballast))
		proxy.Set(faulttest.Faults{})
		d.start().ready()
		wait(form(time.Second, 3*time.Second))
	}
	s.finish("FS-5", kills)
}

// fill writes a file until the disk is full, or up to a limit.
func fill(t testing.TB, path string) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	chunk := make([]byte, 64<<10)
	for range diskBytes / len(chunk) {
		if _, err := file.Write(chunk); err != nil {
			return
		}
	}
}

// diskBytes is the size of a small disk.
var diskBytes = form(2<<20, 4<<20)

// notRun reports why a test could not run.
func notRun(what string, why error) {
	fmt.Fprintf(os.Stderr, "NOT RUN: %s: %v\n", what, why)
}
