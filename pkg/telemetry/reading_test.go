package telemetry

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestValuesGiveBackWhatTheyWereMadeOf(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{0, 1.5, math.MaxFloat64, math.Copysign(0, -1)} {
		assert.Equal(t, Float, FloatValue(v).Kind())
		assert.Equal(t, math.Float64bits(v), math.Float64bits(FloatValue(v).Float()))
	}
	for _, v := range []int64{0, math.MaxInt64, math.MinInt64} {
		assert.Equal(t, Int, IntValue(v).Kind())
		assert.Equal(t, v, IntValue(v).Int())
	}
	assert.True(t, BoolValue(true).Bool())
	assert.False(t, BoolValue(false).Bool())
	assert.Equal(t, Bool, BoolValue(false).Kind())
	assert.Equal(t, "x", TextValue("x").Text())
	assert.Equal(t, Text, TextValue("").Kind())
	assert.NotEqual(t, IntValue(0), FloatValue(0), "values of other kinds differ")
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind]struct {
		name    string
		numeric bool
	}{Float: {"float", true}, Int: {"integer", true}, Bool: {"boolean", false}, Text: {"string", false}, 0: {"unknown", false}} {
		assert.Equal(t, want.name, kind.String())
		assert.Equal(t, want.numeric, kind.Numeric())
	}
}

func TestParseAck(t *testing.T) {
	t.Parallel()
	for _, want := range []Ack{Journaled, Stored} {
		got, err := ParseAck(string(want))
		assert.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, s := range []string{"", "Stored", "none"} {
		_, err := ParseAck(s)
		assert.ErrorContains(t, err, "allowed: journaled and stored")
	}
}

func TestErrorsKeepTheirKindWhenWrapped(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := &Error{Kind: Unavailable, Code: "full", Message: "no room", Err: cause}
	wrapped := fmt.Errorf("append batch: %w", err)
	assert.Equal(t, Unavailable, KindOf(wrapped))
	assert.ErrorIs(t, wrapped, cause)
	assert.Equal(t, "full: no room: cause", err.Error())
	assert.Equal(t, "full: no room 1", Errorf(Quota, "full", "no room %d", 1).Error())
	assert.Equal(t, Internal, KindOf(cause))
	assert.Equal(t, Internal, KindOf(nil))
	assert.Equal(t, "malformed: no 1", Refuse(Malformed, "no %d", 1).Error())
}

func TestAValueIsWhatItWasMadeOf(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 1.5, FloatValue(1.5).Any())
	assert.Equal(t, int64(-3), IntValue(-3).Any())
	assert.Equal(t, true, BoolValue(true).Any())
	assert.Equal(t, "x", TextValue("x").Any())
}
