package faulttest_test

import (
	"bytes"
	"context"
	"os/exec"
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
	wait(form(s, 500*time.Millisecond, 2*time.Second))
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
	wait(500 * time.Millisecond)
	for _, to := range []string{"5m", "1m"} {
		s.migrate(to)
		wait(300 * time.Millisecond)
	}
	lost := proxy.Counts().Faults()
	proxy.Set(faulttest.Faults{})
	return s.finish(lost)
}

// lossy starts a daemon with small parts that does not learn of each third of
// its updates, and producers that also write into older windows.
func (s *scene) lossy() (*daemon, *faulttest.Proxy) {
	s.t.Helper()
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	d := s.daemon(uri, smallParts...)
	s.produce(d, 3, faulttest.ProducerConfig{Batch: 10, Rate: 600, Late: 10 * time.Minute})
	s.produce(d, 2, faulttest.ProducerConfig{Rate: 50, FirstSensor: 5})
	s.produce(d, 1, faulttest.ProducerConfig{Batch: 2, Rate: 100, Ack: "stored"})
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.3, faulttest.CutAnswer)})
	return d, proxy
}

func migrateArgs(to string) []string {
	return []string{"migrate", "--granularity", to, "--rate", "0", "--bucket-max-readings", "20"}
}

// migrate moves to the end, and drops nothing.
func (s *scene) migrate(to string) {
	s.t.Helper()
	out, err := s.brim("", migrateArgs(to)...)
	require.NoError(s.t, err, out)
	s.t.Log(out)
}

// crashMigration runs the move up to a point at which it crashes. It returns 1
// if it came there: what was killed behind the point does not come by again.
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

// TestMIGRATE1DropWaitsForADaemonThatDied kills a daemon that was not told that its
// readings are stored. Only the tombstones know of them, so nobody may remove
// these until it is back.
func TestMIGRATE1DropWaitsForADaemonThatDied(t *testing.T) {
	faultTest{name: "MIGRATE-1", run: func(s *scene) outcome {
		d, proxy := s.lossy()
		wait(time.Second)
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
	cfg := s.check
	cfg.Log, cfg.Database = s.log, s.db
	again, err := faulttest.Check(context.Background(), cfg)
	require.NoError(s.t, err)
	require.Equal(s.t, out.result.Stored, again.Stored)
	out.result = *again
}
