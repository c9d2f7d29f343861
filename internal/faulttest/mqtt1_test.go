package faulttest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/brimtest/mosquitto"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// brokerForgets is the period that mosquitto may lose when killed: it writes its
// sessions to disk every second or two.
const brokerForgets = 3 * time.Second

// TestMQTT1 kills the daemon and its MQTT broker in turn, under load with QoS 1 and 2.
// Messages that the broker acknowledged to a publisher are read back, each once, except those
// shortly before the broker was killed, which it may have lost itself.
func TestMQTT1(t *testing.T) {
	t.Parallel()
	began := time.Now()
	broker := mosquitto.Start(t, "autosave_interval 1")
	s := newScene(t)
	s.shared()
	d := s.daemon("", "--mqtt-url", broker.URL(), "--mqtt-topic", "plant/{sensorId}", "--mqtt-qos", "2", "--duplicates", "drop-identical", "--flush-interval", "50ms")
	subscribed := func() {
		t.Helper()
		require.True(t, d.await(func() bool { return d.metric("brim_mqtt_connected") == 1 }), d.lastWords())
	}
	subscribed()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var publishers []*mqttPublisher
	var publishing sync.WaitGroup
	for i := range 6 {
		p := &mqttPublisher{broker: broker, sensor: fmt.Sprintf("m-%d", i), qos: 1 + i%2, start: began.Add(-time.Hour).UnixMilli(), acked: make(map[int]time.Time)}
		publishers = append(publishers, p)
		publishing.Go(func() { p.run(ctx) })
	}
	var killed []time.Time // the broker
	faults := 0
	for end := began.Add(form(5*time.Second, 10*time.Minute)); time.Now().Before(end) || len(killed) == 0; {
		wait(form(time.Second, 3*time.Second))
		d.kill()
		for range 3 { // with received messages that are not journaled yet
			d.Crash = fmt.Sprintf("write.before:%d", 10+rand.IntN(form(50, 500)))
			d.start()
			select {
			case <-d.exited:
			case <-time.After(patience):
				require.FailNow(t, "the daemon does not reach "+d.Crash, d.lastWords())
			}
			faults++
		}
		d.Crash = ""
		d.start().ready()
		subscribed()
		faults++
		wait(brokerForgets + time.Second) // losses by the daemon are not excused
		killed = append(killed, time.Now())
		broker.Kill()
		broker.Restart()
		faults++
		subscribed()
	}
	wait(time.Second)
	cancel()
	publishing.Wait()
	waiting := func() bool { return d.metric("brim_mqtt_unacknowledged") == 0 }
	require.True(t, d.await(waiting))

	excused := func(at time.Time) bool {
		for _, k := range killed {
			if at.After(k.Add(-brokerForgets)) && at.Before(k.Add(time.Second)) {
				return true
			}
		}
		return false
	}
	row := faulttest.Row{Test: "MQTT-1", Faults: faults}
	forgotten := 0
	for _, p := range publishers {
		var seen map[int]int
		lost := func() (all []int) {
			seen = p.stored(t, d)
			for n, at := range p.acked {
				if seen[n] == 0 && !excused(at) {
					all = append(all, n)
				}
			}
			return all
		}
		d.await(func() bool { return len(lost()) == 0 }) // the broker may still deliver them
		missing := lost()
		assert.Empty(t, missing, "acknowledged messages of %s, and not stored", p.sensor)
		row.Acked += len(p.acked)
		row.Lost += len(missing)
		for n, times := range seen {
			if times > 1 {
				row.Twice++
			}
			if n >= p.next {
				row.Bad++
			}
		}
		for n := range p.acked {
			if seen[n] == 0 {
				forgotten++
			}
		}
	}
	assert.Zero(t, row.Twice, "messages that are read twice")
	assert.Zero(t, row.Bad, "messages that nobody sent")
	assert.Positive(t, row.Acked)
	t.Logf("%d faults, %d messages acknowledged, %d lost, %d twice, %d forgotten by the broker", faults, row.Acked, row.Lost, row.Twice, forgotten-row.Lost)
	row.Seconds = time.Since(began).Seconds()
	row.Log(t)
}

// A mqttPublisher publishes numbers, one at a time, under a sensor's topic.
type mqttPublisher struct {
	broker *mosquitto.Broker
	sensor string
	qos    int
	start  int64 // of the timestamps

	next  int               // number
	acked map[int]time.Time // when the broker acknowledged it
}

// run reconnects when the broker is gone, and resends unacknowledged messages.
func (p *mqttPublisher) run(ctx context.Context) {
	defer func() { p.next++ }() // unacknowledged ones may have arrived
	for ctx.Err() == nil {
		connection, err := p.broker.Publisher(ctx, p.sensor)
		if err != nil {
			wait(50 * time.Millisecond)
			continue
		}
		for ctx.Err() == nil {
			n := p.next
			payload := fmt.Sprintf(`{"ts":%d,"fields":{"n":%d}}`, p.start+int64(n)*20, n)
			if err := connection.Publish(ctx, "plant/"+p.sensor, payload, p.qos); err != nil {
				break
			}
			p.acked[n] = time.Now()
			p.next++
			wait(4 * time.Millisecond)
		}
		connection.Close()
	}
}

// stored returns how often each number is stored.
func (p *mqttPublisher) stored(t *testing.T, d *daemon) map[int]int {
	t.Helper()
	var all []telemetry.Reading
	require.True(t, d.await(func() (answered bool) {
		var err error
		all, err = brimtest.Readings(d.HTTP, "", p.sensor)
		return err == nil
	}), "no answer to a query of %s", p.sensor)
	seen := make(map[int]int)
	for _, r := range all {
		seen[int(r.Fields[0].Value.Int())]++
	}
	return seen
}
