package faulttest_test

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestMIGRATE1 moves what a daemon writes to another granularity and back, while
// answers are lost, with a process that is killed again and again; the daemon is
// killed, and comes back with the old granularity and then with the new one.
func TestMIGRATE1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	d, proxy := s.lossy()
	s.documents(20)
	wait(form(0, 2*time.Second))
	kills := 0
	for _, to := range form([]string{"5m"}, []string{"5m", "1h", "2m", "1m"}) {
		for i, p := range form([]string{moveCopied, moveVerified, moveSwapping}, movePoints) {
			if i > 0 {
				kills += s.killMigration(to, time.Duration(300+200*i)*time.Millisecond)
			}
			kills += s.crashMigration(to, p)
		}
		s.migrate(to)
		d.kill() // what it does not know to be stored is sent again, to the old windows
		d.start().ready()
		wait(form(300*time.Millisecond, 2*time.Second))
		d.kill()
		d.start("--granularity", to).ready()
		wait(form(300*time.Millisecond, 2*time.Second))
		kills += 2
		s.migrate(to) // what the old one wrote behind the tombstones
	}
	s.migrate("1m") // down, and back to where there are tombstones
	wait(form(300*time.Millisecond, 2*time.Second))
	lost := proxy.Counts().Faults()
	proxy.Set(faulttest.Faults{})
	require.GreaterOrEqual(t, kills, 5)
	s.afterDrop(s.finish("MIGRATE-1", kills+lost), "1m")
}

// lossy starts a daemon with small parts that gets no answer to a third of its
// updates, and producers that also write into older windows.
func (s *scene) lossy() (*daemon, *faulttest.Proxy) {
	s.t.Helper()
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	d := s.daemon(uri, smallParts...)
	s.produce(d, 3, faulttest.ProducerConfig{Batch: 10, Rate: form(300.0, 600), Late: 10 * time.Minute})
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

// crashMigration runs the move up to a boundary at which it crashes. It returns 0 if the
// move did not reach it, because an earlier run was killed after that point.
func (s *scene) crashMigration(to, point string) int {
	s.t.Helper()
	out, err := s.brim(point, migrateArgs(to)...)
	if err == nil {
		return 0
	}
	assertCrash(s.t, point, out, err)
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
	t.Parallel()
	s := newScene(t)
	d, proxy := s.lossy()
	s.documents(20)
	proxy.Set(faulttest.Faults{Decide: faulttest.EveryNth(1, faulttest.CutAnswer)})
	wait(500 * time.Millisecond)
	d.kill()
	s.migrate("5m")
	out, err := s.brim("", "migrate", "--granularity", "5m", "--drop-old")
	require.Error(t, err, out)
	require.Contains(t, out, "say --no-daemon")
	proxy.Set(faulttest.Faults{})
	d.start("--granularity", "5m").ready()
	s.afterDrop(s.finish("MIGRATE-1", 1), "5m")
}

// afterDrop checks once more when the daemons are gone and what the moves left
// behind is dropped.
func (s *scene) afterDrop(before *faulttest.Result, to string) {
	s.t.Helper()
	text, err := s.brim("", "migrate", "--drop-old", "--no-daemon")
	require.NoError(s.t, err, text)
	s.t.Log(text)
	after := s.checked()
	assert.Equal(s.t, before.Stored, after.Stored)
	assert.Zero(s.t, after.Wrong(), after.Report())
}

// The boundaries of a process that changes the storage of readings, in order, for each
// direction.
const (
	seriesFenced    = "collMod@readings.after:2"       // the buckets refuse writes; the first one lifts an older fence
	seriesRenamed   = "renameCollection.after"         // the name is free
	seriesMade      = "create@readings.after"          // the time-series collection exists
	seriesSent      = "insert@readings.after"          // old readings are inserted
	seriesWritten   = "insert@readings.brim_new.after" // bucket documents are written beside a time series
	seriesSwitching = "applyOps.before"                // the time series is about to be dropped
	seriesDropped   = "applyOps.after"                 // the copy has the name
)

// TestMIGRATE2 makes a time-series collection of the buckets that a daemon
// writes, while answers are lost, with a process that is killed again and again.
// The daemon is killed, too, and comes back with the other storage.
func TestMIGRATE2(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.TimeSeries = true
	proxy, d := s.changing(smallParts...)
	kills := s.crashes(d, "timeseries", seriesFenced, seriesRenamed, seriesMade)
	d.kill()
	d.start("--storage", "timeseries").ready()
	kills += s.crashes(d, "timeseries", seriesSent) // first, while there is something to send
	for range form(1, 3) {
		kills += s.killChange(d, "timeseries", 500*time.Millisecond)
	}
	s.changed(d, "--storage", "timeseries")
	wait(form(300*time.Millisecond, 2*time.Second))
	lost := proxy.Counts().Faults()
	proxy.Set(faulttest.Faults{})
	s.finish("MIGRATE-2", kills+lost)
}

// TestMIGRATE3 is the way back.
func TestMIGRATE3(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	proxy, d := s.changing("--storage", "timeseries", "--flush-interval", "20ms")
	kills := 0
	for range form(1, 3) {
		kills += s.crashes(d, "bucket", seriesWritten)
		kills += s.killChange(d, "bucket", 700*time.Millisecond) + s.killChange(d, "bucket", 300*time.Millisecond)
	}
	s.changed(d, "--storage", "bucket")
	wait(form(300*time.Millisecond, 2*time.Second))                        // there is something to catch up with
	kills += s.crashes(d, "bucket", form(nil, []string{seriesWritten})...) // everything is compared again
	// With answers that are lost, a time series takes long to know what it has.
	lost := proxy.Counts().Faults()
	proxy.Set(faulttest.Faults{})
	kills += s.crashes(d, "bucket", seriesSwitching)
	s.kill(d) // its hold ends with it, so it continues to write
	d.start().ready()
	wait(200 * time.Millisecond)
	kills += s.crashes(d, "bucket", seriesDropped) + 1
	s.changed(d, "--storage", "bucket", "--drop-old")
	d.kill()
	d.start(append([]string{"--storage", "bucket"}, smallParts...)...).ready()
	wait(form(500*time.Millisecond, 3*time.Second))
	s.finish("MIGRATE-3", kills+lost)
}

// changing starts a daemon that gets no answer to a tenth of its writes, and
// producers that also write into older windows.
func (s *scene) changing(flags ...string) (*faulttest.Proxy, *daemon) {
	s.t.Helper()
	proxy, uri := s.proxy()
	d := s.daemon(uri, flags...)
	s.produce(d, 3, faulttest.ProducerConfig{Batch: 10, Rate: form(200.0, 2000), Late: 2 * time.Minute})
	s.produce(d, 2, faulttest.ProducerConfig{Rate: 100, FirstSensor: 5})
	s.produce(d, 1, faulttest.ProducerConfig{Batch: 2, Rate: 100, Ack: "stored"})
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.1, faulttest.CutAnswer)})
	s.documents(20) // the daemon may still be claiming its partition
	wait(form(time.Second, 5*time.Second))
	return proxy, d
}

// crashes runs the change of storage until it ends itself at each of the boundaries,
// and returns how many these were. Of a copy into buckets the last ones lie
// behind --drop-old.
func (s *scene) crashes(d *daemon, to string, points ...string) int {
	s.t.Helper()
	for _, p := range points {
		args := []string{"--storage", to}
		if p == seriesSwitching || p == seriesDropped {
			args = append(args, "--drop-old")
		}
		var out bytes.Buffer
		err := s.changeCommand(d, p, &out, args...).Run()
		assertCrash(s.t, p, out.String(), err)
	}
	return len(points)
}

// killChange runs the change of storage for a while, slowly, and kills it.
func (s *scene) killChange(d *daemon, to string, after time.Duration) int {
	s.t.Helper()
	var out bytes.Buffer
	kills := s.killAfter(s.changeCommand(d, "", &out, "--storage", to, "--rate", "32KiB"), &out, after)
	s.allRead(s.commandName())
	return kills
}

// changed runs a change of storage to completion.
func (s *scene) changed(d *daemon, args ...string) {
	s.t.Helper()
	var out bytes.Buffer
	require.NoError(s.t, s.changeCommand(d, "", &out, args...).Run(), &out)
	s.t.Log(out.String())
}

func (s *scene) changeCommand(d *daemon, crash string, out *bytes.Buffer, args ...string) *exec.Cmd {
	cmd := s.brimCommand(crash, out, append([]string{"migrate", "--bucket-max-readings", "20"}, args...)...)
	cmd.Args[len(cmd.Args)-1] = strings.TrimPrefix(d.Admin, "http://") // of --admin, the last one
	return cmd
}
