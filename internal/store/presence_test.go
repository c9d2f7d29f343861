package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPresenceEndsWhenMongoDBStaysAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPresence()
		defer p.close()
		p.set(true)
		first := p.current()
		p.set(false)
		<-time.After(goneAfter / 2) // of the bubble's clock
		p.set(true)
		<-time.After(2 * goneAfter)
		assert.NoError(t, first.Err(), "it was back in time")

		p.set(false)
		began := time.Now()
		<-first.Done()
		assert.Equal(t, goneAfter, time.Since(began))
		assert.Error(t, p.current().Err())
		p.set(true)
		assert.NoError(t, p.current().Err())
	})
}
