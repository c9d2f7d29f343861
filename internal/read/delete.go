package read

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Sensors are deleted in this order. Readings that were acknowledged before, here and by
// other daemons, are stored first, or they would be stored after the deletion. Then the
// sensors leave the catalog, and all daemons forget that they were in it, so that a
// sensor that sends again enters again. The readings are deleted last:
//
//	store what waits ─▶ remove from the catalog ─▶ forget ─▶ delete readings

// delete answers DELETE /v1/sensors/{sensorId}.
func (q *question) delete(ctx context.Context) error {
	sensor := q.params.query.Sensor
	n, _, err := q.deleteSensors(ctx, deleteTarget(q.stream, sensor), sensor)
	if err != nil {
		return err
	}
	q.reader.cfg.Logger.Info("deleted a sensor", "stream", q.stream, "sensor", sensor, "readings", n, "by", q.by())
	return q.writeDeleted(`{"deleted":` + strconv.FormatInt(n, 10) + "}\n")
}

// deleteMany answers DELETE /v1/sensors: it deletes a page of sensors, or with dry-run
// counts them.
func (q *question) deleteMany(ctx context.Context) error {
	ask := q.params.list
	limit := ask.Limit
	ask.Limit++
	var ids []string
	next := ""
	if narrow(q.who, &ask) {
		list := q.found
		if c := q.stored.Catalogs[q.stream]; q.params.dryRun || c != nil && c.Complete() != nil && len(ask.Tags) == 0 {
			list = q.listed
		}
		for one, err := range list(ctx, ask) {
			if err != nil {
				return err
			}
			if len(ids) == limit {
				next = ids[limit-1]
				break
			}
			has, err := q.hasTags(ctx, &one)
			if err != nil {
				return err
			}
			if has {
				ids = append(ids, one.ID)
			}
		}
	}
	if q.params.dryRun {
		return q.writeDeleted(`{"dryRun":true,"sensors":` + strconv.Itoa(len(ids)) + afterJSON(next) + "}\n")
	}
	var n, sensors int64
	var err error
	if len(ids) > 0 {
		if n, sensors, err = q.deleteSensors(ctx, deleteManyTarget(q.stream, &ask), ids...); err != nil {
			return err
		}
		q.reader.cfg.Logger.Info("deleted sensors", "stream", q.stream, "prefix", ask.Prefix, "tags", ask.Tags, "sensors", sensors, "readings", n, "by", q.by())
	}
	return q.writeDeleted(fmt.Sprintf(`{"deleted":%d,"sensors":%d%s}`+"\n", n, sensors, afterJSON(next)))
}

func afterJSON(after string) string {
	if after == "" {
		return ""
	}
	return `,"after":` + string(quoted(after))
}

// hasTags reports whether the sensor's newest reading has the tags that are asked for: a
// sensor that had them in the past is not deleted.
func (q *question) hasTags(ctx context.Context, one *Listed) (bool, error) {
	if len(q.params.list.Tags) == 0 {
		return true, nil
	}
	r, found, err := q.Session.latest(ctx, one.ID)
	return found && telemetry.MatchTags(r.Tags, q.params.list.Tags), err
}

// deleteAtOnce is how many sensors are deleted at the same time.
const deleteAtOnce = 4

// deleteSensors deletes sensors. It returns how many readings there were, -1 if unknown,
// and how many sensors had any. Target is what to ask other daemons for.
func (q *question) deleteSensors(ctx context.Context, target string, sensors ...string) (readings, had int64, err error) {
	others := q.askOthers(ctx, http.MethodDelete, target)
	err = q.flush(ctx, sensors)
	failed := others(func([]byte) error { return nil })
	if err != nil {
		return 0, 0, err
	}
	if len(failed) > 0 {
		return 0, 0, telemetry.Errorf(telemetry.Unavailable, "not_flushed", "%s could not be asked to store the waiting readings of what is to be deleted, which would reappear later; "+
			"nothing was deleted; repeat the request once the daemon answers or has ended", strings.Join(failed, ", "))
	}
	catalog := q.stored.Catalogs[q.stream]
	if catalog != nil {
		if err := catalog.Delete(ctx, sensors...); err != nil { // a check of the catalog removes them later
			q.reader.cfg.Logger.Warn("a deleted sensor stays in the catalog for now", "stream", q.stream, "err", err)
		}
		for _, daemon := range q.askOthers(ctx, http.MethodDelete, target)(func([]byte) error { return nil }) {
			q.reader.cfg.Logger.Warn("another daemon may not know that sensors were deleted; if they send again to it, they are listed after its next check of the catalog", "stream", q.stream, "daemon", daemon)
		}
	}
	var total, deleted atomic.Int64
	var vague atomic.Bool
	deleting, ctx := errgroup.WithContext(ctx)
	deleting.SetLimit(deleteAtOnce)
	for _, sensor := range sensors {
		deleting.Go(func() error {
			n, err := q.source.Delete(ctx, sensor)
			if err != nil {
				return q.deletionFailed(sensor, deleted.Load(), err)
			}
			vague.Store(vague.Load() || n < 0)
			total.Add(n)
			if n != 0 {
				deleted.Add(1)
			}
			return nil
		})
	}
	if err := deleting.Wait(); err != nil {
		if catalog != nil {
			catalog.Rebuild() // it lacks sensors that still have readings
		}
		return 0, 0, err
	}
	if vague.Load() {
		return -1, deleted.Load(), nil
	}
	return total.Load(), deleted.Load(), nil
}

// deletionFailed explains why the deletion of a sensor failed, after that of some others.
func (q *question) deletionFailed(sensor string, others int64, err error) error {
	var known *telemetry.Error
	if errors.As(err, &known) && (known.Kind == telemetry.Forbidden || known.Kind == telemetry.Unavailable && others == 0) { // nothing was deleted
		if known.Kind == telemetry.Forbidden {
			q.reader.cfg.Logger.Warn("a sensor may not be deleted", "stream", q.stream, "sensor", sensor, "by", q.by(), "err", err)
		}
		return err
	}
	q.reader.cfg.Logger.Warn("delete a sensor", "stream", q.stream, "sensor", sensor, "by", q.by(), "err", err)
	return &telemetry.Error{
		Kind: telemetry.UnknownOutcome, Code: "outcome_unknown", Err: err,
		Message: "it is not known whether all readings were deleted; repeat the request, which is harmless",
	}
}

func (q *question) writeDeleted(body string) error {
	q.w.Header().Set("Content-Type", typeJSON)
	_, err := q.w.Write([]byte(body))
	return err
}

// flush stores the sensors' readings that were acknowledged before. For several sensors,
// one flush of all is less work than one of each.
func (q *question) flush(ctx context.Context, sensors []string) error {
	var err error
	if len(sensors) == 1 {
		err = q.stored.FlushSensor(ctx, q.stream, sensors[0])
	} else {
		err = q.stored.Flush(ctx)
	}
	if err == nil {
		return nil
	}
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "not_flushed", Err: err,
		Message: "acknowledged readings could not be stored in time, and would reappear later; nothing was deleted; repeat the request once GET /status shows no backlog",
	}
}

// prepareDelete does for another daemon, which is about to delete sensors, what this one
// has to do: store what waits, and forget that the sensors are in the catalog. Without
// sensors it forgets all.
func (q *question) prepareDelete(ctx context.Context, sensors ...string) error {
	if err := q.flush(ctx, sensors); err != nil {
		return err
	}
	if catalog := q.stored.Catalogs[q.stream]; catalog != nil {
		catalog.Forget(sensors...)
	}
	return q.writeDeleted(`{"deleted":0}` + "\n")
}

// deleteTarget is what to ask other daemons for before a sensor is deleted.
func deleteTarget(stream, sensor string) string {
	return root + "/" + url.PathEscape(sensor) + "?" + url.Values{"unstored": {"only"}, "stream": {stream}}.Encode()
}

// deleteManyTarget is the same for several sensors.
func deleteManyTarget(stream string, ask *telemetry.SensorQuery) string {
	query := url.Values{"unstored": {"only"}, "stream": {stream}, "prefix": {ask.Prefix}}
	for _, m := range ask.Tags {
		query.Add("tag", m.String())
	}
	return root + "?" + query.Encode()
}
