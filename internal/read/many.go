package read

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// readingsPath is the path of readings of several sensors. Package ingest serves its POST.
const readingsPath = "/v1/readings"

// maxManySensors is how many sensors one request may name.
const maxManySensors = 100

// parseMany parses the parameters of callMany. Its cursor ends with the id of the sensor at
// which the next page begins.
func (p *params) parseMany(values url.Values) error {
	p.sensors = slices.Compact(slices.Sorted(slices.Values(values["sensor"])))
	switch {
	case len(p.sensors) == 0:
		return invalid("parameter sensor is missing; it is the id of a sensor, and may be given up to %d times", maxManySensors)
	case len(values["sensor"]) > maxManySensors:
		return invalid("parameter sensor is given %d times; at most %d are allowed", len(values["sensor"]), maxManySensors)
	}
	for _, id := range p.sensors {
		if refusal := telemetry.CheckSensor([]byte(id)); refusal != nil {
			return invalid("sensor %s: %s", telemetry.Quote([]byte(id)), refusal.Message)
		}
	}
	if after := values.Get("after"); after != "" {
		parts := strings.SplitN(after, ".", 3)
		if len(parts) != 3 || !slices.Contains(p.sensors, parts[2]) {
			return invalid("after %s is not a cursor of these sensors; use the one of the previous page", telemetry.Quote([]byte(after)))
		}
		p.sensors = p.sensors[slices.Index(p.sensors, parts[2]):]
		values.Set("after", parts[0]+"."+parts[1])
	}
	return p.parseReadings(values)
}

// many answers GET /v1/readings with the readings of one sensor after the other.
func (q *query) many(ctx context.Context) error {
	for _, sensor := range q.params.sensors {
		if err := q.who.RequireSensor(sensor); err != nil {
			return err
		}
	}
	list := &list{page: q.newPage(), limit: q.params.query.Limit}
	after := q.params.after
	for _, sensor := range q.params.sensors {
		if list.n == list.limit || list.full() || q.budget.Spent() > q.budget.Limit()/2 {
			return list.end("0.0." + sensor)
		}
		ask := q.params.query
		ask.Sensor = sensor
		own := telemetry.NewBudget(q.budget.Limit()) // each sensor may cost as much as a single one
		next, err := q.fill(telemetry.WithBudget(ctx, own), list, ask, after)
		q.budget.Add(own.Spent())
		if err != nil {
			return err
		}
		if next.Set {
			return list.end(next.String() + "." + sensor)
		}
		after = telemetry.Cursor{}
	}
	return list.end("")
}

// A list is a page with its limit.
type list struct {
	page

	n, limit int // readings
}

// fill adds the readings of a sensor after a cursor. It returns where the next page begins,
// or an unset cursor if there are no more readings.
func (q *query) fill(ctx context.Context, to *list, ask telemetry.Query, after telemetry.Cursor) (next telemetry.Cursor, err error) {
	skip := 0
	if after.Set {
		if after.Millis >= ask.From {
			ask.From, skip = after.Millis, after.Seen
		}
		ask.To = max(ask.To, ask.From)
	}
	ask.Limit = to.limit - to.n + skip + 1
	_, ask.Transient = to.page.(*writer)
	if ask.Unstored, err = q.waiting(ctx, ask); err != nil {
		return telemetry.Cursor{}, err
	}
	if q.w.begun && len(q.Missing()) > len(q.w.missing) { // the headers were sent without it
		return telemetry.Cursor{}, telemetry.Errorf(telemetry.Unavailable, "incomplete", "daemon %s could not be asked for readings that it has not stored yet; ask again", strings.Join(q.Missing(), ", "))
	}
	q.showMissing()
	last := after
	for r, err := range q.source.Readings(ctx, ask) {
		if err != nil {
			return telemetry.Cursor{}, err
		}
		ms := r.Time.UnixMilli()
		if skip > 0 && ms == after.Millis {
			skip--
			continue
		}
		if to.n == to.limit || to.full() {
			return cut(to, last, ms), nil
		}
		if to.n > 0 && (!last.Set || ms != last.Millis) {
			to.mark()
		}
		last = last.Past(ms)
		if err := to.add(&r); err != nil {
			return telemetry.Cursor{}, err
		}
		to.n++
	}
	return telemetry.Cursor{}, nil
}
