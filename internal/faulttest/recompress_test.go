package faulttest_test

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// The boundaries of a process that moves the collection readings, in order. The state of the
// move does not yet record what was done just before each of them.
const (
	moveCreated  = "create@readings.brim_new.after" // the new collection is there, and empty
	moveCopied   = "insert@readings.brim_new.after" // some groups are written
	moveFollowed = "update@readings.brim_new.after" // groups that changed meanwhile are copied again
	moveVerified = "find@readings.brim_new.after:2" // some groups are compared; the first time they are read to be copied again
	moveFenced   = "collMod@readings.after"         // daemons wait
	moveSwapping = "applyOps.before"                // the names are about to be swapped
	moveSwapped  = "applyOps.after"                 // they were swapped
)

var movePoints = []string{moveCreated, moveCopied, moveFollowed, moveVerified, moveFenced, moveSwapping, moveSwapped}

// TestRECOMPRESS1 moves the collection that a daemon writes to, with a process
// that is killed at some of its boundaries and at random moments before it may finish, and
// then kills the daemon.
func TestRECOMPRESS1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	d := s.movable()
	wait(time.Second)
	to, kills := "zstd", 0
	for round := range form(1, 4) {
		for _, p := range form(movePoints[1:6], movePoints) {
			if p == moveFollowed || p == moveFenced {
				s.killMove(300*time.Millisecond+rand.N(500*time.Millisecond), to)
				kills++
			}
			out, err := s.brim(p, recompressArgs(to)...)
			assertCrash(t, p, out, err)
			kills++
			if p == moveFenced {
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
	s.finish("RECOMPRESS-1", kills)
}

// assertCrash checks that a process has ended itself at a boundary.
func assertCrash(t testing.TB, point, output string, err error) {
	t.Helper()
	if assert.Error(t, err, "%s does not end the process: %s", point, output) {
		assert.Contains(t, output, "the test ends the process", point)
	}
}

// movable starts a daemon with small parts, and producers that also write into
// older windows.
func (s *scene) movable() *daemon {
	s.t.Helper()
	s.shared()
	s.check.MaxReadings = 20
	d := s.daemon("", append([]string{"--compressor", "snappy"}, smallParts...)...)
	s.produce(d, 3, faulttest.ProducerConfig{Batch: 10, Rate: form(600.0, 2000), Late: 2 * time.Minute})
	s.produce(d, 2, faulttest.ProducerConfig{Rate: form(100.0, 200), FirstSensor: 5})
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

// brim runs a command on the scene's MongoDB until it ends or crashes.
func (s *scene) brim(crash string, args ...string) (output string, err error) {
	s.t.Helper()
	var out bytes.Buffer
	cmd := s.brimCommand(crash, &out, args...)
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
	assert.Error(s.t, cmd.Wait(), out.String())
}

// commandName is the application name of commands in MongoDB.
func (s *scene) commandName() string { return s.db.Name() + "_command" }

func (s *scene) brimCommand(crash string, out *bytes.Buffer, args ...string) *exec.Cmd {
	args = append(args, "--mongo-uri", s.uri+"&appName="+s.commandName(), "--database", s.db.Name(), "--stream", "readings", "--admin", "127.0.0.1:1")
	cmd := exec.Command(binary.Path(s.t), args...)
	cmd.Env = append(brimtest.Env(), "BRIM_CRASH="+crash)
	cmd.Dir = s.t.TempDir()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = endsWithTest()
	return cmd
}
