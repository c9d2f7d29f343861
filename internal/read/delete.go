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

// Sensors are deleted in this order. Readings that were acknowledged before, by this daemon
// and others, are stored first; otherwise they would be stored after the deletion. Then the
// sensors are removed from the catalog, and all daemons forget that they were in it, so that
// a sensor that sends again is added again. The readings are deleted last:
//
//	store waiting readings ─▶ remove from the catalog ─▶ forget ─▶ delete readings

// delete answers DELETE /v1/sensors/{sensorId}.
func (q *query) delete(ctx context.Context) error {
	sensor := q.params.query.Sensor
	n, _, err := q.deleteSensors(ctx, deleteTarget(q.stream, sensor), sensor)
	if err != nil {
		return err
	}
	q.reader.cfg.Logger.Info("deleted a sensor", "stream", q.stream, "sensor", sensor, "readings", n, "by", q.clientName())
	return q.writeDeleted(`{"deleted":` + strconv.FormatInt(n, 10) + "}\n")
}

// deleteMany answers DELETE /v1/sensors: it deletes one page of sensors, or only counts them
// for a dry run.
func (q *query) deleteMany(ctx context.Context) error {
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
		q.reader.cfg.Logger.Info("deleted sensors", "stream", q.stream, "prefix", ask.Prefix, "tags", ask.Tags, "sensors", sensors, "readings", n, "by", q.clientName())
	}
	return q.writeDeleted(fmt.Sprintf(`{"deleted":%d,"sensors":%d%s}`+"\n", n, sensors, afterJSON(next)))
}

func afterJSON(after string) string {
	if after == "" {
		return ""
	}
	return `,"after":` + string(quoted(after))
}

// hasTags reports whether the sensor's newest reading has the requested tags. A sensor that
// had them only in the past is not deleted.
func (q *query) hasTags(ctx context.Context, one *Listed) (bool, error) {
	if len(q.params.list.Tags) == 0 {
		return true, nil
	}
	r, found, err := q.Session.latest(ctx, one.ID)
	return found && telemetry.MatchTags(r.Tags, q.params.list.Tags), err
}

// deleteConcurrency is how many sensors are deleted concurrently.
const deleteConcurrency = 4

// deleteSensors deletes sensors. It returns how many readings were deleted, or -1 if that is
// unknown, and how many sensors had any. target is the request to other daemons.
func (q *query) deleteSensors(ctx context.Context, target string, sensors ...string) (readings, had int64, err error) {
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
	var uncounted atomic.Bool
	deleting, ctx := errgroup.WithContext(ctx)
	deleting.SetLimit(deleteConcurrency)
	for _, sensor := range sensors {
		deleting.Go(func() error {
			n, err := q.source.Delete(ctx, sensor)
			if err != nil {
				return q.deletionFailed(sensor, deleted.Load(), err)
			}
			if n < 0 {
				uncounted.Store(true)
			}
			total.Add(n)
			if n != 0 {
				deleted.Add(1)
			}
			return nil
		})
	}
	if err := deleting.Wait(); err != nil {
		if catalog != nil {
			catalog.Rebuild() // sensors that still have readings are missing from it
		}
		return 0, 0, err
	}
	if uncounted.Load() {
		return -1, deleted.Load(), nil
	}
	return total.Load(), deleted.Load(), nil
}

// deletionFailed returns the error for the client. others is how many sensors were deleted
// before.
func (q *query) deletionFailed(sensor string, others int64, err error) error {
	var known *telemetry.Error
	if errors.As(err, &known) && (known.Kind == telemetry.Forbidden || known.Kind == telemetry.Unavailable && others == 0) { // nothing was deleted
		if known.Kind == telemetry.Forbidden {
			q.reader.cfg.Logger.Warn("a sensor may not be deleted", "stream", q.stream, "sensor", sensor, "by", q.clientName(), "err", err)
		}
		return err
	}
	q.reader.cfg.Logger.Warn("delete a sensor", "stream", q.stream, "sensor", sensor, "by", q.clientName(), "err", err)
	return &telemetry.Error{
		Kind: telemetry.UnknownOutcome, Code: "outcome_unknown", Err: err,
		Message: "it is not known whether all readings were deleted; repeat the request, which is harmless",
	}
}

func (q *query) writeDeleted(body string) error {
	q.w.Header().Set("Content-Type", typeJSON)
	_, err := q.w.Write([]byte(body))
	return err
}

// flush stores the readings of the sensors that were acknowledged before. For several
// sensors it flushes the whole queue, which is less work than a flush for each.
func (q *query) flush(ctx context.Context, sensors []string) error {
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

// prepareDelete prepares this daemon for the deletion of sensors by another one: it stores
// waiting readings, and forgets that the sensors are in the catalog. Without arguments it
// forgets all sensors.
func (q *query) prepareDelete(ctx context.Context, sensors ...string) error {
	if err := q.flush(ctx, sensors); err != nil {
		return err
	}
	if catalog := q.stored.Catalogs[q.stream]; catalog != nil {
		catalog.Forget(sensors...)
	}
	return q.writeDeleted(`{"deleted":0}` + "\n")
}

// deleteTarget is the request to other daemons before a sensor is deleted.
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
