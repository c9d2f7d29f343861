package faulttest_test

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestMIGRATE1 moves what a daemon writes to another granularity and back, while
// answers are lost, with a process that is killed again and again; the daemon is
// killed, and comes back with the old granularity and then with the new one.
func TestMIGRATE1(t *testing.T) {
	faultTest{
		name: "MIGRATE-1", run: migrateUnderLoad,
		sabotages: []sabotage{{off: []fault.Protection{fault.Tombstones}, run: migrateOnce}},
	}.test(t)
}

func migrateUnderLoad(s *scene) outcome {
	d, proxy := s.lossy()
	s.documents(20)
	wait(form(s, 0, 2*time.Second))
	points := form(s,
		[]fault.Point{fault.MoveCopied, fault.MoveVerified, fault.MoveSwapping},
		append(fault.MovePoints()[:7:7], fault.MoveSwapped))
	kills := 0
	for _, to := range form(s, []string{"5m"}, []string{"5m", "1h", "2m", "1m"}) {
		for i, p := range points {
			if i > 0 {
				kills += s.killMigration(to, time.Duration(300+200*i)*time.Millisecond)
			}
			kills += s.crashMigration(to, p)
		}
		s.migrate(to)
		d.kill() // what it does not know to be stored is sent again, to the old windows
		d.start().ready()
		wait(form(s, 300*time.Millisecond, 2*time.Second))
		d.kill()
		d.start("--granularity", to).ready()
		wait(form(s, 300*time.Millisecond, 2*time.Second))
		kills += 2
		s.migrate(to) // what the old one wrote behind the tombstones
	}
	s.migrate("1m") // down, and back to where there are tombstones
	wait(form(s, 300*time.Millisecond, 2*time.Second))
	lost := proxy.Counts().Faults()
	proxy.Set(faulttest.Faults{})
	require.GreaterOrEqual(s.t, kills, 5)
	out := s.finish(kills + lost)
	if out.stuck == nil && out.wrong() == "" {
		s.afterDrop(&out, "1m")
	}
	return out
}

// migrateOnce moves there and back without a kill: lost answers are enough.
func migrateOnce(s *scene) outcome {
	_, proxy := s.lossy()
	// Many updates are to wait for their retry when the names are exchanged.
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.6, faulttest.CutAnswer)})
	s.documents(20)
	for _, to := range []string{"5m", "1m"} {
		before := proxy.Counts().Faults()
		s.migrate(to)
		require.Eventually(s.t, func() bool { return proxy.Counts().Faults() >= before+20 }, patience, 10*time.Millisecond)
	}
	lost := proxy.Counts().Faults()
	proxy.Set(faulttest.Faults{})
	return s.finish(lost)
}

// lossy starts a daemon with small parts that gets no answer to a third of its
// updates, and producers that also write into older windows.
func (s *scene) lossy() (*daemon, *faulttest.Proxy) {
	s.t.Helper()
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	d := s.daemon(uri, smallParts...)
	s.produce(d, 3, faulttest.ProducerConfig{Batch: 10, Rate: form(s, 300.0, 600), Late: 10 * time.Minute})
	s.produce(d, 2, faulttest.ProducerConfig{Rate: 50, FirstSensor: 5})
	s.produce(d, 1, faulttest.ProducerConfig{Batch: 2, Rate: 100, Ack: "stored"})
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.3, faulttest.CutAnswer)})
	return d, proxy
}

func migrateArgs(to string) []string {
	return []string{"migrate", "--granularity", to, "--rate", "0", "--bucket-max-readings", "20"}
}

// documents waits until the stream has so many: a move of none has nothing to do.
func (s *scene) documents(n int64) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		there, err := s.db.Collection("readings").EstimatedDocumentCount(context.Background())
		return err == nil && there >= n
	}, patience, 20*time.Millisecond)
}

// migrate runs a move to its end, and drops nothing.
func (s *scene) migrate(to string) {
	s.t.Helper()
	out, err := s.brim("", migrateArgs(to)...)
	require.NoError(s.t, err, out)
	s.t.Log(out)
}

// crashMigration runs the move up to a point at which it crashes. It returns 0 if the
// move did not reach it, because an earlier run was killed after that point.
func (s *scene) crashMigration(to string, p fault.Point) int {
	s.t.Helper()
	out, err := s.brim("crash="+string(p), migrateArgs(to)...)
	if err == nil {
		return 0
	}
	require.Contains(s.t, out, "the test ends the process", p)
	return 1
}

// killMigration runs the move for a while, slowly, and kills it. It returns 1
// if there was something to kill.
func (s *scene) killMigration(to string, after time.Duration) int {
	s.t.Helper()
	var out bytes.Buffer
	cmd := s.brimCommand("", &out, append(migrateArgs(to), "--rate", "64KiB")...)
	return s.killAfter(cmd, &out, after)
}

// killAfter runs a command for a while, and kills it. It returns 1 if there was
// something to kill, 0 if the command had ended well.
func (s *scene) killAfter(cmd *exec.Cmd, out *bytes.Buffer, after time.Duration) int {
	s.t.Helper()
	require.NoError(s.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		require.NoError(s.t, err, out.String())
		return 0
	case <-time.After(after):
		_ = cmd.Process.Kill()
		<-ended
		return 1
	}
}

// TestMIGRATE1DropWaitsForADaemonThatDied kills a daemon that got no answer to its
// writes. Only the tombstones show that they were stored, so nothing may remove them
// until it is back.
func TestMIGRATE1DropWaitsForADaemonThatDied(t *testing.T) {
	faultTest{name: "MIGRATE-1", run: func(s *scene) outcome {
		d, proxy := s.lossy()
		s.documents(20)
		proxy.Set(faulttest.Faults{Decide: faulttest.EveryNth(1, faulttest.CutAnswer)})
		wait(500 * time.Millisecond)
		d.kill()
		s.migrate("5m")
		out, err := s.brim("", "migrate", "--granularity", "5m", "--drop-old")
		require.Error(s.t, err, out)
		require.Contains(s.t, out, "say --no-daemon")
		proxy.Set(faulttest.Faults{})
		d.start("--granularity", "5m").ready()
		end := s.finish(1)
		if end.stuck == nil && end.wrong() == "" {
			s.afterDrop(&end, "5m")
		}
		return end
	}}.test(t)
}

// afterDrop checks once more when the daemons are gone and what the moves left
// behind is dropped.
func (s *scene) afterDrop(out *outcome, to string) {
	s.t.Helper()
	text, err := s.brim("", "migrate", "--drop-old", "--no-daemon")
	require.NoError(s.t, err, text)
	s.t.Log(text)
	again := s.checked(false)
	require.Equal(s.t, out.result.Stored, again.Stored)
	out.result = *again
}

// TestMIGRATE2 makes a time-series collection of the buckets that a daemon
// writes, while answers are lost, with a process that is killed again and again.
// The daemon is killed, too, and comes back with the other storage.
func TestMIGRATE2(t *testing.T) {
	faultTest{
		name: "MIGRATE-2", run: intoSeries,
		sabotages: []sabotage{without(fault.CopyLook), {off: []fault.Protection{fault.Drain}, run: intoSeriesOnce}},
	}.test(t)
}

func intoSeries(s *scene) outcome {
	s.shared()
	s.check.TimeSeries = true
	proxy, d := s.changing(smallParts...)
	kills := s.crashes(d, "timeseries", fault.SeriesFenced, fault.SeriesRenamed, fault.SeriesMade)
	d.kill()
	d.start("--storage", "timeseries").ready()
	for range form(s, 1, 3) {
		kills += s.crashes(d, "timeseries", fault.SeriesSent)
		kills += s.killChange(d, "timeseries", 500*time.Millisecond)
	}
	s.changed(d, "--storage", "timeseries")
	wait(form(s, 300*time.Millisecond, 2*time.Second))
	lost := proxy.Counts().Faults()
	proxy.Set(faulttest.Faults{})
	return s.finish(kills + lost)
}

// intoSeriesOnce changes the storage while a journal holds readings of which
// it is not known whether they are stored.
func intoSeriesOnce(s *scene) outcome {
	s.shared()
	s.check.TimeSeries = true
	proxy, d := s.changing(smallParts...)
	proxy.Set(faulttest.Faults{Decide: faulttest.EveryNth(1, faulttest.CutAnswer)})
	wait(500 * time.Millisecond)
	d.kill()
	s.changed(d, "--storage", "timeseries", "--no-daemon")
	proxy.Set(faulttest.Faults{})
	d.start("--storage", "timeseries").ready()
	return s.finish(1)
}

// TestMIGRATE3 is the way back.
func TestMIGRATE3(t *testing.T) {
	faultTest{
		name: "MIGRATE-3", run: intoBuckets,
		// Readings of a stream that is not held wait, since their writes name the
		// collection that is gone.
		sabotages: []sabotage{{off: []fault.Protection{fault.Hold, fault.Target}, run: intoBucketsOnce}},
	}.test(t)
}

func intoBuckets(s *scene) outcome {
	s.shared()
	s.check.MaxReadings = 20
	proxy, d := s.changing("--storage", "timeseries", "--flush-interval", "20ms")
	kills := 0
	for range form(s, 1, 3) {
		kills += s.crashes(d, "bucket", fault.SeriesWritten)
		kills += s.killChange(d, "bucket", 700*time.Millisecond) + s.killChange(d, "bucket", 300*time.Millisecond)
	}
	s.changed(d, "--storage", "bucket")
	wait(form(s, 300*time.Millisecond, 2*time.Second))                                   // there is something to catch up with
	kills += s.crashes(d, "bucket", form(s, nil, []fault.Point{fault.SeriesWritten})...) // all is compared anew
	// With answers that are lost, a time series takes long to know what it has.
	lost := proxy.Counts().Faults()
	proxy.Set(faulttest.Faults{})
	kills += s.crashes(d, "bucket", fault.SeriesSwitching)
	d.kill() // its hold ends with it, and it writes on
	d.start().ready()
	wait(200 * time.Millisecond)
	kills += s.crashes(d, "bucket", fault.SeriesDropped) + 1
	s.changed(d, "--storage", "bucket", "--drop-old")
	d.kill()
	d.start(append([]string{"--storage", "bucket"}, smallParts...)...).ready()
	wait(form(s, 500*time.Millisecond, 3*time.Second))
	return s.finish(kills + lost)
}

// intoBucketsOnce does so without a kill, which is enough to detect a missing
// protection.
func intoBucketsOnce(s *scene) outcome {
	s.shared()
	s.check.MaxReadings = 20
	proxy, d := s.changing("--storage", "timeseries", "--flush-interval", "20ms")
	s.changed(d, "--storage", "bucket")
	wait(300 * time.Millisecond)
	s.changed(d, "--storage", "bucket", "--drop-old")
	proxy.Set(faulttest.Faults{})
	s.flush(d)
	d.kill()
	d.start(append([]string{"--storage", "bucket"}, smallParts...)...)
	d.awaitReady()
	return s.finish(1)
}

// changing starts a daemon that gets no answer to a tenth of its writes, and
// producers that also write into older windows.
func (s *scene) changing(flags ...string) (*faulttest.Proxy, *daemon) {
	s.t.Helper()
	proxy, uri := s.proxy()
	d := s.daemon(uri, flags...)
	s.produce(d, 3, faulttest.ProducerConfig{Batch: 10, Rate: form(s, 200.0, 2000), Late: 2 * time.Minute})
	s.produce(d, 2, faulttest.ProducerConfig{Rate: 100, FirstSensor: 5})
	s.produce(d, 1, faulttest.ProducerConfig{Batch: 2, Rate: 100, Ack: "stored"})
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.1, faulttest.CutAnswer)})
	s.documents(20) // the daemon may still be claiming its partition
	wait(form(s, time.Second, 5*time.Second))
	return proxy, d
}

// crashes runs the change of storage until it ends itself at each of the points,
// and returns how many these were. Of a copy into buckets the last ones lie
// behind --drop-old.
func (s *scene) crashes(d *daemon, to string, points ...fault.Point) int {
	s.t.Helper()
	for _, p := range points {
		args := []string{"--storage", to}
		if p == fault.SeriesSwitching || p == fault.SeriesDropped {
			args = append(args, "--drop-old")
		}
		var out bytes.Buffer
		err := s.changeCommand(d, "crash="+string(p), &out, args...).Run()
		require.Error(s.t, err, "%s ends the process: %s", p, &out)
		require.Contains(s.t, out.String(), "the test ends the process", p)
	}
	return len(points)
}

// killChange runs the change of storage for a while, slowly, and kills it.
func (s *scene) killChange(d *daemon, to string, after time.Duration) int {
	s.t.Helper()
	var out bytes.Buffer
	cmd := s.changeCommand(d, "", &out, "--storage", to, "--rate", "32KiB")
	return s.killAfter(cmd, &out, after)
}

// changed runs a change of storage to its end. A sabotaged one may fail.
func (s *scene) changed(d *daemon, args ...string) {
	s.t.Helper()
	var out bytes.Buffer
	err := s.changeCommand(d, "", &out, args...).Run()
	if !s.sabotaged {
		require.NoError(s.t, err, out.String())
	}
	s.t.Log(out.String())
}

func (s *scene) changeCommand(d *daemon, faults string, out *bytes.Buffer, args ...string) *exec.Cmd {
	cmd := s.brimCommand(faults, out, append([]string{"migrate", "--bucket-max-readings", "20"}, args...)...)
	cmd.Args[len(cmd.Args)-1] = strings.TrimPrefix(d.Admin, "http://") // of --admin, the last one
	return cmd
}
