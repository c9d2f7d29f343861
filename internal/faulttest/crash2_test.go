package faulttest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// crashPoints are the boundaries on the daemon's write path, in order. answered is not from
// internal/crash: a producer has received its answer.
var crashPoints = []string{
	"write.before", "write.after", "sync.before", "sync.after", answered,
	"update@readings.before", "update@readings.after",
	"findAndModify@readings.before", "findAndModify@readings.after", // a part is closed
	"remove.before", "remove.after", // the journal is trimmed
}

const answered = "answered"

// TestCRASH2 crashes the daemon at each boundary of the write path.
func TestCRASH2(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	// Segments of 128 KiB, so that some are trimmed within a second.
	d := s.daemon("", append(smallParts, "--journal-max-bytes", "1MiB")...)
	p := s.produce(d, 4, faulttest.ProducerConfig{Batch: 20, Rate: 4000})
	s.produce(d, 2, faulttest.ProducerConfig{Ack: "stored"})
	crashes := 0
	for range form(1, 6) {
		for _, point := range crashPoints {
			s.crashAt(d, p, point)
			crashes++
			d.Crash = ""
			d.start().ready()
			wait(100 * time.Millisecond)
		}
	}
	s.finish("CRASH-2", crashes)
}

// crashAt replaces the running daemon with one that crashes at a boundary.
func (s *scene) crashAt(d *daemon, p *faulttest.Producers, point string) {
	s.t.Helper()
	arrivals := 1 + rand.IntN(form(4, 30))
	switch point {
	case answered:
		d.kill()
		d.start()
		target := p.Counts.Answered.Load() + int64(arrivals)
		require.True(s.t, d.await(func() bool { return p.Counts.Answered.Load() >= target }), "no answers")
		d.kill()
		return
	case "findAndModify@readings.before", "findAndModify@readings.after":
		// The next daemon closes a part with a separate command only if the previous one
		// filled it beyond the new cap, which is rare.
		require.NoError(s.t, d.flush(patience))
		arrivals = 1
	}
	d.kill()
	d.Crash = fmt.Sprintf("%s:%d", point, arrivals)
	d.start("--bucket-max-readings", "7")
	select {
	case <-d.exited:
	case <-time.After(patience):
		assert.Fail(s.t, "the daemon never reaches "+point)
		d.kill()
	}
}
