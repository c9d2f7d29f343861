package daemon

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
func (c *Settings) stream(name string) Stream {
	at := slices.IndexFunc(c.Streams, func(s Stream) bool { return s.Name == name })
	return c.Streams[at]
}

// differences lists what wanted has otherwise than now, with the reason for
// what cannot be put in force. A value that is only written otherwise is none.
func differences(now, wanted *Config) []Difference {
	var out []Difference
	var streams Stream
	ofStreams := streams.all()
	for _, e := range now.effective {
		if slices.ContainsFunc(ofStreams, func(s Setting) bool { return s.Name == e.Name }) {
			continue // a default of streams; what comes of it is compared with theirs
		}
		to := wanted.effective[slices.IndexFunc(wanted.effective, func(w effective) bool { return w.Name == e.Name })]
		if e.text == to.text || same(now.written(e.Name, e.text), now.written(e.Name, to.text)) {
			continue
		}
		d := Difference{Setting: e.path(), Now: e.shown().Value, Wanted: to.shown().Value, name: e.Name}
		if !slices.Contains(liveSettings, e.Name) {
			d.Why = takesRestart
		}
		out = append(out, d)
	}
	return append(out, streamDifferences(now, wanted)...)
}

func streamDifferences(now, wanted *Config) []Difference {
	var out []Difference
	for _, name := range slices.Sorted(keysOf(now.streams)) {
		list, there := wanted.streams[name]
		if !there {
			out = append(out, Difference{
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
			out = append(out, Difference{
				Setting: streamsKey + "." + name + "." + e.Name, Now: e.text, Wanted: list[i].text, stream: name, name: e.Name, Why: why(e.Name, is),
			})
		}
	}
	for _, name := range slices.Sorted(keysOf(wanted.streams)) {
		if _, there := now.streams[name]; !there {
			out = append(out, Difference{Setting: streamsKey + "." + name, Now: "not configured", Wanted: "configured", stream: name, Why: takesRestart})
		}
	}
	return out
}

// why says what keeps a stream's setting from being put in force, empty if
// nothing does.
func why(name string, wanted Stream) string {
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
func (c *Settings) written(name, text string) Settings {
	out := *c
	list := out.All()
	_ = list[slices.IndexFunc(list, func(s Setting) bool { return s.Name == name })].set(text) // both texts were read before
	return out
}

// with returns the configuration with those of the differences that nothing
// keeps from being put in force.
func (c *Config) with(changes []Difference) (*Config, error) {
	out := &Config{Settings: c.Settings, from: c.from, effective: slices.Clone(c.effective), streams: maps.Clone(c.streams)}
	out.Streams = slices.Clone(c.Streams)
	for name, list := range out.streams {
		out.streams[name] = slices.Clone(list)
	}
	var problems []error
	put := func(list []effective, settings []Setting, d Difference) {
		at := slices.IndexFunc(list, func(e effective) bool { return e.Name == d.name })
		list[at].text = d.Wanted
		problems = append(problems, settings[slices.IndexFunc(settings, func(s Setting) bool { return s.Name == d.name })].set(d.Wanted))
	}
	for _, d := range changes {
		switch {
		case d.Why != "":
		case d.stream == "":
			put(out.effective, out.All(), d)
		default:
			at := slices.IndexFunc(out.Streams, func(s Stream) bool { return s.Name == d.stream })
			put(out.streams[d.stream], out.Streams[at].all(), d)
			if d.stream == out.Default.Name {
				out.Default = out.Streams[at]
			}
		}
	}
	return out, errors.Join(append(problems, out.checkTogether())...)
}

// changedStreams lists the streams of which something is put in force.
func changedStreams(all []Difference) []string {
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
func (r *reloader) judge(ctx context.Context, all []Difference, wanted *Config) {
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
func (s Stream) change(h home) error {
	switch st := h.(type) {
	case *bucket.Store:
		return st.Change(bucket.Settings{
			MaxReadings: s.BucketMaxReadings, MaxBytes: s.BucketMaxBytes, MaxReadingsPerUpdate: s.MaxReadingsPerUpdate,
			Retention: s.Retention, WriteConcern: s.WriteConcern, View: s.View == On,
		})
	case *timeseries.Store:
		st.Change(timeseries.Settings{Retention: s.Retention, WriteConcern: s.WriteConcern})
	}
	return nil
}
