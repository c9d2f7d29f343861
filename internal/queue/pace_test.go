package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// play lets a lane write so long of each 100 ms, for a minute, and returns when
// the last write ended.
func play(p *pace, write time.Duration) time.Time {
	begin := p.last.Add(100*time.Millisecond - write)
	for range 600 {
		p.wrote(begin, begin.Add(write))
		begin = begin.Add(100 * time.Millisecond)
	}
	return p.last
}

func TestALaneGathersLongerWhileWritingTakesLong(t *testing.T) {
	t.Parallel()
	p := newPace(time.Second)
	play(&p, 5*time.Millisecond)
	assert.Equal(t, time.Second, p.interval, "with time to spare")
	play(&p, 40*time.Millisecond)
	assert.Equal(t, 4*time.Second, p.interval, "it stops at four times the flush interval")
	play(&p, 20*time.Millisecond)
	assert.Equal(t, 4*time.Second, p.interval, "between the two bounds nothing changes")
	play(&p, 5*time.Millisecond)
	assert.Equal(t, time.Second, p.interval, "and it comes back")
}

func TestOneLongWriteChangesLittle(t *testing.T) {
	t.Parallel()
	p := newPace(time.Second)
	now := time.Now()
	p.wrote(now, now.Add(10*time.Second))
	assert.Equal(t, 1500*time.Millisecond, p.interval)
	play(&p, time.Millisecond)
	assert.Equal(t, time.Second, p.interval)
}

func TestALongFlushIntervalStaysAsItIs(t *testing.T) {
	t.Parallel()
	for interval, most := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 400 * time.Millisecond, 2 * time.Second: 4 * time.Second, 30 * time.Second: 30 * time.Second,
	} {
		p := newPace(interval)
		play(&p, 40*time.Millisecond)
		play(&p, 40*time.Millisecond)
		assert.Equal(t, most, p.interval)
	}
}

func TestALongPauseEndsALongInterval(t *testing.T) {
	t.Parallel()
	p := newPace(time.Second)
	last := play(&p, 40*time.Millisecond)
	p.rest(last.Add(3 * time.Second))
	assert.Equal(t, 4*time.Second, p.interval)
	p.rest(last.Add(5 * time.Second))
	assert.Equal(t, time.Second, p.interval)
}
