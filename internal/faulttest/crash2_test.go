package faulttest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestCRASH2 crashes the daemon at each named point of the write path.
func TestCRASH2(t *testing.T) {
	faultTest{name: "CRASH-2", run: crashPoints, sabotages: []sabotage{without(fault.Replay), without(fault.Look)}}.test(t)
}

func crashPoints(s *scene) outcome {
	s.shared()
	s.check.MaxReadings = 20
	// Segments of 128 KiB, so that some are trimmed within a second.
	d := s.daemon("", append(smallParts, "--journal-max-bytes", "1MiB")...)
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 20, Rate: 4000})
	s.produce(d, 2, faulttest.ProducerConfig{Ack: "stored"})
	faults := 0
	points := fault.Points()
	if !full() && s.sabotaged { // those after which there is something to replay
		points = []fault.Point{fault.AfterBulk, fault.AfterFsync, fault.BeforeBulk}
	}
	for range form(s, 1, 6) {
		for _, point := range points {
			closes := point == fault.BeforeClosePart || point == fault.AfterClosePart
			if closes && !d.ended() {
				// The daemon before must have left parts that are too full under the cap.
				require.NoError(s.t, d.flush(patience))
			}
			d.kill()
			arrivals := 1 + rand.IntN(form(s, 4, 30))
			if closes {
				arrivals = 1 // it is rare
			}
			d.Faults = fmt.Sprintf("crash=%s:%d", point, arrivals)
			// Parts that are too full under this cap have to be closed by a command of
			// its own.
			d.start("--bucket-max-readings", "7")
			if !s.reaches(d, point) {
				continue
			}
			faults++
			d.Faults = ""
			d.start().ready()
			wait(100 * time.Millisecond)
		}
	}
	d.kill()
	d.Faults = ""
	d.start().ready()
	return s.finish(faults)
}

// reaches waits for the daemon's end at a point.
func (s *scene) reaches(d *daemon, point fault.Point) bool {
	s.t.Helper()
	select {
	case <-d.exited:
		return true
	case <-time.After(patience / 2):
		require.NotEmpty(s.t, s.off, "the point %s is never reached", point)
		return false
	}
}
