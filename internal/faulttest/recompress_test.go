package faulttest_test

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestRECOMPRESS1 moves the collection that a daemon writes to, with a process
// that is killed again and again.
func TestRECOMPRESS1(t *testing.T) {
	faultTest{
		name: "RECOMPRESS-1", run: recompressUnderLoad,
		sabotages: []sabotage{
			{off: []fault.Protection{fault.Follow}, run: recompressOnce},
			{off: []fault.Protection{fault.MoveFence}, run: recompressOnce},
		},
	}.test(t)
}

// recompressUnderLoad kills the move at some of its points and at random moments
// before it may finish, and then the daemon.
func recompressUnderLoad(s *scene) outcome {
	d := s.movable()
	wait(time.Second)
	points := form(s,
		[]fault.Point{fault.MoveCopied, fault.MoveFollowed, fault.MoveVerified, fault.MoveFenced, fault.MoveSwapping},
		append(fault.MovePoints()[:7:7], fault.MoveSwapped)) // one is of another way to exchange
	to, kills := "zstd", 0
	for round := range form(s, 1, 4) {
		for _, p := range points {
			if p == fault.MoveFollowed || p == fault.MoveFenced {
				s.killMove(300*time.Millisecond+rand.N(500*time.Millisecond), to)
				kills++
			}
			out, err := s.brim("crash="+string(p), recompressArgs(to)...)
			require.Error(s.t, err, "%s ends the process: %s", p, out)
			require.Contains(s.t, out, "the test ends the process", p)
			kills++
			if p == fault.MoveFenced {
				wait(500 * time.Millisecond) // daemons wait
			}
		}
		s.recompressed(to)
		if round%2 == 1 {
			d.kill()
			kills++
		} else {
			d.stop()
		}
		d.start("--compressor", to).ready()
		wait(500 * time.Millisecond)
		to = map[string]string{"zstd": "snappy", "snappy": "zstd"}[to]
	}
	return s.finish(kills)
}

// recompressOnce moves the collection without a kill, which is enough to detect a
// missing protection.
func recompressOnce(s *scene) outcome {
	s.movable()
	wait(500 * time.Millisecond)
	s.recompressed("zstd")
	wait(200 * time.Millisecond)
	return s.finish(1)
}

// movable starts a daemon with small parts, and producers that also write into
// older windows.
func (s *scene) movable() *daemon {
	s.t.Helper()
	s.shared()
	s.check.MaxReadings = 20
	d := s.daemon("", append([]string{"--compressor", "snappy"}, smallParts...)...)
	s.produce(d, 3, faulttest.ProducerConfig{Batch: 10, Rate: form(s, 600.0, 2000), Late: 2 * time.Minute})
	s.produce(d, 2, faulttest.ProducerConfig{Rate: form(s, 100.0, 200), FirstSensor: 5})
	s.produce(d, 1, faulttest.ProducerConfig{Batch: 2, Ack: "stored"})
	return d
}

func recompressArgs(to string) []string { return []string{"recompress", "--to", to, "--rate", "0"} }

// recompressed moves the collection, checks its compressor, and drops the old one.
func (s *scene) recompressed(to string) {
	s.t.Helper()
	out, err := s.brim("", recompressArgs(to)...)
	require.NoError(s.t, err, out)
	s.t.Log(out)
	var size struct {
		WiredTiger struct {
			Creation string `bson:"creationString"`
		} `bson:"wiredTiger"`
	}
	require.NoError(s.t, s.db.RunCommand(s.t.Context(), bson.D{{Key: "collStats", Value: "readings"}}).Decode(&size))
	require.Contains(s.t, size.WiredTiger.Creation, "block_compressor="+to)
	out, err = s.brim("", "recompress", "--drop-old")
	require.NoError(s.t, err, out)
}

// brim runs a command on the scene's MongoDB to its end.
func (s *scene) brim(faults string, args ...string) (output string, err error) {
	s.t.Helper()
	var out bytes.Buffer
	cmd := s.brimCommand(faults, &out, args...)
	err = cmd.Run()
	return out.String(), err
}

// killMove runs the move for a while, and kills it. The rate is too low for it to
// finish.
func (s *scene) killMove(after time.Duration, to string) {
	s.t.Helper()
	var out bytes.Buffer
	cmd := s.brimCommand("", &out, "recompress", "--to", to, "--rate", "4KiB")
	require.NoError(s.t, cmd.Start())
	wait(after)
	_ = cmd.Process.Kill()
	require.Error(s.t, cmd.Wait(), out.String())
}

func (s *scene) brimCommand(faults string, out *bytes.Buffer, args ...string) *exec.Cmd {
	off := make([]string, len(s.off))
	for i, p := range s.off {
		off[i] = "off=" + string(p)
	}
	args = append(args, "--mongo-uri", s.uri, "--database", s.db.Name(), "--stream", "readings", "--admin", "127.0.0.1:1")
	cmd := exec.Command(brimBinary(s.t), args...)
	cmd.Env = append(brimtest.Env(), "BRIM_FAULT="+joinFaults(strings.Join(off, ","), faults))
	cmd.Dir = s.t.TempDir()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = endsWithTest()
	return cmd
}
