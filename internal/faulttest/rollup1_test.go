package faulttest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestROLLUP1 lets readings expire in each way in which a rollup could lose them or count them
// twice. Two daemons write, seal and update rollups. Each scenario has its own sensors, so that
// later readings do not repair losses. After each step, hourly summaries must match all
// acknowledged readings, and finally the stored rollups as well.
func TestROLLUP1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	proxy, uri := s.proxy()
	flags := append([]string{"--granularity", "10m", "--rollup", "1h", "--seal-after", "10m", "--retention", "87600h"}, largeParts...)
	r := &rollups{
		scene: s, proxy: proxy, writer: s.daemon(uri, flags...), sealer: s.daemon("", flags...),
		midnight: time.Now().UTC().Truncate(24 * time.Hour).Add(-24 * time.Hour), want: make(map[rolledHour]*rolledValues),
	}
	for range form(1, 4) {
		r.lateReadings()
		r.delayedSealer()
		for _, point := range rollupPoints {
			r.crashes(point)
		}
		r.partsOneByOne()
		r.replays()
		r.everythingAtOnce()
	}
	s.stopProducers()
	assert.Equal(t, r.sent, s.log.Acked(), "readings that were not acknowledged")
	r.compareStored()
	s.log.Forgive() // the expired ones
	s.finish("ROLLUP-1", r.kills+proxy.Counts().Faults())
}

// rollupPoints are the steps at which a daemon crashes while it updates rollups: between sealing
// and the rollup, and between the rollup and the mark that lets parts expire.
var rollupPoints = form(
	[]string{"update@readings.rollup.before", "update@readings.rollup.after"},
	[]string{"update@readings.rollup.before", "update@readings.rollup.after", "update@readings.after", "update@readings.before:2", "update@readings.after:2"},
)

const (
	rolledSensors = 2             // per scenario
	rolledSpan    = 2 * time.Hour // of their readings, around midnight: rollups for two days
	rolledWindow  = 10 * time.Minute
	fewReadings   = 36 // of a sensor; each window has some
	everything    = 1 << 30
)

// rollups is the scene of ROLLUP-1.
type rollups struct {
	*scene

	proxy          *faulttest.Proxy
	writer, sealer *daemon // both write and seal; the first one's MongoDB is behind the proxy
	midnight       time.Time
	want           map[rolledHour]*rolledValues
	group          int64 // number of the current scenario's first sensor
	sent, kills    int
}

// rolledHour identifies a step of a rollup.
type rolledHour struct {
	Sensor string
	Start  int64 // milliseconds since the epoch
}

// rolledValues are a rollup's values for an hour. All of these sums are exact.
type rolledValues struct {
	N      int64                  `bson:"n"`
	Fields map[string]rolledField `bson:"fields"`
}

type rolledField struct {
	N   int64   `bson:"n"`
	Min float64 `bson:"min"`
	Max float64 `bson:"max"`
	Sum float64 `bson:"sum"`
}

func (v *rolledValues) add(name string, value float64) {
	f, known := v.Fields[name]
	if !known {
		f.Min, f.Max = value, value
	}
	v.Fields[name] = rolledField{f.N + 1, min(f.Min, value), max(f.Max, value), f.Sum + value}
}

// sensors switches to the next scenario's sensors.
func (r *rollups) sensors() { r.group += 10 }

// readings are n readings per sensor of the scenario, spread over a span that begins this long
// after an hour before midnight.
func (r *rollups) readings(n int, from, span time.Duration) faulttest.ProducerConfig {
	return faulttest.ProducerConfig{
		Batch: 10, Keys: true, FirstSensor: r.group, Sensors: rolledSensors, Most: int64(n * rolledSensors),
		Start: r.midnight.Add(from - rolledSpan/2), Step: span / time.Duration(n*rolledSensors),
	}
}

// send starts a producer, which ends once all its readings are acknowledged.
func (r *rollups) send(d *daemon, cfg faulttest.ProducerConfig) *faulttest.Producers {
	cfg.Number = int64(100 * (len(r.producers) + 1))
	for i := range cfg.Most {
		at := cfg.Start.Add(time.Duration(i) * cfg.Step)
		hour := rolledHour{sensorName(cfg.FirstSensor + i%rolledSensors), at.Truncate(time.Hour).UnixMilli()}
		v := r.want[hour]
		if v == nil {
			v = &rolledValues{Fields: make(map[string]rolledField)}
			r.want[hour] = v
		}
		v.N++
		v.add("producer", float64(cfg.Number))
		v.add("number", float64(i))
		v.add("v", float64(i%1000)/8)
	}
	r.sent += int(cfg.Most)
	return r.produce(d, 1, cfg)
}

// write returns once a few readings are stored.
func (r *rollups) write(d *daemon, from, span time.Duration) {
	r.t.Helper()
	r.send(d, r.readings(fewReadings, from, span)).Wait()
	r.flush(d)
}

// lateReadings arrive in parts that are already counted, and that must not expire until the
// late readings are counted.
func (r *rollups) lateReadings() {
	r.sensors()
	r.write(r.writer, 0, rolledSpan)
	r.seal(r.sealer)
	r.write(r.writer, 0, rolledSpan)
	assert.Zero(r.t, r.expire(everything), "parts expired with readings that are not counted")
	r.sealAndCompare("late readings")
	r.allExpire("late readings")
}

// delayedSealer delays one daemon's rollup update until after late readings that it does not
// count, and that the other daemon has counted in between.
func (r *rollups) delayedSealer() {
	for _, way := range []struct {
		name            string
		exists, counted bool // whether the step exists before; whether late readings are counted when the write arrives
		holds           func(faulttest.Command) bool
	}{
		{"a new step comes late", false, true, writesRollups},
		{"an old step comes late", true, true, writesRollups},
		{"a mark comes late", false, false, marksParts},
	} {
		r.sensors()
		r.write(r.sealer, 0, rolledSpan)
		if way.exists {
			r.seal(r.sealer)
			r.write(r.sealer, 0, rolledSpan)
		}
		r.proxy.Set(faulttest.Faults{Decide: func(c faulttest.Command) faulttest.Fate {
			if way.holds(c) {
				return faulttest.Hold
			}
			return faulttest.Pass
		}})
		r.seal(r.writer)
		r.proxy.Set(faulttest.Faults{})
		assert.Positive(r.t, r.proxy.Holding(), "%s: nothing is held", way.name)
		r.write(r.sealer, 0, rolledSpan)
		if way.counted {
			r.seal(r.sealer)
		}
		r.release()
		r.expire(everything)
		r.sealAndCompare(way.name)
		r.allExpire(way.name)
	}
}

func writesRollups(c faulttest.Command) bool {
	return c.Body.Lookup(c.Name).StringValue() == "readings.rollup"
}

func marksParts(c faulttest.Command) bool {
	return len(c.Operations) > 0 && !c.Operations[0].Lookup("u", "$set", "sealed.rolled").IsZero()
}

// crashes makes a daemon crash while it updates rollups. Whatever may expire then expires at once.
func (r *rollups) crashes(point string) {
	r.sensors()
	r.write(r.writer, 0, rolledSpan)
	crashed := r.crashSealing(r.sealer, point)
	assert.Equal(r.t, 1, crashed, "no crash at %s", point)
	r.kills += crashed
	r.expire(everything)
	r.sealAndCompare("crash at " + point)
	r.allExpire("crash at " + point)
}

// partsOneByOne makes the parts of an hour expire one by one, while late readings start new
// parts in it.
func (r *rollups) partsOneByOne() {
	r.sensors()
	const half = time.Hour / 2
	for hour := time.Duration(0); hour < rolledSpan; hour += time.Hour {
		r.write(r.writer, hour, half)
	}
	r.seal(r.sealer)
	for late := half; late < 2*half; late += rolledWindow {
		assert.Equal(r.t, 3, r.expire(3), "parts expired")
		for hour := time.Duration(0); hour < rolledSpan; hour += time.Hour {
			r.write(r.writer, hour+late, rolledWindow)
		}
		r.compare("parts have expired, late readings are not counted")
		r.sealAndCompare("parts have expired, late readings are counted")
	}
	r.allExpire("parts one by one")
}

// replays kills a daemon that does not know what it has stored. Its readings, and the other
// daemon's in the same parts, are counted and expire. Then the daemon writes its readings again
// from its journal, and some updates arrive even later. It creates the parts, since one with other
// tags would need an answer. Its readings come in a single request: those after the first update of
// their part would also wait for an answer.
func (r *rollups) replays() {
	r.sensors()
	outcome := faulttest.Randomly(1, faulttest.CutAnswer, faulttest.CutAnswer, faulttest.Hold)
	r.proxy.Set(faulttest.Faults{Decide: func(c faulttest.Command) faulttest.Fate {
		if c.Name == "update" && c.Body.Lookup("update").StringValue() == "readings" {
			return outcome(c)
		}
		return faulttest.Pass
	}})
	all := r.readings(fewReadings, 0, rolledSpan)
	all.Batch = int(all.Most)
	r.send(r.writer, all).Wait()
	var parts, readings int
	stored := r.writer.await(func() bool {
		parts, readings = r.stored()
		return readings == fewReadings*rolledSensors
	})
	require.True(r.t, stored, "%d of %d readings are stored", readings, fewReadings*rolledSensors)
	r.write(r.sealer, 0, rolledSpan)
	r.writer.kill()
	r.kills++
	r.proxy.Set(faulttest.Faults{})
	r.sealAndCompare("before the replay")
	require.Equal(r.t, parts/2, r.expire(parts/2))
	r.compare("half of the parts have expired")
	r.writer.start().ready()
	r.flush(r.writer)
	again, _ := r.stored()
	require.Equal(r.t, parts, again, "the replay writes all parts again")
	r.sealAndCompare("after the replay")
	r.allExpire("the replay")
	if r.release() > 0 {
		r.sealAndCompare("after delayed updates")
		r.allExpire("delayed updates")
	}
}

// everythingAtOnce: both daemons seal while readings arrive in parts of the same hours that are
// already counted. Answers and updates are lost, and both daemons are killed.
func (r *rollups) everythingAtOnce() {
	r.sensors()
	r.proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.2, faulttest.CutAnswer, faulttest.Hold)})
	var producers []*faulttest.Producers
	for _, d := range []*daemon{r.writer, r.writer, r.sealer} {
		cfg := r.readings(form(200, 2000), 0, rolledSpan)
		cfg.Rate = form(200.0, 400)
		producers = append(producers, r.send(d, cfg))
	}
	for i := range form(2, 6) {
		var both sync.WaitGroup
		for _, d := range []*daemon{r.writer, r.sealer} {
			both.Go(func() {
				for range form(2, passes) {
					r.seal(d)
				}
			})
		}
		both.Wait()
		d := []*daemon{r.writer, r.sealer}[i%2]
		d.kill()
		d.start().ready()
		r.kills++
		r.release()
	}
	for _, p := range producers {
		p.Wait()
	}
	r.proxy.Set(faulttest.Faults{})
	r.release()
	r.flush(r.writer)
	r.sealAndCompare("everything at once")
	r.allExpire("everything at once")
}

// release delivers the requests that the proxy holds.
func (r *rollups) release() int { return r.proxy.Release(rand.New(rand.NewPCG(1, uint64(r.group)))) }

// sealAndCompare updates the rollups of all readings, and compares.
func (r *rollups) sealAndCompare(when string) {
	r.t.Helper()
	r.flush(r.sealer)
	r.seal(r.sealer)
	r.compare(when)
}

// allExpire makes all of the scenario's readings expire, and checks that the rollups have them.
func (r *rollups) allExpire(when string) {
	r.t.Helper()
	r.expire(everything)
	r.compare(when + ", all has expired")
}

// ofWay matches the documents of the scenario's sensors; of all sensors if there is no scenario.
func (r *rollups) ofWay() bson.D {
	if r.group == 0 {
		return bson.D{}
	}
	return bson.D{{Key: "sensorId", Value: bson.D{{Key: "$in", Value: bson.A{sensorName(r.group), sensorName(r.group + 1)}}}}}
}

func sensorName(number int64) string { return fmt.Sprintf("s-%d", number) }

// find decodes the scenario's documents that match a filter.
func (r *rollups) find(filter bson.D, into any) {
	r.t.Helper()
	cursor, err := r.db.Collection("readings").Find(context.Background(), append(r.ofWay(), filter...))
	require.NoError(r.t, err)
	require.NoError(r.t, cursor.All(context.Background(), into))
}

// stored returns the number of the scenario's parts in MongoDB, and of their readings.
func (r *rollups) stored() (parts, readings int) {
	r.t.Helper()
	var docs []struct{ Count int }
	r.find(bson.D{}, &docs)
	for _, doc := range docs {
		readings += doc.Count
	}
	return len(docs), readings
}

// expire removes at most this many expirable parts, in random order.
func (r *rollups) expire(most int) (removed int) {
	r.t.Helper()
	var indexes []struct {
		Partial bson.D `bson:"partialFilterExpression"`
	}
	cursor, err := r.db.Collection("readings").Indexes().List(context.Background())
	require.NoError(r.t, err)
	require.NoError(r.t, cursor.All(context.Background(), &indexes))
	require.Len(r.t, indexes, 2, "_id and expiry")
	var docs []struct {
		ID bson.RawValue `bson:"_id"`
	}
	r.find(indexes[1].Partial, &docs)
	rand.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
	for _, doc := range docs[:min(most, len(docs))] {
		one, err := r.db.Collection("readings").DeleteOne(context.Background(), append(bson.D{{Key: "_id", Value: doc.ID}}, indexes[1].Partial...))
		require.NoError(r.t, err)
		removed += int(one.DeletedCount)
	}
	return removed
}

// compare checks the scenario's hourly summaries.
func (r *rollups) compare(when string) {
	r.t.Helper()
	type field struct {
		N              int64
		Min, Max, Mean float64
	}
	type step struct {
		Count  int64
		Fields map[string]field
	}
	for hour, of := range r.want {
		if hour.Sensor != sensorName(r.group) && hour.Sensor != sensorName(r.group+1) {
			continue
		}
		var answer struct{ Summary []step }
		url := fmt.Sprintf("%s/v1/sensors/%s/summary?every=1h&from=%d&to=%d", r.sealer.HTTP, hour.Sensor, hour.Start, hour.Start+time.Hour.Milliseconds())
		code, body := r.get(url)
		require.Equal(r.t, http.StatusOK, code, string(body))
		require.NoError(r.t, json.Unmarshal(body, &answer))
		want := step{of.N, make(map[string]field)}
		for name, f := range of.Fields {
			want.Fields[name] = field{f.N, f.Min, f.Max, f.Sum / float64(f.N)}
		}
		require.Equal(r.t, []step{want}, answer.Summary, "the hour of %s from %s is wrong: %s", hour.Sensor, time.UnixMilli(hour.Start).UTC().Format(time.TimeOnly), when)
	}
}

// compareStored checks all stored rollups, once all readings have expired.
func (r *rollups) compareStored() {
	r.t.Helper()
	r.group = 0
	parts, _ := r.stored()
	assert.Zero(r.t, parts, "parts that do not expire")
	var days []struct {
		ID struct {
			S string
			D time.Time
		} `bson:"_id"`
		Steps map[string]rolledValues
	}
	cursor, err := r.db.Collection("readings.rollup").Find(context.Background(), bson.D{})
	require.NoError(r.t, err)
	require.NoError(r.t, cursor.All(context.Background(), &days))
	have := make(map[rolledHour]*rolledValues)
	for _, day := range days {
		for offset, step := range day.Steps {
			seconds, err := time.ParseDuration(offset + "s")
			require.NoError(r.t, err)
			have[rolledHour{day.ID.S, day.ID.D.Add(seconds).UnixMilli()}] = &step
		}
	}
	require.Equal(r.t, r.want, have, "a stored hour is wrong")
}
