// Package report shows what came of experiments: as text, which is Markdown, as
// JSON, and as a page with plots.
package report

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/brim-telemetry/brim/internal/bench"
)

// JSON writes a result as an object.
func JSON(w io.Writer, r *bench.Result) error { return writeJSON(w, r) }

// JSONAll writes results as an array of such objects.
func JSONAll(w io.Writer, results []*bench.Result) error { return writeJSON(w, results) }

// writeJSON writes what JSON has no number for as null: what could not be
// measured must not cost the rest.
func writeJSON(w io.Writer, v any) error {
	known := json.MarshalToFunc(func(e *jsontext.Encoder, v float64) error {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return e.WriteToken(jsontext.Null)
		}
		return errors.ErrUnsupported
	})
	err := json.MarshalWrite(w, v,
		json.WithMarshalers(known), json.Deterministic(true), jsontext.WithIndent("  "), jsontext.AllowInvalidUTF8(true),
		// What experiments tell of themselves has the tags of encoding/json.
		jsonv1.OmitEmptyWithLegacySemantics(true), jsonv1.FormatDurationAsNano(true))
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	if err != nil {
		return fmt.Errorf("write the result as JSON: %w", err)
	}
	return nil
}
