package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/queue"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// putLetters makes a data folder with a letter per value, with ids l-0, l-1 and so on.
func putLetters(t *testing.T, stream string, values ...telemetry.Value) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i, v := range values {
		putLetter(t, dir, queue.DeadLetter{ID: "l-" + string(rune('0'+i)), Stream: stream, Reading: letterReading(v), Reason: errors.New("poison")})
	}
	return dir
}

func putLetter(t *testing.T, dir string, l queue.DeadLetter) {
	t.Helper()
	f := queue.DeadLetterFile{Path: filepath.Join(dir, queue.DeadLettersName)}
	require.NoError(t, f.Put(l))
}

func letterReading(v telemetry.Value) telemetry.Reading {
	return telemetry.Reading{Sensor: "s", Time: time.Date(2026, time.November, 21, 10, 0, 0, 0, time.UTC), Fields: []telemetry.Field{{Name: "v", Value: v}}}
}

// lettersIn lists the remaining letters with their reasons, by id.
func lettersIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	f := queue.DeadLetterFile{Path: filepath.Join(dir, queue.DeadLettersName)}
	letters, _, err := f.Read()
	require.NoError(t, err)
	left := make(map[string]string)
	for _, l := range letters {
		left[l.ID] = l.Reason
	}
	return left
}

func TestDeadLettersAreListed(t *testing.T) {
	t.Parallel()
	dir := putLetters(t, "readings", telemetry.IntValue(9007199254740993), telemetry.FloatValue(3))
	putLetter(t, dir, queue.DeadLetter{ID: "m-0", Stream: "machines", Reading: letterReading(telemetry.IntValue(1)), Reason: errors.New("bad\x1b[2Jthing")})
	file, err := os.OpenFile(filepath.Join(dir, queue.DeadLettersName), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString("garbage\n")
	require.NoError(t, err)
	require.NoError(t, file.Close())

	got := runBrim(t, nil, "deadletter", "list", "--data-dir", dir)
	require.NoError(t, got.err)
	assert.Regexp(t, `^id +at +stream +sensor +ts +reason\nl-0 +\S+Z +readings +s +2026-11-21T10:00:00.000Z +poison\nl-1 `, got.stdout)
	assert.Contains(t, got.stdout, `"bad\x1b[2Jthing"`, "a reason cannot play with the terminal")
	assert.Contains(t, got.stderr, "dead-letters.ndjson, line 4: ")

	got = runBrim(t, []string{"BRIM_DATA_DIR=" + dir}, "deadletter", "list", "--output", "json", "--stream", "readings")
	require.NoError(t, got.err)
	var letters []queue.KeptLetter
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &letters))
	require.Len(t, letters, 2)
	assert.Contains(t, string(letters[0].Reading), "9007199254740993")
	assert.Contains(t, string(letters[1].Reading), "3.0")

	config := filepath.Join(dir, "brim.yaml")
	require.NoError(t, os.WriteFile(config, []byte("data-dir: "+dir+"\n"), 0o600))
	got = runBrim(t, nil, "deadletter", "list", "--config", config, "--limit", "1")
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, "l-0")
	assert.NotContains(t, got.stdout, "l-1")
	assert.Contains(t, got.stderr, "2 more dead letters left out; --limit 0 prints all")
}

func TestDeadLetterListIsEmpty(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	got := runBrim(t, nil, "deadletter", "list", "--data-dir", dir)
	require.ErrorContains(t, got.err, "no such file or directory; give the data-dir of a daemon")
	assert.NoDirExists(t, dir)
	require.NoError(t, os.Mkdir(dir, 0o750))
	got = runBrim(t, nil, "deadletter", "list", "--data-dir", dir, "--messages", "--stream", "readings")
	require.ErrorContains(t, got.err, "--stream and --messages exclude each other")
	got = runBrim(t, nil, "deadletter", "list", "--data-dir", dir, "--output", "json")
	require.NoError(t, got.err)
	assert.Equal(t, "[]\n", got.stdout)
	got = runBrim(t, nil, "deadletter", "list", "--data-dir", dir)
	require.NoError(t, got.err)
	assert.Empty(t, got.stdout)
	assert.Contains(t, got.stderr, "contains no dead letters")
}

// keepingJournal keeps what ingest accepts, by key.
type keepingJournal struct {
	ingest.Journal
	mu    sync.Mutex
	taken map[string]telemetry.Value
}

func (j *keepingJournal) Append(_ context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if b.Reading(0).Fields[0].Value == telemetry.TextValue("poison") {
		return batch.Receipt{Ack: r.Want, Refused: []batch.Refused{{Refusal: telemetry.Refusal{Code: telemetry.StoreRefused, Message: "still bad"}}}}, nil
	}
	j.taken[r.Key] = b.Reading(0).Fields[0].Value
	return batch.Receipt{Ack: r.Want}, nil
}

func (j *keepingJournal) Repeat(context.Context, batch.Request) (batch.Receipt, error) {
	return batch.Receipt{}, nil
}

func TestReplayedLettersArriveExactly(t *testing.T) {
	t.Parallel()
	journal := &keepingJournal{taken: make(map[string]telemetry.Value)}
	handler, err := ingest.New(ingest.Config{
		Streams: []ingest.Stream{{Name: "a b", Storage: "memory"}}, DefaultStream: "a b", Acks: []telemetry.Ack{telemetry.Stored},
	}, journal)
	require.NoError(t, err)
	server := httptest.NewServer(handler.Handler())
	t.Cleanup(server.Close)

	dir := putLetters(t, "a b", telemetry.IntValue(9007199254740993), telemetry.FloatValue(3), telemetry.TextValue("poison"))
	putLetter(t, dir, queue.DeadLetter{ID: "lost", Stream: "gone", Reading: letterReading(telemetry.IntValue(1)), Reason: errors.New("poison")})

	got := runBrim(t, nil, "deadletter", "replay", "--data-dir", dir, "--url", server.URL, "--dry-run")
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, "l-0 pending\n")
	assert.Contains(t, got.stdout, "accepted 0, refused 0, refused again by MongoDB 0, not sent 4\n")
	assert.Empty(t, journal.taken)
	assert.Len(t, lettersIn(t, dir), 4)

	got = runBrim(t, nil, "deadletter", "replay", "--data-dir", dir, "--url", server.URL+"/", "--id", "l-1")
	require.NoError(t, got.err)
	assert.Equal(t, "l-1 accepted\naccepted 1, refused 0, refused again by MongoDB 0, not sent 0\n", got.stdout)

	got = runBrim(t, nil, "deadletter", "replay", "--data-dir", dir, "--url", server.URL, "--output", "json")
	require.NoError(t, got.err)
	var result letterReplayed
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &result))
	refusal := `stream_unknown: there is no stream "gone"; there are: a b`
	assert.Equal(t, letterReplayed{Accepted: 1, Refused: 1, RefusedAgain: 1, Letters: []letterResult{
		{ID: "l-0", Stream: "a b", Fate: letterAccepted},
		{ID: "l-2", Stream: "a b", Fate: letterAgain, Reason: "store_refused: still bad"},
		{ID: "lost", Stream: "gone", Fate: letterRefused, Reason: refusal},
	}}, result)
	assert.Equal(t, map[string]telemetry.Value{
		"a b\x00deadletter-l-0": telemetry.IntValue(9007199254740993), "a b\x00deadletter-l-1": telemetry.FloatValue(3),
	}, journal.taken)
	assert.Equal(t, map[string]string{"lost": refusal}, lettersIn(t, dir))
}

func TestReplayGoesOnAfterASensorThatTheTokenMayNotWrite(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") == "deadletter-l-0" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"accepted":0,"rejected":1,"errors":[{"index":0,"code":"sensor_forbidden","message":"not yours"}]}`)
		}
	}))
	t.Cleanup(server.Close)
	dir := putLetters(t, "readings", telemetry.IntValue(1), telemetry.IntValue(2))
	got := runBrim(t, nil, "deadletter", "replay", "--data-dir", dir, "--url", server.URL)
	require.NoError(t, got.err)
	assert.Equal(t, "l-0 refused: sensor_forbidden: not yours\nl-1 accepted\naccepted 1, refused 1, refused again by MongoDB 0, not sent 0\n", got.stdout)
	assert.Equal(t, map[string]string{"l-0": "sensor_forbidden: not yours"}, lettersIn(t, dir))
}

func TestUnansweredReplayKeepsTheRest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status       int
		answer, want string
	}{
		{503, `{"code":"journal_full","message":"full"}`, "does not accept letter l-1 now, send it again later: journal_full: full (HTTP 503)"},
		{403, `{"code":"scope_missing","message":"read only"}`, "does not accept letter l-1 now, send it again later: scope_missing: read only (HTTP 403)"},
		{401, `{"code":"token_missing","message":"who"}`, "give a token by BRIM_TOKEN or --token-file"},
		{404, "not found", "answered letter l-1 with 404 Not Found without saying why; is this its --http-addr?"},
	} {
		var keys []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			if len(keys) > 1 {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.answer)
			}
		}))
		dir := putLetters(t, "readings", telemetry.IntValue(1), telemetry.IntValue(2), telemetry.IntValue(3))
		got := runBrim(t, nil, "deadletter", "replay", "--data-dir", dir, "--url", server.URL)
		server.Close()
		require.ErrorContains(t, got.err, c.want)
		assert.Equal(t, exitFailed, got.code)
		assert.Equal(t, "l-0 accepted\nl-1 pending\nl-2 pending\naccepted 1, refused 0, refused again by MongoDB 0, not sent 2\n", got.stdout)
		assert.Equal(t, []string{"deadletter-l-0", "deadletter-l-1"}, keys)
		assert.Equal(t, map[string]string{"l-1": "poison", "l-2": "poison"}, lettersIn(t, dir))
	}
}

func TestReplayNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := putLetters(t, "readings", telemetry.IntValue(1))
	got := runBrim(t, nil, "deadletter", "replay", "--data-dir", dir, "--url", "localhost:8430")
	assert.Equal(t, exitUsage, got.code)
	assert.ErrorContains(t, got.err, "--url")
	got = runBrim(t, nil, "deadletter", "replay", "--data-dir", dir, "--id", "other")
	assert.Equal(t, exitUsage, got.code)
	assert.ErrorContains(t, got.err, `there is no letter "other"`)
	got = runBrim(t, nil, "deadletter", "resend")
	assert.Equal(t, exitUsage, got.code)

	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	got = runBrim(t, nil, "deadletter", "replay", "--data-dir", dir, "--url", server.URL)
	assert.Equal(t, exitFailed, got.code)
	assert.ErrorContains(t, got.err, "no daemon answers at "+server.URL)
	assert.Equal(t, map[string]string{"l-0": "poison"}, lettersIn(t, dir))
}
