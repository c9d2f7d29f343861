package simulate

import (
	"slices"
	"strings"
	"testing/synctest"
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
	w.hosts[1].rotten = of.rotten
}

// removeFolder removes the folder of a journal that is in use, as an operator may. From a
// second later on, nothing more may be accepted.
func (w *world) removeFolder() {
	h := w.hosts[0]
	if h.process == nil || !h.process.serving.Load() {
		return
	}
	w.tell(h.column, disk, "the journal's folder of %s is removed", h.name)
	h.files.RemoveAll()
	h.failed = true
	time.Sleep(1100 * time.Millisecond) //nolint:forbidigo // fake time
	synctest.Wait()
	for _, stream := range streamNames {
		w.ledger.logs[stream].Forgive()
	}
	for _, one := range w.ledger.readings {
		one.forgiven = true
	}
	w.keyed = slices.DeleteFunc(w.keyed, func(r *request) bool { return r.host == h })
}

// maxDocumentOfPoison is how large a document of MongoDB may be in runs with poison.
const maxDocumentOfPoison = 64 << 10

// A rotten segment has a wrong bit.
type rotten struct {
	name    string
	content []byte // as it was written
}

// rots flips a bit of a complete segment, perhaps. The next process must refuse to start,
// unless everything in the segment is stored.
func (w *world) rots(h *host) {
	if !w.moods.rot || w.healing || h.rotten != nil && h.files.Bytes(h.rotten.name) != nil {
		return
	}
	segments := slices.DeleteFunc(h.files.Names(), func(name string) bool { return !strings.HasSuffix(name, ".journal") })
	if len(segments) < 2 {
		return
	}
	name := choose(w, segments[:len(segments)-1])
	h.rotten = &rotten{name, h.files.Bytes(name)}
	offset := w.intN(len(h.rotten.content))
	w.tell(h.column, disk, "a bit of %s flips, at %d", name, offset)
	h.files.Flip(name, int64(offset), uint(w.intN(8)))
}

// restore replaces a rotten segment by a copy, as the refusal of a start advises.
func (w *world) restore(h *host) {
	w.tell(h.column, disk, "%s is restored", h.rotten.name)
	h.files.SetBytes(h.rotten.name, h.rotten.content)
	h.rotten = nil
}

// isLocked reports whether a command changes a document that another program's transaction
// has locked.
func (w *world) isLocked(c *Command) bool {
	of := func(filter bson.RawValue) bool {
		id, ok := filter.DocumentOK()
		if !ok {
			return false
		}
		sensor, ok := id.Lookup("_id", "s").StringValueOK()
		_, whole := id.Lookup("_id", "p").AsInt64OK() // or it matches no document
		return ok && whole && sensor == w.locked
	}
	return w.locked != "" && (of(c.body.Lookup("query")) || slices.ContainsFunc(c.batch("updates"), func(u bson.Raw) bool { return of(u.Lookup("q")) }))
}

// stands checks that a collection, if there is one, is as the daemons make it.
func (w *world) stands(stream string) {
	kind, options := w.mongo.Collection(database, stream)
	if kind == "" {
		return
	}
	_, err := options.LookupErr("storageEngine")
	if want := map[string]string{bucketStream: "collection", seriesStream: "timeseries"}[stream]; kind != want && !w.moods.restore || kind == "collection" && err != nil {
		w.violate("%s is a collection of the kind %q with the options %v, and was not made by a daemon", stream, kind, options)
	}
}

// pass lets time pass after everything is carried out; if there is always more to do, after
// some of it. Commands that are sent while it passes wait for its end.
func (w *world) pass(d time.Duration) {
	until := time.Now().Add(50 * time.Millisecond)
	for w.rest(); time.Now().Before(until) && len(w.waiting())+len(slices.DeleteFunc(w.mongo.Waiting(), func(c *Command) bool { return w.isLocked(c) || w.holds(c) })) > 0; w.rest() {
		w.carryOutAll()
		time.Sleep(time.Millisecond) //nolint:forbidigo // fake time: an answer takes some
	}
	time.Sleep(d) //nolint:forbidigo // fake time
}

// serve lets time pass, and carries out commands all the while, unless it is done before.
func (w *world) serve(d time.Duration, done func() bool) {
	for until := time.Now().Add(d); !done() && time.Now().Before(until); {
		w.pass(100 * time.Millisecond)
	}
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
