package daemon

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestRepeatedSignalCountsOnce: timeout(1) signals both the process and
// its group.
func TestRepeatedSignalCountsOnce(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]struct {
		signal os.Signal
		after  time.Duration
		hard   bool
	}{
		"the same at once":    {syscall.SIGTERM, 0, false},
		"the same soon":       {syscall.SIGTERM, repeatWindow - time.Millisecond, false},
		"the same later":      {syscall.SIGTERM, repeatWindow, true},
		"another one at once": {syscall.SIGINT, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				signals, done := make(chan os.Signal), make(chan struct{})
				soft, hard := false, false
				go handleSignals(signals, done, func(os.Signal) { soft = true }, func(os.Signal) { hard = true })
				signals <- syscall.SIGTERM
				<-time.After(then.after) // in the bubble's time
				signals <- then.signal
				close(done)
				synctest.Wait()
				assert.True(t, soft)
				assert.Equal(t, then.hard, hard)
			})
		})
	}
}
