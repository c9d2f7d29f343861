package simulate

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// drop drops a stream's collection, as an operator may. What was sent before may be lost.
func (w *world) drop(stream string) {
	w.tell(server, server, "another program drops %s", stream)
	w.mongo.Run(database, bson.D{{Key: "drop", Value: stream}})
	w.ledger.logs[stream].Forgive()
	for _, one := range w.ledger.readings {
		one.forgiven = one.forgiven || one.stream == stream
	}
}

// refuseSensor makes MongoDB refuse the bucket documents of one sensor, or of none.
func (w *world) refuseSensor(sensor string) {
	validator := bson.D{}
	if sensor != "" {
		validator = bson.D{{Key: "sensorId", Value: bson.D{{Key: "$ne", Value: sensor}}}}
	}
	w.refused = sensor
	w.tell(server, server, "a validator refuses sensor %q", sensor)
	w.mongo.Run(database, bson.D{{Key: "collMod", Value: bucketStream}, {Key: "validator", Value: validator}})
}

// copyFolder gives a second host a copy of the first one's disk, as an operator might by
// mistake. Only one of the two may store what the copy holds.
func (w *world) copyFolder() {
	of := w.hosts[0]
	w.tell(daemonA, daemonB, "the journal's folder of A is copied to B")
	w.addHost("B", of.files.Clone())
}

// gathers checks how long readings wait: new ones of a sensor must not delay the first.
func (w *world) gathers(h *host) {
	p := &w.moods.settings.policy
	within := min(p.Max, h.granularity) + 4*p.Interval + 5*time.Second
	if p.Max > 5*time.Second || w.moods.filler > 0 {
		return
	}
	var first *reading
	for until := time.Now().Add(within); time.Now().Before(until) && w.violated == ""; {
		now := time.Now().Truncate(time.Millisecond)
		one := w.ledger.add(bucketStream, "gathering", now, false, h)
		one.open++
		if first == nil {
			first = one
		}
		r := &request{host: h, stream: bucketStream, settle: w.posted, readings: []*reading{one}, body: one.line(0)}
		w.sendPost(r, fmt.Sprintf("gathering@%d", one.mark.Number))
		w.pass(400 * time.Millisecond)
	}
	w.mustBeStored(fmt.Sprintf("%v after it was acknowledged, with a flush-max of %v", within, p.Max), []*reading{first})
}

// others checks that readings of a sensor whose documents MongoDB refuses do not hold up
// those of other sensors, even if they fill the memory of their lane.
func (w *world) others(h *host) {
	at := time.Now().Truncate(time.Millisecond)
	send := func(sensor, ack string, n int) *request {
		r := &request{host: h, stream: bucketStream, settle: w.posted, ack: ack}
		for range n {
			one := w.ledger.add(bucketStream, sensor, at, false, h)
			one.open++
			r.readings = append(r.readings, one)
			r.body += one.line(20_000)
		}
		w.sendPost(r, fmt.Sprintf("%s ×%d", sensor, n))
		return r
	}
	for range 7 {
		send(w.refused, "", 5)
		w.pass(200 * time.Millisecond)
	}
	w.pass(3 * time.Second)
	sensor := "beside"
	r := send(sensor, "stored", 1)
	for range 80 {
		w.pass(100 * time.Millisecond)
	}
	if !r.done.Load() || r.code == 202 {
		w.violate("request %d, for another sensor than the one that MongoDB refuses, is not stored within 8s", r.number)
	}
}

// pass lets time pass while everything is carried out.
func (w *world) pass(d time.Duration) {
	for w.rest(); len(w.waiting())+len(w.mongo.Waiting()) > 0; w.rest() {
		w.carryOutAll()
		time.Sleep(time.Millisecond) //nolint:forbidigo // fake time: an answer takes some
	}
	time.Sleep(d) //nolint:forbidigo // fake time
}

// addHost adds a place for a daemon with a disk.
func (w *world) addHost(name string, files *faulttest.Files) {
	h := &host{
		name: name, address: name + ":8430", column: daemonA + column(len(w.hosts)), letters: &letters{},
		granularity: w.moods.settings.granularity,
	}
	h.adopt(w, files)
	w.hosts = append(w.hosts, h)
}
