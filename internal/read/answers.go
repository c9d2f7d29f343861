package read

import (
	"context"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Default and maximum number of readings per page.
const (
	DefaultLimit = 1000
	MaxLimit     = 100_000
)

// maxPageBytes ends a page of JSON early; the rest is on the next page. Eight concurrent
// queries hold at most 64 MiB. NDJSON is not held in memory.
const maxPageBytes = 8 << 20

// readings answers GET …/readings.
func (q *query) readings(ctx context.Context) error {
	list := &list{page: q.newPage(), limit: q.params.query.Limit}
	next, err := q.fill(ctx, list, q.params.query, q.params.after)
	if err != nil {
		return err
	}
	return list.end(next.String())
}

// summary answers GET …/summary.
func (q *query) summary(ctx context.Context) error {
	out, steps := q.newWriter(`{"summary":[`), 0
	for s, err := range q.Summary(ctx, telemetry.SummaryQuery{Query: q.params.query, Every: q.params.every}) {
		q.showMissing()
		if err != nil {
			return err
		}
		if steps++; steps > maxSteps {
			return telemetry.Errorf(telemetry.Invalid, telemetry.CodeTooCostly, "the summary has more than %d steps", maxSteps)
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
	q.showMissing()
	return out.end("")
}

// latest answers GET …/latest.
func (q *query) latest(ctx context.Context) error {
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

// newest returns the reading with the latest time, the last one if there are several; nil
// if there are none.
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

// clientName names the client in the log.
func (q *query) clientName() string {
	if name := access.From(q.r.Context()).Name; name != "" {
		return name
	}
	return "anyone"
}
