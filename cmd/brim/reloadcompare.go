package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
)

func keysOf[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

// stream returns one of the streams, which must be there.
func (c *settings) stream(name string) stream {
	at := slices.IndexFunc(c.Streams, func(s stream) bool { return s.Name == name })
	return c.Streams[at]
}

// differences lists what wanted has otherwise than now, with the reason for
// what cannot be put in force. A value that is only written otherwise is none.
func differences(now, wanted *configuration) []difference {
	var out []difference
	var streams stream
	ofStreams := streams.all()
	for _, e := range now.effective {
		if slices.ContainsFunc(ofStreams, func(s setting) bool { return s.name == e.name }) {
			continue // a default of streams; what comes of it is compared with theirs
		}
		to := wanted.effective[slices.IndexFunc(wanted.effective, func(w effective) bool { return w.name == e.name })]
		if e.text == to.text || same(now.written(e.name, e.text), now.written(e.name, to.text)) {
			continue
		}
		d := difference{Setting: e.path(), Now: e.shown().Value, Wanted: to.shown().Value, name: e.name}
		if !slices.Contains(liveSettings, e.name) {
			d.Why = takesRestart
		}
		out = append(out, d)
	}
	return append(out, streamDifferences(now, wanted)...)
}

func streamDifferences(now, wanted *configuration) []difference {
	var out []difference
	for _, name := range slices.Sorted(keysOf(now.streams)) {
		list, there := wanted.streams[name]
		if !there {
			out = append(out, difference{
				Setting: streamsKey + "." + name, Now: "configured", Wanted: "removed", stream: name,
				Why: takesRestart + "; its collection will be left as it is",
			})
			continue
		}
		was, is := now.stream(name), wanted.stream(name)
		for i, e := range now.streams[name] {
			changed := was // by value
			if list[i].text == e.text || changed.all()[i].set(list[i].text) != nil || same(changed, was) {
				continue
			}
			out = append(out, difference{
				Setting: streamsKey + "." + name + "." + e.name, Now: e.text, Wanted: list[i].text, stream: name, name: e.name, Why: why(e.name, is),
			})
		}
	}
	for _, name := range slices.Sorted(keysOf(wanted.streams)) {
		if _, there := now.streams[name]; !there {
			out = append(out, difference{Setting: streamsKey + "." + name, Now: "not configured", Wanted: "configured", stream: name, Why: takesRestart})
		}
	}
	return out
}

// why says what keeps a stream's setting from being put in force, empty if
// nothing does.
func why(name string, wanted stream) string {
	switch {
	case slices.Contains(liveOfStreams, name):
		return ""
	case name == "compressor":
		return fmt.Sprintf("cannot be made by a daemon: `brim recompress --stream %s --to %s` changes the collection; then restart", wanted.Name, wanted.Compressor)
	case name == "storage":
		return fmt.Sprintf("cannot be made by a daemon: `brim migrate --stream %s --storage %s` changes the collection; then restart", wanted.Name, wanted.Storage)
	default:
		return takesRestart
	}
}

// written returns the settings with one of them read from text.
func (c *settings) written(name, text string) settings {
	out := *c
	list := out.all()
	_ = list[slices.IndexFunc(list, func(s setting) bool { return s.name == name })].set(text) // both texts were read before
	return out
}

// with returns the configuration with those of the differences that nothing
// keeps from being put in force.
func (c *configuration) with(changes []difference) (*configuration, error) {
	out := &configuration{settings: c.settings, effective: slices.Clone(c.effective), streams: maps.Clone(c.streams)}
	out.Streams = slices.Clone(c.Streams)
	for name, list := range out.streams {
		out.streams[name] = slices.Clone(list)
	}
	var problems []error
	put := func(list []effective, settings []setting, d difference) {
		at := slices.IndexFunc(list, func(e effective) bool { return e.name == d.name })
		list[at].text = d.Wanted
		problems = append(problems, settings[slices.IndexFunc(settings, func(s setting) bool { return s.name == d.name })].set(d.Wanted))
	}
	for _, d := range changes {
		switch {
		case d.Why != "":
		case d.stream == "":
			put(out.effective, out.all(), d)
		default:
			at := slices.IndexFunc(out.Streams, func(s stream) bool { return s.Name == d.stream })
			put(out.streams[d.stream], out.Streams[at].all(), d)
			if d.stream == out.Default.Name {
				out.Default = out.Streams[at]
			}
		}
	}
	return out, errors.Join(append(problems, out.checkTogether())...)
}

// changedStreams lists the streams of which something is put in force.
func changedStreams(all []difference) []string {
	var out []string
	for _, d := range all {
		if d.stream != "" && d.Why == "" && !slices.Contains(out, d.stream) {
			out = append(out, d.stream)
		}
	}
	return out
}

// concernPatience is how long MongoDB may take to say which members it has.
const concernPatience = 5 * time.Second

// judge gives a reason to those changes of which only this daemon or MongoDB
// knows that they cannot be made.
func (r *reloader) judge(ctx context.Context, all []difference, wanted *configuration) {
	for i, d := range all {
		if strings.HasPrefix(d.name, "quota-") && r.daemon.guard == nil {
			all[i].Why = takesRestart + ": it began without an access file and without a quota, and counts nobody"
		}
	}
	storage := r.daemon.storage.Load()
	if storage.conn == nil || storage.available() != nil {
		return // what cannot be is found out when MongoDB is back
	}
	ctx, cancel := context.WithTimeout(ctx, concernPatience)
	defer cancel()
	for i, d := range all {
		if d.name != "write-concern" || d.stream == "" {
			continue
		}
		if err := wanted.stream(d.stream).WriteConcern.Check(ctx, storage.conn.Database(), d.stream, r.daemon.log); err != nil {
			all[i].Why = "cannot be made: " + err.Error()
		}
	}
}

// change puts the stream's settings in force in its store.
func (s stream) change(h home) error {
	switch st := h.(type) {
	case *bucket.Store:
		return st.Change(bucket.Settings{
			MaxReadings: s.BucketMaxReadings, MaxBytes: s.BucketMaxBytes, MaxReadingsPerUpdate: s.MaxReadingsPerUpdate,
			Retention: s.Retention, WriteConcern: s.WriteConcern, View: s.View == on,
		})
	case *timeseries.Store:
		st.Change(timeseries.Settings{Retention: s.Retention, WriteConcern: s.WriteConcern})
	}
	return nil
}
