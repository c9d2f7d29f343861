package files

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// metadataKey is the key of the file metadata that Brim needs to read a file back.
const metadataKey = "brim"

type metadata struct {
	Tags []string `json:"tags,omitempty"` // names of columns
}

// A row group ends when it reaches this many rows or bytes of values.
const (
	groupRows    = 1 << 18
	groupBytes   = 32 << 20
	rowBatchSize = 256
)

type parquetWriter struct {
	w       *parquet.GenericWriter[any]
	layout  *layout
	columns []Column
	rows    []parquet.Row // the first filled are in use, the others can be reused
	filled  int
	inGroup int // rows
	bytes   int
}

// orderedGroup is a group whose columns keep their order; parquet.Group sorts them.
type orderedGroup struct {
	parquet.Group

	names []string
}

func (o orderedGroup) Fields() []parquet.Field {
	fields := o.Group.Fields() // sorted by name
	out := make([]parquet.Field, 0, len(fields))
	for _, name := range o.names {
		i, _ := slices.BinarySearchFunc(fields, name, func(f parquet.Field, name string) int { return cmp.Compare(f.Name(), name) })
		out = append(out, fields[i])
	}
	return out
}

func newParquetWriter(w io.Writer, columns []Column) *parquetWriter {
	group, names := parquet.Group{
		columnTime:   parquet.Encoded(parquet.Timestamp(parquet.Millisecond), &parquet.DeltaBinaryPacked),
		columnSensor: parquet.Encoded(parquet.String(), &parquet.RLEDictionary),
	}, []string{columnTime, columnSensor}
	m := metadata{}
	for _, c := range columns {
		var node parquet.Node
		switch c.Kind {
		case telemetry.Float:
			node = parquet.Leaf(parquet.DoubleType)
		case telemetry.Int:
			node = parquet.Encoded(parquet.Int(64), &parquet.DeltaBinaryPacked)
		case telemetry.Bool:
			node = parquet.Leaf(parquet.BooleanType)
		default:
			node = parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
		}
		group[c.Name] = parquet.Optional(node)
		names = append(names, c.Name)
		if c.Tag {
			m.Tags = append(m.Tags, c.Name)
		}
	}
	text, _ := json.Marshal(m) // marshaling strings cannot fail
	out := parquet.NewGenericWriter[any](w, parquet.NewSchema("readings", orderedGroup{group, names}),
		parquet.Compression(&zstd.Codec{Level: zstd.DefaultLevel}), parquet.KeyValueMetadata(metadataKey, string(text)),
		parquet.PageBufferSize(64<<10), parquet.CreatedBy("brim", "", ""), parquet.DataPageStatistics(true))
	return &parquetWriter{w: out, layout: newLayout(columns), columns: columns, rows: make([]parquet.Row, rowBatchSize)}
}

const headColumns = 2 // time and sensor

func (p *parquetWriter) Write(r *telemetry.Reading) error {
	row := p.rows[p.filled]
	if row == nil {
		row = make(parquet.Row, headColumns+len(p.columns))
		p.rows[p.filled] = row
	}
	for i := range p.columns {
		row[headColumns+i] = parquet.NullValue().Level(0, 0, headColumns+i)
	}
	row[0] = parquet.Int64Value(r.Time.UnixMilli()).Level(0, 0, 0)
	row[1] = parquet.ByteArrayValue([]byte(r.Sensor)).Level(0, 0, 1)
	set := func(column int, v parquet.Value) {
		row[headColumns+column] = v.Level(0, 1, headColumns+column)
	}
	p.bytes += 16 + len(r.Sensor) + len(p.columns)
	for i := range r.Fields {
		f := &r.Fields[i]
		kind := f.Value.Kind()
		places := p.layout.fields[f.Name]
		column := places.of[kind]
		p.bytes += 8 + len(f.Value.Text())
		switch kind {
		case telemetry.Int:
			if p.columns[column].Kind == telemetry.Float {
				set(column, parquet.DoubleValue(float64(f.Value.Int())))
				column = places.ints
			}
			set(column, parquet.Int64Value(f.Value.Int()))
		case telemetry.Bool:
			set(column, parquet.BooleanValue(f.Value.Bool()))
		case telemetry.Text:
			set(column, parquet.ByteArrayValue([]byte(f.Value.Text())))
		default:
			set(column, parquet.DoubleValue(f.Value.Float()))
		}
	}
	for i := range r.Tags {
		t := &r.Tags[i]
		p.bytes += len(t.Value)
		set(p.layout.tags[t.Name], parquet.ByteArrayValue([]byte(t.Value)))
	}
	if p.filled++; p.filled < len(p.rows) {
		return nil
	}
	return p.flush()
}

// flush writes the rows, and ends the row group if it is large enough.
func (p *parquetWriter) flush() error {
	if _, err := p.w.WriteRows(p.rows[:p.filled]); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	p.inGroup += p.filled
	p.filled = 0
	if p.inGroup < groupRows && p.bytes < groupBytes {
		return nil
	}
	p.inGroup, p.bytes = 0, 0
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("write row group: %w", err)
	}
	return nil
}

func (p *parquetWriter) Close() error {
	if err := p.flush(); err != nil {
		return err
	}
	if err := p.w.Close(); err != nil {
		return fmt.Errorf("end file: %w", err)
	}
	return nil
}

// A parquetColumn is how a column is read.
type parquetColumn struct {
	source

	read     func(parquet.Value) (telemetry.Value, bool) // of a field
	time     func(parquet.Value) time.Time
	unsigned bool // its integers have no sign
}

func readParquet(r io.ReaderAt, size int64, o Options) Rows {
	return func(yield func(Row, error) bool) {
		var f *parquet.File
		var columns []parquetColumn
		err := catchPanic(func() (err error) {
			if f, err = parquet.OpenFile(r, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true)); err != nil {
				return fmt.Errorf("this is not a readable Parquet file: %w", err)
			}
			columns, err = parquetColumns(f, o)
			return err
		})
		if err != nil {
			yield(Row{}, err)
			return
		}
		number, words := int64(0), make(interner)
		batch := make([]parquet.Row, rowBatchSize)
		for _, group := range f.RowGroups() {
			rows := group.Rows()
			more, err := yieldGroup(rows, batch, func(row parquet.Row) bool {
				number++
				one := Row{Line: number}
				one.Err = readRow(row, columns, words, &one.Reading)
				return yield(one, nil)
			})
			_ = rows.Close() // nothing was written
			if err != nil {
				yield(Row{}, fmt.Errorf("read the rows after %d: %w", number, err))
				return
			}
			if !more {
				return
			}
		}
	}
}

// catchPanic calls a function of the library, and returns a panic as an error: it panics on some
// damaged files.
func catchPanic(call func() error) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("the file is damaged: %v", problem)
		}
	}()
	return call()
}

func yieldGroup(rows parquet.Rows, batch []parquet.Row, yield func(parquet.Row) bool) (more bool, err error) {
	for {
		n := 0
		err := catchPanic(func() (err error) {
			n, err = rows.ReadRows(batch)
			return err
		})
		for _, row := range batch[:n] {
			if !yield(row) {
				return false, nil
			}
		}
		if errors.Is(err, io.EOF) || err == nil && n == 0 {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}

func parquetColumns(f *parquet.File, o Options) ([]parquetColumn, error) {
	fields := f.Schema().Fields()
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.Name()
	}
	tags := slices.Clone(o.Tags)
	if text, ok := f.Lookup(metadataKey); ok {
		var m metadata
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return nil, fmt.Errorf("read the metadata %q: %w", metadataKey, err)
		}
		tags = append(tags, m.Tags...)
	}
	sources, err := sourcesOf(names, tags)
	if err != nil {
		return nil, err
	}
	out := make([]parquetColumn, len(fields))
	for i, field := range fields {
		c := parquetColumn{source: sources[i]}
		wrong := fmt.Errorf("column %s has the type %s, which cannot be read; allowed: numbers, booleans and strings, and for ts also timestamps", telemetry.Quote([]byte(names[i])), field)
		if !field.Leaf() || field.Repeated() {
			return nil, wrong
		}
		if c.kind == fromTime {
			c.time = timeReader(field.Type())
		} else {
			c.read, c.unsigned = valueReader(field.Type()), isUnsigned(field.Type())
		}
		text := field.Type().Kind() == parquet.ByteArray
		if c.time == nil && c.read == nil || (c.kind == fromTag || c.kind == fromSensor) && !text {
			return nil, wrong
		}
		out[i] = c
	}
	return out, nil
}

// timeReader returns a reader of timestamps with a unit, milliseconds, or text; nil for other
// types.
func timeReader(t parquet.Type) func(parquet.Value) time.Time {
	logical, _ := logicalType(t).(*format.TimestampType)
	switch {
	case t.Kind() == parquet.Int64 && logical != nil && logical.Unit.Value != nil:
		unit := int64(logical.Unit.Value.Duration())
		perSecond := int64(time.Second) / unit
		return func(v parquet.Value) time.Time {
			n := v.Int64()
			return floorMillis(time.Unix(n/perSecond, n%perSecond*unit))
		}
	case t.Kind() == parquet.Int64:
		return func(v parquet.Value) time.Time { return time.UnixMilli(v.Int64()).UTC() }
	case t.Kind() == parquet.Int96:
		return func(v parquet.Value) time.Time { return julian(v.Int96()) }
	case t.Kind() == parquet.ByteArray:
		return func(v parquet.Value) time.Time {
			at, _ := parseTime(string(v.ByteArray())) // a zero time is reported as missing
			return at
		}
	}
	return nil
}

// julian converts a time as older programs write it: a Julian day and its nanoseconds.
func julian(v deprecated.Int96) time.Time {
	const epoch = 2_440_588 // the Julian day of 1970-01-01
	nanos := int64(uint64(v[1])<<32 | uint64(v[0]))
	return floorMillis(time.Unix((int64(v[2])-epoch)*86400, nanos))
}

func logicalType(t parquet.Type) format.LogicalTypeValue {
	if l := t.LogicalType(); l != nil {
		return l.Value
	}
	return nil
}

func isUnsigned(t parquet.Type) bool {
	integer, ok := logicalType(t).(*format.IntType)
	return ok && !integer.IsSigned
}

// valueReader returns a reader of numbers, booleans and strings, which omits NaN, because it means
// no value; nil for other types.
func valueReader(t parquet.Type) func(parquet.Value) (telemetry.Value, bool) {
	switch logicalType(t).(type) {
	case *format.TimestampType, *format.DateType, *format.TimeType, *format.DecimalType:
		return nil
	}
	float := func(f float64) (telemetry.Value, bool) { return telemetry.FloatValue(f), !math.IsNaN(f) }
	switch t.Kind() {
	case parquet.Boolean:
		return func(v parquet.Value) (telemetry.Value, bool) { return telemetry.BoolValue(v.Boolean()), true }
	case parquet.Int32:
		if isUnsigned(t) {
			return func(v parquet.Value) (telemetry.Value, bool) { return telemetry.IntValue(int64(v.Uint32())), true }
		}
		return func(v parquet.Value) (telemetry.Value, bool) { return telemetry.IntValue(int64(v.Int32())), true }
	case parquet.Int64:
		return func(v parquet.Value) (telemetry.Value, bool) { return telemetry.IntValue(v.Int64()), true }
	case parquet.Float:
		return func(v parquet.Value) (telemetry.Value, bool) { return float(float64(v.Float())) }
	case parquet.Double:
		return func(v parquet.Value) (telemetry.Value, bool) { return float(v.Double()) }
	case parquet.ByteArray:
		return func(v parquet.Value) (telemetry.Value, bool) {
			return telemetry.TextValue(string(v.ByteArray())), true
		}
	}
	return nil
}

func readRow(row parquet.Row, columns []parquetColumn, words interner, r *telemetry.Reading) error {
	r.Fields = make([]telemetry.Field, 0, len(columns)-headColumns)
	for _, v := range row {
		if v.IsNull() {
			continue
		}
		c := &columns[v.Column()]
		switch c.kind {
		case fromTime:
			r.Time = c.time(v)
		case fromSensor:
			r.Sensor = words.of(v.ByteArray())
		case fromTag:
			r.Tags = append(r.Tags, telemetry.Tag{Name: c.name, Value: words.of(v.ByteArray())})
		case fromField:
			if c.unsigned && v.Kind() == parquet.Int64 && v.Int64() < 0 {
				return fmt.Errorf("field %s is %d, which does not fit a signed 64-bit integer", telemetry.Quote([]byte(c.name)), v.Uint64())
			}
			if value, ok := c.read(v); ok {
				c.set(r, value)
			}
		}
	}
	if r.Time.IsZero() {
		return errors.New("ts is missing")
	}
	return nil
}
