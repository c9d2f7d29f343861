package mongod

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProgressOnATerminalIsABarAndElsewhereLines(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			p := &progress{out: &out, live: live}
			began := time.Now()
			done := func() int64 { return time.Since(began).Milliseconds() * 1000 }
			broken := errors.New("broken")
			err := p.during(func() error {
				<-time.After(25 * time.Second)
				return broken
			}, done, 20_000_000)
			require.ErrorIs(t, err, broken)
			if live {
				assert.Contains(t, out.String(), "\r  [===============               ]  50%  10.0 MB of 20.0 MB ")
				assert.True(t, strings.HasSuffix(out.String(), "] 100%  20.0 MB of 20.0 MB \n"), out.String())
				return
			}
			assert.Equal(t, "downloaded 10.0 MB of 20.0 MB\ndownloaded 20.0 MB of 20.0 MB\n", out.String())
		})
	}
}

func TestProgressToABufferIsNotLive(t *testing.T) {
	t.Parallel()
	require.False(t, newProgress(&strings.Builder{}).live)
}
