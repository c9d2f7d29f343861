package read

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// HasCatalog reports whether the stream has a catalog. Otherwise Find returns only the tags
// and fields of the sensors' newest readings.
func (s *Session) HasCatalog() bool { return s.stored.Catalogs[s.stream] != nil }

// sensorPage is how many sensors Find gathers from memory and the journal at a time.
const sensorPage = 1000

// Find yields the sensors of q that the identity may access, with their tags and fields, in
// the order of their ids' bytes. It includes sensors with no stored reading, and may include
// sensors whose readings have expired.
func (s *Session) Find(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.Sensor, error] {
	return func(yield func(telemetry.Sensor, error) bool) {
		if !narrow(s.who, &q) {
			return
		}
		s.asking.Add(1)
		failed := false
		defer func() {
			if !failed {
				s.asking.Add(-1)
			}
		}()
		for left := q.Limit; ; {
			one := q
			if one.Limit = sensorPage; left > 0 {
				one.Limit = min(left, sensorPage)
			}
			n := 0
			for found, err := range s.found(ctx, one) {
				if n++; n > one.Limit && err == nil {
					break
				}
				q.After = found.ID
				if err == nil && !s.HasCatalog() && len(found.Fields)+len(found.Texts) == 0 { // all its readings wait
					err = s.describe(ctx, &found.Sensor)
				}
				if failed = err != nil; failed {
					err = s.explain(ctx, err)
				}
				if !yield(found.Sensor, err) || failed {
					return
				}
			}
			if left -= min(n, one.Limit); left == 0 || n < one.Limit {
				return
			}
		}
	}
}

// found yields a page of sensors with their tags and fields, perhaps more than the limit.
// With a catalog, Listed.Newest may be unknown. The journal is searched before MongoDB is queried, as for readings: what is
// trimmed from it in between is stored.
func (s *Session) found(ctx context.Context, ask telemetry.SensorQuery) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		catalog := s.stored.Catalogs[s.stream]
		var err error
		if catalog != nil {
			err = catalog.Complete()
		}
		var pending []Listed
		if err == nil {
			pending, err = s.pendingSensors(ctx, ask, catalog)
		}
		if err != nil {
			yield(Listed{}, err)
			return
		}
		stored := s.described(ctx, ask)
		if catalog != nil {
			stored = s.cataloged(ctx, ask, catalog)
		}
		withPending(stored, pending)(yield)
	}
}

// describe adds the tags and fields of a sensor's newest reading.
func (s *Session) describe(ctx context.Context, one *telemetry.Sensor) error {
	r, found, err := s.latest(ctx, one.ID)
	if err == nil && found {
		more := sensorOf(&r)
		one.Merge(&more)
	}
	return err
}

// cataloged yields the sensors of the catalog.
func (*Session) cataloged(ctx context.Context, ask telemetry.SensorQuery, catalog Catalog) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		for one, err := range catalog.List(ctx, ask) {
			if !yield(Listed{one, unknown}, err) {
				return
			}
		}
	}
}

// described yields the stored sensors of a stream without a catalog.
func (s *Session) described(ctx context.Context, ask telemetry.SensorQuery) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		all := ask
		all.Limit = 0
		for seen, err := range s.source.Sensors(ctx, all) {
			if err != nil {
				yield(Listed{}, err)
				return
			}
			if !ask.Wants(seen.Sensor) {
				continue
			}
			r, found, err := s.source.Latest(ctx, seen.Sensor, nil)
			one := Listed{sensorOf(&r), seen.Newest}
			one.ID = seen.Sensor
			if err == nil && (!found || !one.Matches(&ask)) {
				continue
			}
			if !yield(one, err) || err != nil {
				return
			}
		}
	}
}

// sensorOf returns the sensor of a reading, with its tags and fields.
func sensorOf(r *telemetry.Reading) telemetry.Sensor {
	ms := r.Time.UnixMilli()
	s := telemetry.Sensor{ID: r.Sensor, Sets: []telemetry.TagSet{{Tags: r.Tags, From: ms, To: ms + 1}}}
	for _, f := range r.Fields {
		to := &s.Fields
		if f.Value.Kind() == telemetry.Text {
			to = &s.Texts
		}
		*to = append(*to, f.Name)
	}
	slices.Sort(s.Fields)
	slices.Sort(s.Texts)
	return s
}

// listed yields a page of sensors with the times of their newest readings. While the
// catalog is being built, they have no tags and fields.
func (s *Session) listed(ctx context.Context, ask telemetry.SensorQuery) iter.Seq2[Listed, error] {
	catalog := s.stored.Catalogs[s.stream]
	switch {
	case s.waitingOnly:
		return s.waitingSensors(ctx, ask, catalog)
	case catalog == nil:
		return s.found(ctx, ask)
	case catalog.Complete() != nil && len(ask.Tags) == 0:
		return s.seen(ctx, ask)
	}
	return s.withNewest(ctx, ask)
}

// seen yields a page of the sensors in MongoDB and in the backlog.
func (s *Session) seen(ctx context.Context, ask telemetry.SensorQuery) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		pending, err := s.pendingSensors(ctx, ask, nil)
		if err != nil {
			yield(Listed{}, err)
			return
		}
		withPending(func(yield func(Listed, error) bool) {
			for one, err := range s.source.Sensors(ctx, ask) {
				if !yield(Listed{telemetry.Sensor{ID: one.Sensor}, one.Newest}, err) {
					return
				}
			}
		}, pending)(yield)
	}
}

// waitingSensors answers another daemon: it yields the sensors with readings that wait in
// this daemon, and those that only this daemon knows.
func (s *Session) waitingSensors(ctx context.Context, ask telemetry.SensorQuery, catalog Catalog) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		var unwritten []telemetry.Sensor
		if catalog != nil {
			unwritten = catalog.Unwritten(&ask)
		}
		pending, err := s.pendingSensors(ctx, ask, nil)
		if err != nil {
			yield(Listed{}, err)
			return
		}
		withPending(func(yield func(Listed, error) bool) {
			for i := range unwritten {
				one := Listed{unwritten[i], unknown}
				if at, found := s.waitingNewest(one.ID); found {
					one.Newest = at
				}
				if one.Newest != unknown && one.Matches(&ask) && !yield(one, nil) {
					return
				}
			}
		}, pending)(yield)
	}
}

func (s *Session) waitingNewest(sensor string) (int64, bool) {
	b := &s.stored.Backlog
	if b.WaitingNewest == nil || s.storedOnly {
		return 0, false
	}
	return b.WaitingNewest(s.stream, sensor)
}

const (
	newestBatch       = 256 // sensors
	newestConcurrency = 4   // queries
)

// withNewest yields the sensors of found with the times of their newest readings. It omits
// sensors without readings.
func (s *Session) withNewest(ctx context.Context, ask telemetry.SensorQuery) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		page := make([]Listed, 0, max(1, min(ask.Limit, newestBatch)))
		flush := func() bool {
			if err := s.addNewest(ctx, page); err != nil {
				yield(Listed{}, err)
				return false
			}
			for i := range page {
				if page[i].Newest != unknown && !yield(page[i], nil) {
					return false
				}
			}
			page = page[:0]
			return true
		}
		for one, err := range s.found(ctx, ask) {
			if err != nil {
				yield(Listed{}, err)
				return
			}
			if page = append(page, one); len(page) == cap(page) && !flush() {
				return
			}
		}
		flush()
	}
}

// addNewest adds the times of the newest readings in memory and in MongoDB.
func (s *Session) addNewest(ctx context.Context, page []Listed) error {
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(newestConcurrency)
	for i := range page {
		one := &page[i]
		if at, found := s.waitingNewest(one.ID); found {
			one.Newest = max(one.Newest, at)
		}
		asking.Go(func() error {
			at, found, err := s.source.Newest(ctx, one.ID)
			if found {
				one.Newest = max(one.Newest, at)
			}
			if last := len(one.Sets) - 1; err == nil && last > 0 && one.Sets[last-1].To > one.Newest {
				err = s.orderSets(ctx, one)
			}
			return err
		})
	}
	return asking.Wait()
}

// orderSets puts the tags of the newest reading last. The catalog writes ahead until when a sensor
// has tags, so it does not know the current ones for a while after the sensor went back to
// earlier ones.
func (s *Session) orderSets(ctx context.Context, one *Listed) error {
	r, found, err := s.latest(ctx, one.ID)
	if err != nil || !found {
		return err
	}
	if at := slices.IndexFunc(one.Sets, func(set telemetry.TagSet) bool { return slices.Equal(set.Tags, r.Tags) }); at >= 0 {
		set := one.Sets[at]
		one.Sets = append(slices.Delete(one.Sets, at, at+1), set)
	}
	return nil
}

// withPending merges two lists of sensors in the order of their ids.
func withPending(stored iter.Seq2[Listed, error], pending []Listed) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		for s, err := range stored {
			if err != nil {
				yield(s, err)
				return
			}
			for len(pending) > 0 && pending[0].ID < s.ID {
				if !yield(pending[0], nil) {
					return
				}
				pending = pending[1:]
			}
			if len(pending) > 0 && pending[0].ID == s.ID {
				s.Newest = max(s.Newest, pending[0].Newest)
				s.Merge(&pending[0].Sensor)
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

// narrow restricts the query to sensors that the identity may access. It returns false if
// there are none.
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

// maxSensors is the maximum number of sensors per page.
const maxSensors = 10_000

// sensors answers GET /v1/sensors.
func (q *query) sensors(ctx context.Context) error {
	ask := q.params.list
	limit := ask.Limit
	ask.Limit++
	out := q.newWriter(`{"sensors":[`)
	next, last := "", ""
	if narrow(q.who, &ask) {
		n := 0
		for one, err := range q.listed(ctx, ask) {
			if n == 0 {
				q.showMissing()
			}
			if err != nil {
				return err
			}
			if n == limit || out.full() {
				next = last
				break
			}
			n, last = n+1, one.ID
			out.next()
			line, err := json.Marshal(one.line())
			if err != nil {
				return fmt.Errorf("write a sensor: %w", err)
			}
			out.body = append(out.body, line...)
			if err := out.flush(); err != nil {
				return err
			}
		}
		q.showMissing()
	}
	return out.end(next)
}

// listedLine is a sensor in an answer to a client or another daemon. Daemons of earlier
// releases send no tags and fields.
type listedLine struct {
	Sensor string              `json:"sensorId"`
	Newest string              `json:"newest"`
	Tags   map[string]string   `json:"tags,omitempty"`
	Other  []map[string]string `json:"otherTags,omitempty"`
	Fields []string            `json:"fields,omitempty"`
	Texts  []string            `json:"textFields,omitempty"`
}

// line returns the sensor as it is in an answer.
func (l *Listed) line() listedLine {
	out := listedLine{Sensor: l.ID, Newest: telemetry.FormatMillis(l.Newest), Fields: l.Fields, Texts: l.Texts}
	for i, set := range l.Sets {
		tags := make(map[string]string, len(set.Tags))
		for _, t := range set.Tags {
			tags[t.Name] = t.Value
		}
		if i == len(l.Sets)-1 {
			out.Tags = tags
		} else {
			out.Other = append(out.Other, tags)
		}
	}
	return out
}
