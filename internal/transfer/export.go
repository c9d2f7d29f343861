package transfer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// ExportConfig says what to export.
type ExportConfig struct {
	Dir    string
	Format files.Format
	// Asked describes the export. A run continues an earlier one only if Asked is the same, and
	// then uses the From and To of the earlier one.
	Asked    []string
	From, To int64    // milliseconds, From <= Time < To
	Sensors  []string // empty: all whose ids begin with Prefix
	Prefix   string

	Show func(ExportProgress) // called by one goroutine at a time, often
}

// ExportProgress is the progress of an export.
type ExportProgress struct {
	Day      string // being read or written
	Writing  bool   // all days are read, files are being written
	Done     int    // days
	Days     int
	Readings int64 // read, or written, including those of earlier runs
}

// An Exported is the result of an export.
type Exported struct {
	Folder    string       `json:"folder"`
	Format    files.Format `json:"format"`
	From      string       `json:"from,omitempty"` // the first day; empty: there are no readings
	To        string       `json:"to,omitempty"`   // the last day
	Files     int          `json:"files"`          // one for each day with readings
	Readings  int64        `json:"readings"`
	Bytes     int64        `json:"bytes"`
	Continued bool         `json:"continued"` // an earlier run had begun it
	// AlreadyComplete says that an earlier run had completed it, and this one read nothing.
	AlreadyComplete bool      `json:"already_complete"`
	Begin, End      time.Time `json:"-"` // Begin <= times of the readings < End; zero: there are none
}

const (
	pageReadings = 10_000
	pageSensors  = 10_000
	// parallel is how many batches of sensors are read concurrently. The readings of all but one
	// wait in memory, one page each. A daemon answers at least four queries at once, half of them
	// to one identity.
	parallel = 2
	// A request names at most this many sensors, whose ids total at most about this many
	// bytes, since they are in its URL.
	maxBatchSensors = 100
	maxBatchIDBytes = 2 << 10
	// saveInterval bounds the work that an interruption can lose, unless a day of those
	// sensors takes longer.
	saveInterval = 5 * time.Second
)

// Export writes the readings of a stream as a file a day. If it is interrupted, another
// call continues it.
func Export(ctx context.Context, source Source, cfg ExportConfig) (done Exported, err error) {
	if cfg.Show == nil {
		cfg.Show = func(ExportProgress) {}
	}
	f, err := openFolder(cfg.Dir)
	if err != nil {
		return Exported{}, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	e := &export{cfg: cfg, source: source, folder: f, state: &f.state}
	if err := e.begin(ctx); err != nil {
		return Exported{}, err
	}
	if f.found && f.complete() {
		done = e.result()
		done.AlreadyComplete = true
		return done, f.checkFiles()
	}
	if err := e.readDays(ctx); err != nil {
		return Exported{}, err
	}
	if err := e.writeDays(ctx); err != nil {
		return Exported{}, err
	}
	return e.result(), nil
}

// An export is one run.
type export struct {
	cfg    ExportConfig
	source Source
	folder *folder
	state  *manifest
	parser *files.Parser
	one    telemetry.Reading // the last one parsed
}

// begin determines which days to export, unless an earlier run did.
func (e *export) begin(ctx context.Context) error {
	e.parser = files.NewParser()
	if e.folder.found {
		if !slices.Equal(e.state.Asked, e.cfg.Asked) {
			return fmt.Errorf("%s already contains a different export: %s; this one is: %s; choose another folder",
				e.cfg.Dir, strings.Join(e.state.Asked, " "), strings.Join(e.cfg.Asked, " "))
		}
		return nil
	}
	last := int64(-1)
	err := e.eachSensor(ctx, "", func(s telemetry.SensorSeen) error {
		last = max(last, s.Newest)
		return nil
	})
	first := e.cfg.From
	if err == nil && first == 0 {
		// It takes a request per sensor, about as long as reading a day. With a From it is done later,
		// if the first day turns out to be empty.
		first, err = e.oldest(ctx, 0)
	}
	if err != nil {
		return err
	}
	*e.state = manifest{Version: 1, Asked: e.cfg.Asked, Format: e.cfg.Format}
	if end := min(e.cfg.To, last+1); first < end {
		e.state.From, e.state.To, e.state.Next = first, end, dayOf(first)
	}
	return e.folder.save()
}

// oldest returns the time of the first reading at or after a time; the end of the export if there
// is none.
func (e *export) oldest(ctx context.Context, from int64) (int64, error) {
	var mu sync.Mutex
	oldest := e.cfg.To
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	err := e.eachSensor(ctx, "", func(s telemetry.SensorSeen) error {
		if s.Newest < from {
			return nil
		}
		group.Go(func() error {
			mu.Lock()
			q := PageQuery{Sensors: []string{s.Sensor}, From: from, To: oldest, Limit: 1}
			mu.Unlock()
			page, err := e.source.Readings(ctx, q)
			if err != nil || len(page.Lines) == 0 {
				return err
			}
			line, _, _ := bytes.Cut(page.Lines, []byte("\n"))
			var r telemetry.Reading
			if err := files.NewParser().Parse(line, &r); err != nil {
				return fmt.Errorf("read the daemon's answer: %w", err)
			}
			mu.Lock()
			defer mu.Unlock()
			oldest = min(oldest, r.Time.UnixMilli())
			return nil
		})
		return nil
	})
	if failed := group.Wait(); failed != nil {
		err = failed
	}
	return oldest, err
}

// eachSensor calls do for the sensors after one, in the order of their ids.
func (e *export) eachSensor(ctx context.Context, after string, do func(telemetry.SensorSeen) error) error {
	ids := slices.Compact(slices.Sorted(slices.Values(e.cfg.Sensors)))
	for _, id := range ids {
		if id <= after {
			continue
		}
		page, _, err := e.source.Sensors(ctx, id, "", 1)
		if err != nil {
			return err
		}
		if len(page) == 0 || page[0].Sensor != id {
			return fmt.Errorf("the stream has no sensor %s", telemetry.Quote([]byte(id)))
		}
		if err := do(page[0]); err != nil {
			return err
		}
	}
	for more := len(ids) == 0; more; more = after != "" {
		page, next, err := e.source.Sensors(ctx, e.cfg.Prefix, after, pageSensors)
		if err != nil {
			return err
		}
		for _, s := range page {
			if err := do(s); err != nil {
				return err
			}
		}
		after = next
	}
	return nil
}

// readDays reads one day after the other.
func (e *export) readDays(ctx context.Context) error {
	for e.state.Next < e.state.To {
		start := e.state.Next
		n, err := e.readDay(ctx, start)
		if err != nil {
			return fmt.Errorf("read %s: %w", dayName(start), err)
		}
		e.state.Reading, e.state.Next = nil, start+day.Milliseconds()
		if n > 0 {
			e.state.Days = append(e.state.Days, &dayState{Day: start, Readings: n})
		} else if err := e.skipEmptyDays(ctx); err != nil {
			return err
		}
		if err := e.folder.save(); err != nil {
			return err
		}
	}
	return nil
}

// skipEmptyDays finds the next day with readings, because there may be years in between.
func (e *export) skipEmptyDays(ctx context.Context) error {
	first, err := e.oldest(ctx, e.state.Next)
	if err == nil {
		e.state.Next = max(e.state.Next, dayOf(min(first, e.state.To)))
	}
	return err
}

// readDay reads a day into its spool, and returns how many readings it has.
func (e *export) readDay(ctx context.Context, start int64) (n int64, err error) {
	at := dayProgress{}
	if e.state.Reading != nil {
		at = *e.state.Reading
	}
	out, err := e.folder.openSpool(start, at.Bytes)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	saved, before := time.Now(), e.read()
	for s, err := range e.sensors(ctx, start, at.After) {
		if err != nil {
			return 0, err
		}
		for page := range s.pages {
			if err := e.take(out, page.Lines); err != nil {
				return 0, err
			}
			at.Readings += int64(bytes.Count(page.Lines, []byte("\n")))
			e.cfg.Show(ExportProgress{Day: dayName(start), Done: e.daysBefore(start), Days: e.daysBefore(e.state.To-1) + 1, Readings: before + at.Readings})
		}
		if s.err != nil {
			return 0, s.err
		}
		at.After = s.last()
		if time.Since(saved) < saveInterval {
			continue
		}
		if at.Bytes, err = out.sync(); err != nil {
			return 0, err
		}
		e.state.Reading = new(at)
		if err := e.folder.save(); err != nil {
			return 0, err
		}
		saved = time.Now()
	}
	if _, err := out.sync(); err != nil {
		return 0, err
	}
	if at.Readings == 0 {
		return 0, os.Remove(e.folder.spoolPath(start))
	}
	return at.Readings, nil
}

// take adds a page to the spool, and its columns to those of the export.
func (e *export) take(out *spool, lines []byte) error {
	if e.state.Format != files.NDJSON {
		for line := range bytes.Lines(lines) {
			if err := e.parser.Parse(bytes.TrimSuffix(line, []byte("\n")), &e.one); err != nil {
				return fmt.Errorf("read the daemon's answer: %w", err)
			}
			e.state.Columns.Add(&e.one)
		}
	}
	return out.write(lines)
}

// read returns the number of readings in the days that were read.
func (e *export) read() (n int64) {
	for _, d := range e.state.Days {
		n += d.Readings
	}
	return n
}

// daysBefore returns how many days of the export end before a time.
func (e *export) daysBefore(ms int64) int {
	return int((dayOf(ms) - dayOf(e.state.From)) / day.Milliseconds())
}

// A sensorBatch is a group of sensors and their readings of one day.
type sensorBatch struct {
	sensors []string
	bytes   int       // of sensors
	pages   chan Page // buffers one page
	err     error     // set before pages is closed
}

// sensors yields batches of the sensors after one that may have readings in a day, in the order of
// their ids. Up to parallel batches are read ahead.
func (e *export) sensors(ctx context.Context, start int64, after string) iter.Seq2[*sensorBatch, error] {
	return func(yield func(*sensorBatch, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		order := make(chan *sensorBatch, parallel)
		var failed error
		var readers errgroup.Group
		readers.SetLimit(parallel)
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() {
			defer close(order)
			failed = e.eachBatch(ctx, start, after, func(one *sensorBatch) error {
				readers.Go(func() error {
					one.err = e.readBatch(ctx, start, one)
					close(one.pages)
					return nil
				})
				select {
				case order <- one:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			_ = readers.Wait() // each batch has its own error
		})
		for one := range order {
			if !yield(one, nil) {
				return
			}
		}
		if failed != nil {
			yield(nil, failed)
		}
	}
}

// eachBatch calls do for batches of the sensors that may have readings in a day, each as large as
// one request can be.
func (e *export) eachBatch(ctx context.Context, start int64, after string, do func(*sensorBatch) error) error {
	next := &sensorBatch{pages: make(chan Page, 1)}
	err := e.eachSensor(ctx, after, func(s telemetry.SensorSeen) error {
		if s.Newest < max(start, e.state.From) {
			return nil
		}
		next.sensors, next.bytes = append(next.sensors, s.Sensor), next.bytes+len(s.Sensor)
		if len(next.sensors) < maxBatchSensors && next.bytes < maxBatchIDBytes {
			return nil
		}
		full := next
		next = &sensorBatch{pages: make(chan Page, 1)}
		return do(full)
	})
	if err != nil || len(next.sensors) == 0 {
		return err
	}
	return do(next)
}

// readBatch reads the pages of a batch.
func (e *export) readBatch(ctx context.Context, start int64, s *sensorBatch) error {
	q := PageQuery{Sensors: s.sensors, From: max(start, e.state.From), To: min(start+day.Milliseconds(), e.state.To), Limit: pageReadings}
	for {
		page, err := e.source.Readings(ctx, q)
		if errors.Is(err, ErrPageTooLarge) && q.Limit > 1 {
			q.Limit = max(1, q.Limit/8)
			continue
		}
		if err != nil {
			return fmt.Errorf("sensors %s to %s: %w", telemetry.Quote([]byte(s.sensors[0])), telemetry.Quote([]byte(s.last())), err)
		}
		if len(page.Lines) > 0 {
			select {
			case s.pages <- page:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if page.Next == "" {
			return nil
		}
		q.After = page.Next
	}
}

func (s *sensorBatch) last() string { return s.sensors[len(s.sensors)-1] }

// writeDays writes the file of each day that was read.
func (e *export) writeDays(ctx context.Context) error {
	written := int64(0)
	for i, d := range e.state.Days {
		if !d.Written {
			show := func(n int64) {
				e.cfg.Show(ExportProgress{Day: dayName(d.Day), Writing: true, Done: i, Days: len(e.state.Days), Readings: written + n})
			}
			if err := e.writeDay(ctx, d, show); err != nil {
				return fmt.Errorf("write %s: %w", dayName(d.Day), err)
			}
		}
		written += d.Readings
	}
	return nil
}

// writeDay creates a day's file from its spool.
func (e *export) writeDay(ctx context.Context, d *dayState, show func(int64)) error {
	spooled := e.folder.spoolPath(d.Day)
	ready := spooled
	if e.state.Format != files.NDJSON {
		ready = strings.TrimSuffix(spooled, ".ndjson.zst") + ".part"
		if err := e.convert(ctx, spooled, ready, show); err != nil {
			return err
		}
	}
	// An interruption may have come after NDJSON was renamed, and before that was recorded.
	if err := e.folder.publish(ready, d.Day); err != nil && (ready != spooled || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	info, err := os.Stat(e.folder.dayPath(d.Day))
	if err != nil {
		return fmt.Errorf("find the file of the day: %w", err)
	}
	d.Bytes, d.Written = info.Size(), true
	if err := e.folder.save(); err != nil {
		return err
	}
	if err := os.Remove(spooled); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a file that is not needed any more: %w", err)
	}
	return nil
}

// convert converts a spool to the format of the export.
func (e *export) convert(ctx context.Context, from, to string, show func(int64)) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("open the readings of the day: %w", err)
	}
	defer in.Close()
	file, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("create the file: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buf := bufio.NewWriterSize(file, 256<<10)
	out, err := files.NewWriter(e.state.Format, buf, &e.state.Columns)
	if err != nil {
		return err
	}
	n := int64(0)
	for row, err := range files.Read(files.NDJSON, in, 0, files.Options{}) {
		if err = errors.Join(err, row.Err); err == nil {
			err = out.Write(&row.Reading)
		}
		if err != nil {
			return fmt.Errorf("write the file: %w", err)
		}
		if n++; n%pageReadings == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			show(n)
		}
	}
	if err = out.Close(); err == nil {
		err = buf.Flush()
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the file: %w", err)
	}
	return nil
}

func (e *export) result() Exported {
	done := Exported{Folder: e.cfg.Dir, Format: e.state.Format, Files: len(e.state.Days), Continued: e.folder.found}
	if e.state.To > 0 {
		done.Begin, done.End = time.UnixMilli(e.state.From), time.UnixMilli(e.state.To)
	}
	for i, d := range e.state.Days {
		if i == 0 {
			done.From = dayName(d.Day)
		}
		done.To = dayName(d.Day)
		done.Readings += d.Readings
		done.Bytes += d.Bytes
	}
	return done
}
