package read

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Others are the other daemons that store streams of this one in the same database. A
// query asks them for readings that they have not stored yet, on the paths that clients
// use, with unstored=only. They do not forward such a request.
type Others interface {
	// Ask sends a request, GET or DELETE, for the target to those that store the stream,
	// with the value of the header Authorization, and returns at once. collect waits for
	// the answers, to GET for about a second at most, passes each body to take, and
	// returns the addresses of the daemons that did not answer, or whose answer take
	// refused.
	Ask(ctx context.Context, method, stream, target, credentials string) (collect func(take func(body []byte) error) (failed []string))
}

const (
	// daemonHeader names the daemon in an answer to unstored=only.
	daemonHeader = "Brim-Daemon"
	// waitingSlots is how many slots there are for such answers, for each slot of
	// --max-queries. They are separate, because two daemons that ask each other could
	// otherwise deadlock.
	waitingSlots = 4
)

// askOthers asks the other daemons, unless the request comes from one of them. It asks
// nothing if target is empty.
func (s *Session) askOthers(ctx context.Context, method, target string) (collect func(take func([]byte) error) (failed []string)) {
	if s.stored.Others == nil || s.waitingOnly || target == "" {
		return func(func([]byte) error) []string { return nil }
	}
	return s.stored.Others.Ask(ctx, method, s.stream, target, s.credentials)
}

// discard collects answers that are not needed, so that they are counted, and their requests end.
func discard(collect func(func([]byte) error) []string) {
	collect(func([]byte) error { return nil })
}

// showMissing names the daemons that could not be asked in a header of the answer.
func (q *query) showMissing() {
	if q.w.missing = q.Missing(); len(q.w.missing) > 0 {
		q.w.Header().Set(telemetry.IncompleteHeader, strings.Join(q.w.missing, ", "))
	}
}

// target is the request to other daemons; empty: none is needed.
func (s *search) target() string {
	if s.from >= s.to {
		return ""
	}
	query, what := url.Values{"unstored": {"only"}, "stream": {s.stream}}, "latest"
	if !s.latest {
		what = "readings"
		query.Set("from", telemetry.FormatMillis(s.from))
		query.Set("to", telemetry.FormatMillis(s.to))
		// maxUnstoredBytes is reached before this limit.
		query.Set("limit", strconv.Itoa(min(cmp.Or(s.limit, MaxLimit), MaxLimit)))
	}
	return root + "/" + url.PathEscape(s.sensor) + "/" + what + "?" + query.Encode()
}

// withOthers returns what was found here and in other daemons.
func (s *search) withOthers(of *Session, collect func(func([]byte) error) []string) ([]telemetry.Unstored, error) {
	var tooMuch error
	known := make(map[identity]struct{}, len(s.found)) // a copy of this journal has the same readings
	for i := range s.found {
		known[identity{s.found[i].Session, s.found[i].Sequence}] = struct{}{}
	}
	of.addMissing(collect(func(body []byte) error {
		waiting, err := s.parse(body)
		for i := 0; i < len(waiting) && err == nil && tooMuch == nil; i++ {
			ms, id := waiting[i].Reading.Time.UnixMilli(), identity{waiting[i].Session, waiting[i].Sequence}
			if _, twice := known[id]; twice {
				continue
			}
			known[id] = struct{}{}
			if ms < s.from || ms >= s.to || s.latest && len(s.found) > 0 && ms < s.found[0].Reading.Time.UnixMilli() {
				continue
			}
			tooMuch = s.keep(waiting[i])
		}
		return err
	}))
	return s.found, tooMuch
}

// origin has the members that an answer to unstored=only adds to each reading.
type origin struct {
	Session     string `json:"session"`
	Sequence    uint64 `json:"sequence"`
	Arrival     int64  `json:"arrival"`     // in milliseconds since the epoch; 0 from earlier releases
	Granularity int64  `json:"granularity"` // in seconds; 0: the stream's present one
	Target      string `json:"target"`      // how it is stored; empty from earlier releases
}

// appendWaiting appends a reading with its origin.
func appendWaiting(dst []byte, u *telemetry.Unstored) []byte {
	dst = u.Reading.AppendJSON(dst)
	dst = append(append(dst[:len(dst)-1], `,"session":`...), quoted(u.Session)...)
	dst = strconv.AppendUint(append(dst, `,"sequence":`...), u.Sequence, 10)
	dst = strconv.AppendInt(append(dst, `,"arrival":`...), u.Arrival, 10)
	dst = strconv.AppendInt(append(dst, `,"granularity":`...), int64(u.Granularity/time.Second), 10)
	if u.Target != "" {
		dst = append(append(dst, `,"target":`...), quoted(u.Target)...)
	}
	return append(dst, '}')
}

// parse reads another daemon's answer, one reading per line.
func (s *search) parse(body []byte) (out []telemetry.Unstored, err error) {
	for line, err := range lines(body) {
		var of origin
		one := telemetry.Unstored{}
		if err == nil {
			err = json.Unmarshal(line, &of)
		}
		if err == nil {
			err = json.Unmarshal(line, &one.Reading)
		}
		if err == nil {
			one.Session, one.Sequence, one.Arrival, one.Granularity, one.Target = of.Session, of.Sequence, of.Arrival, time.Duration(of.Granularity)*time.Second, of.Target
			err = s.check(&one)
		}
		if err != nil {
			return nil, fmt.Errorf("read reading %d of the answer: %w", len(out)+1, err)
		}
		out = append(out, one)
	}
	return out, nil
}

// check rejects a reading that a correct daemon would not send.
func (s *search) check(u *telemetry.Unstored) error {
	const longest = 24 * time.Hour // window
	switch {
	case u.Reading.Sensor != s.sensor:
		return fmt.Errorf("it belongs to another sensor, %s", telemetry.Quote([]byte(u.Reading.Sensor)))
	case u.Session == "" || u.Sequence == 0:
		return errors.New("session or sequence is missing")
	case u.Granularity < 0 || u.Granularity > longest:
		return fmt.Errorf("granularity %v is out of range; allowed: 0s to %v", u.Granularity, longest)
	case len(u.Reading.Fields) == 0:
		return errors.New("fields are missing")
	case u.Reading.Time.IsZero():
		return errors.New("ts is missing")
	}
	return nil
}

// maxLine is longer than any reading: 256 fields of 1 KiB, escaped.
const maxLine = 4 << 20

// lines yields the lines of a body, or an error.
func lines(body []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		all := bufio.NewScanner(bytes.NewReader(body))
		all.Buffer(nil, maxLine)
		for all.Scan() {
			if !yield(all.Bytes(), nil) {
				return
			}
		}
		if err := all.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// sensorsTarget is the request to other daemons for a list of sensors.
func sensorsTarget(stream string, ask telemetry.SensorQuery) string {
	query := url.Values{
		"unstored": {"only"}, "stream": {stream}, "prefix": {ask.Prefix}, "after": {ask.After}, "limit": {strconv.Itoa(cmp.Or(ask.Limit, maxSensors))},
	}
	for _, m := range ask.Tags {
		query.Add("tag", m.String())
	}
	for _, m := range ask.Sensor[:min(len(ask.Sensor), maxMatchers)] { // fewer match more
		query.Add("sensor", m.Kind.String()+m.Value)
	}
	return root + "?" + query.Encode()
}

// sensor returns the sensor of a line; ms is the time of its newest reading.
func (l *listedLine) sensor(ms int64) telemetry.Sensor {
	s := telemetry.Sensor{ID: l.Sensor, Fields: l.Fields, Texts: l.Texts}
	for _, tags := range append(l.Other, l.Tags) {
		set := telemetry.TagSet{From: ms, To: ms + 1}
		for _, name := range slices.Sorted(maps.Keys(tags)) {
			set.Tags = append(set.Tags, telemetry.Tag{Name: name, Value: tags[name]})
		}
		s.Sets = append(s.Sets, set)
	}
	return s
}

// addOthers adds the sensors that have unstored readings in other daemons.
func (p *pending) addOthers(of *Session, collect func(func([]byte) error) []string) {
	of.addMissing(collect(func(body []byte) error {
		var seen []func()
		for line, err := range lines(body) {
			var one listedLine
			var newest time.Time
			if err == nil {
				err = json.Unmarshal(line, &one)
			}
			if err == nil {
				newest, err = time.Parse(time.RFC3339Nano, one.Newest)
			}
			if err == nil && one.Sensor == "" {
				err = errors.New("sensorId is missing")
			}
			if err != nil {
				return fmt.Errorf("read sensor %d of the answer: %w", len(seen)+1, err)
			}
			ms := newest.UnixMilli()
			seen = append(seen, func() { p.add(one.Sensor, ms, func() telemetry.Sensor { return one.sensor(ms) }) })
		}
		for _, add := range seen {
			add()
		}
		return nil
	}))
}

// answerWaiting answers unstored=only. It does not need MongoDB.
func (r *Reader) answerWaiting(q *query) error {
	leave, err := r.waiting.enter(q.r.Context(), access.From(q.r.Context()), slotWait)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(q.r.Context(), r.cfg.Timeout, errTimeout)
	defer cancel()
	defer q.w.setDeadline(r.cfg.Timeout + deadlineGrace)()
	switch q.params.call {
	case callSensors:
		return q.finish(q.sensors(ctx))
	case callDelete: // the daemon that asks deletes what is stored now
		return q.prepareDelete(ctx, q.params.query.Sensor)
	case callDeleteMany:
		return q.prepareDelete(ctx)
	}
	return q.finish(q.ownReadings(ctx))
}

// ownReadings answers …/readings and …/latest with unstored=only.
func (q *query) ownReadings(ctx context.Context) error {
	find := q.newestSearch(q.params.query.Sensor)
	if q.params.call == callReadings {
		find = q.newSearch(q.params.query)
		find.limit = q.params.query.Limit + 1
	}
	found, err := q.unstored(ctx, find)
	if err != nil {
		return err
	}
	if q.params.call == callLatest {
		if len(found) == 0 {
			return telemetry.Errorf(telemetry.NotFound, "sensor_unknown", "no readings of sensor %s wait in this daemon", telemetry.Quote([]byte(q.params.query.Sensor)))
		}
		q.w.Header().Set("Content-Type", typeJSON)
		_, err := q.w.Write(append(appendWaiting(nil, &found[0]), '\n'))
		return err
	}
	slices.SortStableFunc(found, func(a, b telemetry.Unstored) int { return a.Reading.Time.Compare(b.Reading.Time) })
	out := q.newWriter(`{"readings":[`)
	for i := range found[:min(len(found), q.params.query.Limit)] {
		out.next()
		out.body = appendWaiting(out.body, &found[i])
		if err := out.flush(); err != nil {
			return err
		}
	}
	return out.end("")
}
