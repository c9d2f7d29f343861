package daemon

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/daemon/console"
)

// A recordingSupervisor records its notifications.
type recordingSupervisor struct {
	*supervisor
	mu   sync.Mutex
	said []string
	err  error
}

func newToldSupervisor(parts func() []console.Part) *recordingSupervisor {
	s := &recordingSupervisor{}
	s.supervisor = &supervisor{
		parts: parts, config: func() ConfigStatus { return ConfigStatus{Outcome: reloadApplied} }, log: slog.New(slog.DiscardHandler), every: beatEvery, watchdog: true,
		notify: func(state string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.said = append(s.said, state)
			return s.err
		},
	}
	return s
}

// TestHungDaemonSendsNoBeats: the watchdog detects parts that never respond.
func TestHungDaemonSendsNoBeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		beats := 0
		s := newToldSupervisor(func() []console.Part {
			if beats++; beats > 3 {
				<-hang
			}
			return nil
		})
		ended := s.start()
		<-time.After(time.Hour) // in the bubble's time
		synctest.Wait()
		s.mu.Lock()
		assert.Len(t, s.said, 3)
		s.mu.Unlock()
		close(hang)
		ended()
	})
}

func TestBeatInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newToldSupervisor(func() []console.Part { return nil })
		s.err = errors.New("not reachable") // must not end anything
		ended := s.start()
		<-time.After(10*beatEvery + beatEvery/2)
		ended()
		assert.Len(t, s.said, 11)
	})
}

func TestStatusLineMatchesReadiness(t *testing.T) {
	t.Parallel()
	for want, parts := range map[string][]console.Part{
		"accepts readings and stores them":                                   {{Name: "daemon", Ready: true}, {Name: "mongodb", Ready: true, Optional: true}},
		"accepts readings; not ready behind the journal: mongodb: away":      {{Name: "daemon", Ready: true}, {Name: "mongodb", Reason: "away", Optional: true}},
		"accepts no readings; daemon: the daemon is stopping; journal: full": {{Name: "daemon", Reason: "the daemon is stopping"}, {Name: "journal", Reason: "full"}, {Name: "mongodb", Reason: "away", Optional: true}},
	} {
		assert.Equal(t, want, summary(parts))
	}
	s := newToldSupervisor(func() []console.Part { return []console.Part{{Name: "daemon", Reason: "first\nREADY=1"}} })
	assert.NotContains(t, s.status(), "\n", "a reason of several lines is one, and assigns nothing")
}

func TestNoSupervisor(t *testing.T) {
	t.Parallel()
	s := newSupervisor(&daemon{}, []string{"PATH=/bin"})
	require.Nil(t, s)
	s.reportReady()
	s.reportReloading()()
	s.reportStopping(time.Second)
	s.start()()
}
