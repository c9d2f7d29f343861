package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestLivePageOfARealDaemon: page and metrics show the doctor's findings, and the page explains
// how to send a reading.
func TestLivePageOfARealDaemon(t *testing.T) {
	t.Parallel()
	b := startBrim(t, append(onShared(t, mongodtest.Database(t)), "--server-status-interval", "1s")...).awaitStorage()
	b.eventually("look at MongoDB", func() bool {
		_, metrics := b.admin(http.MethodGet, "/metrics")
		return strings.Contains(metrics, "\nbrim_mongodb_up 1\n")
	})
	var page string
	b.eventually("state without fault", func() bool {
		var code int
		code, page = b.admin(http.MethodGet, "/console")
		return code == http.StatusOK && strings.Contains(page, "Readings are accepted and stored")
	})
	assert.Regexp(t, `<th scope="row">Cache dirty</th><td class="class"><span class="mark [a-z]+" aria-hidden="true"></span>[a-z]+</td><td class="n">[0-9.<&lt; ]+ %</td>`, page,
		"which class depends on what else the server does")
	assert.Contains(t, page, `<th scope="row">readings <small>default</small></th>`)
	assert.Contains(t, page, "curl http://"+b.HTTP+"/v1/readings")
	_, whole := b.admin(http.MethodGet, "/")
	assert.Contains(t, whole, `<option value="readings">readings</option>`)

	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)
	b.eventually("page that has seen the reading", func() bool {
		_, page = b.admin(http.MethodGet, "/console")
		return !strings.Contains(page, "curl")
	})
}

// TestLivePageWhileMongoDBHangs: connections stay open, but nothing is accepted or answered.
func TestLivePageWhileMongoDBHangs(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{})
	b := startBrim(t, "--mongo-uri", server.URI(), "--data-dir", t.TempDir(), "--server-status-interval", "1s", "--stop-timeout", "2s").awaitStorage()
	state := func() string {
		_, page := b.admin(http.MethodGet, "/console")
		section, _, _ := strings.Cut(page, "</section>")
		return section
	}
	b.eventually("state without fault", func() bool { return strings.Contains(state(), "Readings are accepted and stored") })
	pid := server.Pid()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // so that it can be stopped
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)
	b.eventually("state that is not healthy", func() bool {
		s := state()
		return strings.Contains(s, `class="state degrading"`) && strings.Contains(s, "Readings are accepted into the journal")
	})
	b.eventually("word that nothing can be seen", func() bool {
		_, page := b.admin(http.MethodGet, "/console")
		return strings.Contains(page, "The storage engine cannot be sampled: MongoDB does not answer.")
	})
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	b.eventually("state without fault again", func() bool { return strings.Contains(state(), "Readings are accepted and stored") })
}

// TestLivePageIsUpdatedWhileTheDaemonStops and stores what is left.
func TestLivePageIsUpdatedWhileTheDaemonStops(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{})
	b := startBrim(t, "--mongo-uri", server.URI(), "--data-dir", t.TempDir(), "--stop-timeout", "10m").awaitStorage()
	resume := hangUpdates(t, server)
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)
	b.signal(syscall.SIGTERM)
	b.awaitReadiness(http.StatusServiceUnavailable, "the daemon is stopping")
	at := func() string {
		_, page := b.admin(http.MethodGet, "/console")
		_, after, _ := strings.Cut(page, `<span class="at">at <time datetime="`)
		shown, _, _ := strings.Cut(after, `"`)
		return shown
	}
	first := at()
	b.eventually("later look", func() bool { return at() != first })
	b.eventually("look after that", func() bool { return at() > first })
	resume()
	assert.Equal(t, exitDone, b.wait())
}
