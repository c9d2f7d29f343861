package read

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Bounds of how many readings one page holds.
const (
	DefaultLimit = 1000
	MaxLimit     = 100_000
)

// maxPageBytes ends a page of JSON early; the rest comes with the next. With eight
// queries at once that is at most 64 MiB. NDJSON is not held in memory.
const maxPageBytes = 8 << 20

// readings answers GET …/readings.
func (q *question) readings(ctx context.Context) error {
	unstored, err := q.waitingReadings(ctx)
	if err != nil {
		return err
	}
	ask, skip := q.params.query, 0
	if after := q.params.after; after.set {
		if after.ms >= ask.From {
			ask.From, skip = after.ms, after.seen
		}
		ask.To = max(ask.To, ask.From)
	}
	limit := ask.Limit
	ask.Limit = limit + skip + 1
	ask.Unstored = unstored
	out := q.newPage()
	n, last, next := 0, q.params.after, cursor{}
	for r, err := range q.source.Readings(ctx, ask) {
		if err != nil {
			return err
		}
		ms := r.Time.UnixMilli()
		if skip > 0 && ms == q.params.after.ms {
			skip--
			continue
		}
		if n == limit || out.full() {
			next = cut(out, last, ms)
			break
		}
		if n > 0 && ms != last.ms {
			out.hold()
		}
		last = last.past(ms)
		if err := out.add(&r); err != nil {
			return err
		}
		n++
	}
	return out.end(next.String())
}

// summary answers GET …/summary.
func (q *question) summary(ctx context.Context) error {
	unstored, err := q.waitingReadings(ctx)
	if err != nil {
		return err
	}
	ask := telemetry.SummaryQuery{Query: q.params.query, Every: q.params.every}
	ask.Unstored = unstored
	out, steps := q.newWriter(`{"summary":[`), 0
	for s, err := range q.source.Summary(ctx, ask) {
		if err != nil {
			return err
		}
		if steps++; steps > MaxSteps {
			return telemetry.Errorf(telemetry.Invalid, telemetry.CodeTooCostly, "the summary has more than %d steps", MaxSteps)
		}
		out.next()
		out.body = appendSummary(out.body, s)
		if out.full() {
			return telemetry.Errorf(telemetry.Invalid, telemetry.CodeTooCostly,
				"the summary has more than %d MiB, the limit for JSON; ask for lines, with Accept: application/x-ndjson, or for fewer steps", maxPageBytes>>20)
		}
		if err := out.flush(); err != nil {
			return err
		}
	}
	return out.end("")
}

// latest answers GET …/latest.
func (q *question) latest(ctx context.Context) error {
	sensor := q.params.query.Sensor
	r, found, err := q.Session.latest(ctx, sensor)
	q.showMissing()
	if err != nil {
		return err
	}
	if !found {
		return telemetry.Errorf(telemetry.NotFound, "sensor_unknown", "stream %s has no readings of sensor %s", q.stream, telemetry.Quote([]byte(sensor)))
	}
	q.w.Header().Set("Content-Type", typeJSON)
	_, err = q.w.Write(append(r.AppendJSON(nil), '\n'))
	return err
}

// newest returns the newest of the readings, the last one of those.
func newest(unstored []telemetry.Unstored) []telemetry.Unstored {
	at := 0
	for i := range unstored {
		if !unstored[i].Reading.Time.Before(unstored[at].Reading.Time) {
			at = i
		}
	}
	if len(unstored) == 0 {
		return nil
	}
	return unstored[at : at+1]
}

// delete answers DELETE /v1/sensors/{sensorId}. Readings that were acknowledged
// before, here and by other daemons, are stored first, or they would be stored after the
// deletion.
func (q *question) delete(ctx context.Context) error {
	sensor := q.params.query.Sensor
	others := q.askOthers(ctx, http.MethodDelete, deleteTarget(q.stream, sensor))
	err := q.flushSensor(ctx)
	failed := others(func([]byte) error { return nil })
	if err != nil {
		return err
	}
	if len(failed) > 0 {
		return telemetry.Errorf(telemetry.Unavailable, "not_flushed", "%s could not be asked to store the sensor's waiting readings, which would reappear later; "+
			"nothing was deleted; repeat the request once the daemon answers or has ended", strings.Join(failed, ", "))
	}
	n, err := q.source.Delete(ctx, sensor)
	if telemetry.KindOf(err) == telemetry.Forbidden {
		q.reader.cfg.Logger.Warn("a sensor may not be deleted", "stream", q.stream, "sensor", sensor, "by", q.by(), "err", err)
		return err
	}
	var known *telemetry.Error
	if errors.As(err, &known) && known.Kind == telemetry.Unavailable { // nothing was deleted
		return err
	}
	if err != nil {
		q.reader.cfg.Logger.Warn("delete a sensor", "stream", q.stream, "sensor", sensor, "by", q.by(), "err", err)
		return &telemetry.Error{
			Kind: telemetry.UnknownOutcome, Code: "outcome_unknown", Err: err,
			Message: "it is not known whether all readings of the sensor were deleted; repeat the request, which is harmless",
		}
	}
	q.reader.cfg.Logger.Info("deleted a sensor", "stream", q.stream, "sensor", sensor, "readings", n, "by", q.by())
	return q.writeDeleted(n)
}

func (q *question) writeDeleted(n int64) error {
	q.w.Header().Set("Content-Type", typeJSON)
	_, err := q.w.Write([]byte(`{"deleted":` + strconv.FormatInt(n, 10) + "}\n"))
	return err
}

// flushSensor stores the sensor's readings that were acknowledged before.
func (q *question) flushSensor(ctx context.Context) error {
	err := q.stored.FlushSensor(ctx, q.stream, q.params.query.Sensor)
	if err == nil {
		return nil
	}
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "not_flushed", Err: err,
		Message: "the sensor's acknowledged readings could not be stored in time, and would reappear later; nothing was deleted; repeat the request once GET /status shows no backlog",
	}
}

// MaxSensors is how many sensors one page lists at most.
const MaxSensors = 10_000

// sensors answers GET /v1/sensors.
func (q *question) sensors(ctx context.Context) error {
	ask := q.params.list
	limit := ask.Limit
	ask.Limit++
	out := q.newWriter(`{"sensors":[`)
	next, last := "", ""
	if narrow(q.who, &ask) {
		pending, err := q.pendingSensors(ctx, ask)
		if q.showMissing(); err != nil {
			return err
		}
		n := 0
		for s, err := range withPending(q.storedSensors(ctx, ask), pending) {
			if err != nil {
				return err
			}
			if n == limit || out.full() {
				next = last
				break
			}
			n, last = n+1, s.Sensor
			out.next()
			out.body = appendSensor(out.body, s)
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
	return out.end(next)
}

// withPending merges two lists of sensors that are in the order of their ids.
func withPending(stored iter.Seq2[telemetry.SensorSeen, error], pending []telemetry.SensorSeen) iter.Seq2[telemetry.SensorSeen, error] {
	return func(yield func(telemetry.SensorSeen, error) bool) {
		for s, err := range stored {
			if err != nil {
				yield(s, err)
				return
			}
			for len(pending) > 0 && pending[0].Sensor < s.Sensor {
				if !yield(pending[0], nil) {
					return
				}
				pending = pending[1:]
			}
			if len(pending) > 0 && pending[0].Sensor == s.Sensor {
				s.Newest = max(s.Newest, pending[0].Newest)
				pending = pending[1:]
			}
			if !yield(s, nil) {
				return
			}
		}
		for _, s := range pending {
			if !yield(s, nil) {
				return
			}
		}
	}
}

// narrow restricts the query to the sensors of the identity; false if none of those
// asked for belong to it.
func narrow(id *access.Identity, ask *telemetry.SensorQuery) bool {
	own := id.Prefix()
	switch {
	case strings.HasPrefix(ask.Prefix, own):
	case strings.HasPrefix(own, ask.Prefix):
		ask.Prefix = own
	default:
		return false
	}
	return true
}

// by names who asks, for the log.
func (q *question) by() string {
	if name := access.From(q.r.Context()).Name; name != "" {
		return name
	}
	return "anyone"
}
