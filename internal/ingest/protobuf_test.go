package ingest

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

func TestPlainFormIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, anyTime)
	_, r := writeMessage(t, d, &telemetrypb.WriteRequest{Readings: []*telemetrypb.Reading{{
		SensorId: "s-1", TsMs: proto.Int64(0),
		Tags: []*telemetrypb.Tag{{Name: "b", Value: "2"}, {Name: "a"}},
		Fields: []*telemetrypb.Field{
			pbDouble("d", -0.5), pbDouble("zero", 0),
			{Name: "min", Value: &telemetrypb.Field_IntValue{IntValue: math.MinInt64}},
			{Name: "max", Value: &telemetrypb.Field_IntValue{IntValue: math.MaxInt64}},
			{Name: "no", Value: &telemetrypb.Field_BoolValue{}},
			{Name: "yes", Value: &telemetrypb.Field_BoolValue{BoolValue: true}},
			{Name: "text", Value: &telemetrypb.Field_StringValue{StringValue: "ö"}},
			{Name: "empty", Value: &telemetrypb.Field_StringValue{}},
		},
	}}})
	assert.Equal(t, allTaken, r)
	got := j.readings()[0]
	assert.Equal(t, "s-1", got.Sensor)
	assert.EqualValues(t, 0, got.Time.UnixMilli())
	assert.Equal(t, []telemetry.Tag{{Name: "a"}, {Name: "b", Value: "2"}}, got.Tags)
	assert.Equal(t, []telemetry.Field{
		{Name: "d", Value: telemetry.FloatValue(-0.5)}, {Name: "zero", Value: telemetry.FloatValue(0)},
		{Name: "min", Value: telemetry.IntValue(math.MinInt64)}, {Name: "max", Value: telemetry.IntValue(math.MaxInt64)},
		{Name: "no", Value: telemetry.BoolValue(false)}, {Name: "yes", Value: telemetry.BoolValue(true)},
		{Name: "text", Value: telemetry.TextValue("ö")}, {Name: "empty", Value: telemetry.TextValue("")},
	}, got.Fields)
}

func TestCompactFormIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, anyTime)
	response, r := writeMessage(t, d, &telemetrypb.WriteRequest{Series: []*telemetrypb.Series{{
		SensorId: "s", Tags: []*telemetrypb.Tag{{Name: "a", Value: "1"}}, TsMs: []int64{3, 1, 2},
		Columns: []*telemetrypb.Column{
			{Name: "d", Doubles: []float64{1, math.NaN()}, Absent: []uint32{0}},
			{Name: "i", Ints: []int64{10, 11, 12}},
			{Name: "b", Bools: []bool{true, false}, Absent: []uint32{1}},
			{Name: "t", Strings: []string{"x"}, Absent: []uint32{0, 2}},
			{Name: "none", Absent: []uint32{0, 1, 2}},
		},
	}, {SensorId: "nothing"}, {SensorId: "second", TsMs: []int64{4}, Columns: []*telemetrypb.Column{{Name: "i", Ints: []int64{1}}}}}})
	assert.Equal(t, partlyTaken, r)
	require.Len(t, response.GetErrors(), 1)
	assert.EqualValues(t, 2, response.GetErrors()[0].GetIndex())
	assert.Equal(t, "value_not_finite", response.GetErrors()[0].GetCode())
	readings := j.readings()
	require.Len(t, readings, 3)
	assert.EqualValues(t, 3, readings[0].Time.UnixMilli())
	assert.Equal(t, []telemetry.Tag{{Name: "a", Value: "1"}}, readings[1].Tags)
	assert.Equal(t, []telemetry.Field{{Name: "i", Value: telemetry.IntValue(10)}, {Name: "b", Value: telemetry.BoolValue(true)}}, readings[0].Fields)
	assert.Equal(t, []telemetry.Field{{Name: "d", Value: telemetry.FloatValue(1)}, {Name: "i", Value: telemetry.IntValue(11)}, {Name: "t", Value: telemetry.TextValue("x")}}, readings[1].Fields)
	assert.Equal(t, "second", readings[2].Sensor)
	assert.EqualValues(t, 3, j.batches[0].Row(2).Index, "rows go on counting behind those of the series before")
}

func TestColumnsThatDoNotFitRefuseAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		message string
		column  *telemetrypb.Column
	}{
		{`series 0: column "c" has 1 values and 0 absent rows, but there are 2 rows`, &telemetrypb.Column{Ints: []int64{1}}},
		{`series 0: column "c" has more values or absent rows than the 2 rows`, &telemetrypb.Column{Doubles: []float64{1, 2, 3}}},
		{`has 2 values and 1 absent rows`, &telemetrypb.Column{Bools: []bool{true, true}, Absent: []uint32{0}}},
		{`has values of different types; one type is allowed`, &telemetrypb.Column{Ints: []int64{1}, Strings: []string{""}}},
		{`the numbers of absent rows must rise from 0 to 1`, &telemetrypb.Column{Ints: []int64{1}, Absent: []uint32{2}}},
		{`the numbers of absent rows must rise from 0 to 1`, &telemetrypb.Column{Absent: []uint32{1, 0}}},
		{`the numbers of absent rows must rise from 0 to 1`, &telemetrypb.Column{Absent: []uint32{1, 1}}},
	} {
		d, _ := newTestServer(t)
		c.column.Name = "c"
		message, err := proto.Marshal(&telemetrypb.WriteRequest{Series: []*telemetrypb.Series{{SensorId: "s", TsMs: []int64{1, 2}, Columns: []*telemetrypb.Column{c.column}}}})
		require.NoError(t, err)
		err = d.newIntake(d.streams["readings"], telemetry.Stored).decodeProtobuf(message)
		require.ErrorContains(t, err, "malformed: ")
		assert.ErrorContains(t, err, c.message)
		assert.ErrorContains(t, err, "; nothing was accepted")
	}
}

// TestRareEncodings holds what the protobuf encoding allows and few encoders
// do: lists that are not packed or in pieces, fields in any order and twice,
// unknown fields, and known ones of another type.
func TestRareEncodings(t *testing.T) {
	t.Parallel()
	var column, series, message []byte
	column = protowire.AppendVarint(protowire.AppendTag(column, 3, protowire.VarintType), protowire.EncodeZigZag(-5))
	column = protowire.AppendBytes(protowire.AppendTag(column, 3, protowire.BytesType), []byte{2, 4}) // 1, 2
	column = protowire.AppendFixed32(protowire.AppendTag(column, 3, protowire.Fixed32Type), 7)
	column = protowire.AppendString(protowire.AppendTag(column, 1, protowire.BytesType), "old name")
	column = protowire.AppendString(protowire.AppendTag(column, 1, protowire.BytesType), "i")
	series = protowire.AppendBytes(protowire.AppendTag(series, 4, protowire.BytesType), column)
	series = protowire.AppendBytes(protowire.AppendTag(series, 3, protowire.BytesType), []byte{1, 2})
	series = protowire.AppendVarint(protowire.AppendTag(series, 3, protowire.VarintType), 3)
	series = protowire.AppendVarint(protowire.AppendTag(series, 1000, protowire.VarintType), 3)
	series = protowire.AppendString(protowire.AppendTag(series, 1, protowire.BytesType), "s")
	message = protowire.AppendBytes(protowire.AppendTag(message, 5, protowire.BytesType), series)
	message = protowire.AppendTag(message, 77, protowire.StartGroupType)
	message = protowire.AppendTag(message, 77, protowire.EndGroupType)

	d, _ := newTestServer(t, anyTime)
	in := d.newIntake(d.streams["readings"], telemetry.Stored)
	require.NoError(t, in.decodeProtobuf(message))
	require.Empty(t, in.answer.Errors)
	b := in.builder.Batch()
	require.Equal(t, 3, b.Len())
	for i, want := range []int64{-5, 1, 2} {
		r := b.Reading(uint32(i))
		assert.Equal(t, []telemetry.Field{{Name: "i", Value: telemetry.IntValue(want)}}, r.Fields)
		assert.EqualValues(t, i+1, r.Time.UnixMilli())
	}
}

func TestDecoderKeepsNothingOfTheLastSeries(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, anyTime)
	wide := &telemetrypb.Series{SensorId: "wide", TsMs: []int64{1}, Tags: []*telemetrypb.Tag{{Name: "a"}}, Columns: []*telemetrypb.Column{
		{Name: "a", Ints: []int64{1}}, {Name: "b", Strings: []string{"x"}}, {Name: "c", Absent: []uint32{0}}}}
	narrow := &telemetrypb.Series{SensorId: "narrow", TsMs: []int64{2}, Columns: []*telemetrypb.Column{{Name: "a", Doubles: []float64{2}}}}
	_, r := writeMessage(t, d, &telemetrypb.WriteRequest{Series: []*telemetrypb.Series{wide, narrow, wide}})
	assert.Equal(t, allTaken, r)
	readings := j.readings()
	require.Len(t, readings, 3)
	assert.Equal(t, readings[0], readings[2])
	assert.Empty(t, readings[1].Tags)
	assert.Equal(t, []telemetry.Field{{Name: "a", Value: telemetry.FloatValue(2)}}, readings[1].Fields)
}

func TestTooManyColumnsRefuseTheirRows(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, anyTime)
	series := &telemetrypb.Series{SensorId: "s", TsMs: []int64{1, 2}}
	for range 600 {
		series.Columns = append(series.Columns, &telemetrypb.Column{Name: "c", Ints: []int64{1, 2}})
	}
	response, r := writeMessage(t, d, &telemetrypb.WriteRequest{Series: []*telemetrypb.Series{series}})
	assert.Equal(t, nothingTaken, r)
	assert.Equal(t, "fields_too_many", response.GetErrors()[1].GetCode())
	assert.Empty(t, j.readings())

	// Of these columns no row has more than 200.
	series.Columns = series.Columns[:0]
	for i := range uint32(400) {
		series.Columns = append(series.Columns, &telemetrypb.Column{Name: fmt.Sprint("c", i), Ints: []int64{1}, Absent: []uint32{i / 200}})
	}
	response, r = writeMessage(t, d, &telemetrypb.WriteRequest{Series: []*telemetrypb.Series{series}})
	assert.Equal(t, nothingTaken, r)
	assert.Contains(t, response.GetErrors()[1].GetMessage(), "the series has more than 256 columns")
	assert.Empty(t, j.readings())
}

// TestFieldsOfASeriesInAnyOrder has a tag after the columns, so that a series is decoded
// in two passes. The second pass must not treat the series as a repetition.
func TestFieldsOfASeriesInAnyOrder(t *testing.T) {
	t.Parallel()
	text := func(b []byte, n protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
	}
	bytes := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	var message []byte
	for _, s := range [][]string{{"s1", "a", "b"}, {"s2", "x", "y"}} {
		series := bytes(text(nil, 1, s[0]), 3, []byte{1})
		for _, name := range s[1:] {
			series = bytes(series, 4, bytes(text(nil, 1, name), 3, []byte{2}))
		}
		message = bytes(message, 5, bytes(series, 2, text(text(nil, 1, "k"), 2, "v")))
	}
	d, _ := newTestServer(t, anyTime)
	in := d.newIntake(d.streams["readings"], telemetry.Stored)
	require.NoError(t, in.decodeProtobuf(message))
	require.Empty(t, in.answer.Errors)
	made := in.builder.Batch()
	for i, want := range [][]string{{"a", "b"}, {"x", "y"}} {
		r := made.Reading(uint32(i))
		require.Len(t, r.Fields, 2)
		assert.Equal(t, want, []string{r.Fields[0].Name, r.Fields[1].Name})
		assert.Equal(t, []telemetry.Tag{{Name: "k", Value: "v"}}, r.Tags)
	}
}
