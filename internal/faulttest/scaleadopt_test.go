package faulttest_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/fault"
)

// An adoptionRun is `brim journal replay` on the journal of a daemon that is lost.
type adoptionRun struct {
	s        *scene
	cmd      *exec.Cmd
	out, log bytes.Buffer
}

// adopted is what such a run says that it did.
type adopted struct {
	Stored, Found uint64
	Left          int
}

// adopt begins to store what a lost daemon has left, with the scene's MongoDB.
func (s *scene) adopt(lost *daemon) *adoptionRun { return s.adoptFrom(lost, s.uri) }

// adoptFrom is adopt with the URI that the lost daemon had.
func (s *scene) adoptFrom(lost *daemon, uri string) *adoptionRun {
	s.t.Helper()
	a := s.adoption(lost, uri)
	require.NoError(s.t, a.cmd.Start())
	s.t.Cleanup(func() {
		if a.cmd.ProcessState == nil { // the test gave up before done
			_ = a.cmd.Process.Kill()
			_ = a.cmd.Wait()
		}
	})
	return a
}

func (s *scene) adoption(lost *daemon, uri string) *adoptionRun {
	a := &adoptionRun{s: s}
	args := append([]string{
		"journal", "replay", "--data-dir", lost.Dir, "--mongo-uri", uri, "--database", s.db.Name(), "--granularity", "1m", "--output", "json",
	}, smallParts...)
	a.cmd = exec.Command(brimBinary(s.t), args...)
	a.cmd.Env = append(foreignEnv(), "BRIM_FAULT="+lost.off)
	a.cmd.Dir, a.cmd.Stdout, a.cmd.Stderr = lost.Dir, &a.out, &a.log
	a.cmd.SysProcAttr = endsWithTest()
	return a
}

// done waits for the end of the run, and holds that nothing is left.
func (a *adoptionRun) done() (what adopted) {
	a.s.t.Helper()
	require.NoError(a.s.t, a.cmd.Wait(), a.log.String())
	require.NoError(a.s.t, json.Unmarshal(a.out.Bytes(), &what), a.out.String())
	assert.NotContains(a.s.t, a.log.String(), "WARNING: DATA RACE")
	assert.Zero(a.s.t, what.Left)
	a.s.t.Logf("adopted: %d readings stored, %d of them found stored", what.Stored, what.Found)
	return what
}

// killAdoption begins to store what a lost daemon has left, and is killed.
func (s *scene) killAdoption(lost *daemon, after time.Duration) int {
	s.t.Helper()
	a := s.adoption(lost, s.uri)
	return s.killAfter(a.cmd, &a.out, after)
}

// adoptBeside tries to store what a daemon has in its journal that is alive.
func (s *scene) adoptBeside(alive *daemon) (broken []string) {
	s.t.Helper()
	a := s.adoption(alive, s.uri)
	err := a.cmd.Run()
	if err == nil || !strings.Contains(a.log.String(), "another process has it open") {
		broken = append(broken, "a journal was replayed beside its daemon")
	}
	return broken
}

// adoptCopy stores what a copy of a running daemon's journal holds, without the
// claim, which would prevent it: only the guard prevents duplicates.
func (s *scene) adoptCopy(alive *daemon) adopted {
	s.t.Helper()
	double := &daemon{Dir: s.t.TempDir(), off: joinFaults(alive.off, "off="+string(fault.Claim))}
	// What says how far the journal is durable must not be newer than the rest, or
	// the copy counts as damaged. No segment of these few readings is done with.
	mark, err := os.ReadFile(filepath.Join(alive.journal(), "mark"))
	require.NoError(s.t, err)
	require.NoError(s.t, os.CopyFS(double.journal(), os.DirFS(alive.journal())))
	require.NoError(s.t, os.WriteFile(filepath.Join(double.journal(), "mark"), mark, 0o600))
	return s.adopt(double).done()
}

// successor moves the journal of a lost daemon to another folder, as one does to
// another machine, and starts a daemon on it.
func (s *scene) successor(lost *daemon) *daemon {
	s.t.Helper()
	d := newDaemon(s.t, lost.off, append([]string{"--mongo-uri", s.uri, "--database", s.db.Name()}, smallParts...)...)
	require.NoError(s.t, os.CopyFS(d.journal(), os.DirFS(lost.journal())))
	require.NoError(s.t, os.RemoveAll(lost.journal()))
	s.daemons = append(s.daemons, d)
	return d.start().ready()
}
