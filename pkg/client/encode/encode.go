// Package encode lays readings out as a daemon takes them: as JSON for HTTP, and
// as WriteRequests for gRPC.
package encode

import (
	"math"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Check returns why a reading cannot be written as it is in JSON or protobuf, or
// nil. All other rules are the daemon's, for some depend on its settings.
func Check(r *telemetry.Reading) *telemetry.Refusal {
	if !utf8.ValidString(r.Sensor) {
		return telemetry.CheckSensor([]byte(r.Sensor))
	}
	for i := range r.Fields {
		if refusal := checkField(&r.Fields[i]); refusal != nil {
			return refusal
		}
	}
	for i := range r.Tags {
		t := &r.Tags[i]
		switch {
		case !utf8.ValidString(t.Name):
			return telemetry.CheckTagName([]byte(t.Name))
		case !utf8.ValidString(t.Value):
			return telemetry.CheckTagText([]byte(t.Name), []byte(t.Value))
		}
	}
	return nil
}

func checkField(f *telemetry.Field) *telemetry.Refusal {
	if !utf8.ValidString(f.Name) {
		return telemetry.CheckFieldName([]byte(f.Name))
	}
	switch f.Value.Kind() {
	case telemetry.Float:
		if v := f.Value.Float(); math.IsNaN(v) || math.IsInf(v, 0) {
			return telemetry.CheckFloat([]byte(f.Name), v)
		}
	case telemetry.Int, telemetry.Bool:
	case telemetry.Text:
		if !utf8.ValidString(f.Value.Text()) {
			return telemetry.CheckFieldText([]byte(f.Name), []byte(f.Value.Text()))
		}
	default:
		return telemetry.Refuse(telemetry.ValueType, "field %s has no value; it must be a number, a boolean or a string", telemetry.Quote([]byte(f.Name)))
	}
	return nil
}
