package read

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestInterruptedQueryMayBeRepeated: package store tests which codes count.
func TestInterruptedQueryMayBeRepeated(t *testing.T) {
	t.Parallel()
	failing := func(err error) *Reader { return newReader(t, fakeSource{err: fmt.Errorf("find: %w", err)}) }
	for code, err := range map[string]error{
		"mongodb_away":      mongo.CommandError{Code: 10107, Name: "NotWritablePrimary", Message: "secret"},
		"query_interrupted": mongo.CommandError{Code: 43, Name: "CursorNotFound", Message: "secret"},
	} {
		got := get(failing(err), "/v1/sensors/a/readings").body
		assert.Contains(t, got, fmt.Sprint(telemetry.Unavailable, " ", code))
	}
	assert.Contains(t, get(failing(mongo.CommandError{Code: 13, Name: "Unauthorized"}), "/v1/sensors/a/readings").body, fmt.Sprint(telemetry.KindOf(errors.New("other"))))
}

// TestLostDatabaseFreesTheSlots: queries that wait for it, and those that wait
// for a slot, fail at once.
func TestLostDatabaseFreesTheSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside := make(chan struct{})
		up, goAway := context.WithCancel(t.Context())
		var away error
		untilItLeaves := func(ctx context.Context) {
			select {
			case inside <- struct{}{}:
			case <-ctx.Done(): // the slot was free before the second query noticed
			}
			<-ctx.Done()
		}
		r := newReader(t, fakeSource{asked: untilItLeaves}, func(c *Config, s *Stored) {
			c.MaxQueries = 1
			s.Available = func(string) error { return away }
			s.Up = func(string) context.Context { return up }
		})
		answers := make(chan string, 2)
		begin := time.Now()
		ask := func() { answers <- get(r, "/v1/sensors/a/readings").body }
		go ask()
		<-inside
		go ask()
		synctest.Wait()
		away = errors.New("no server")
		goAway()
		for range 2 {
			assert.Contains(t, <-answers, "mongodb_away")
		}
		assert.Zero(t, time.Since(begin))
		assert.Equal(t, http.StatusTeapot, get(r, "/v1/sensors/a/readings").status)
	})
}
