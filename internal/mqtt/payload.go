package mqtt

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/brim-telemetry/brim/internal/ingest"
)

// A Format is a format of payloads.
type Format string

const (
	Auto      Format = "auto"      // detected, see formatOf
	Number    Format = "number"    // a number or a boolean
	JSON      Format = "json"      // readings
	Line      Format = "line"      // line protocol
	Sparkplug Format = "sparkplug" // Sparkplug B
)

// defaultField is the field name of a single value if the topic has none.
const defaultField = "value"

// sparkplugPrefix is the prefix of Sparkplug B topics.
const sparkplugPrefix = "spBv1.0/"

// formatOf detects the format of a payload.
func formatOf(payload []byte) (ingest.PayloadFormat, []byte, *refusal) {
	trimmed := bytes.TrimSpace(payload)
	if len(trimmed) == 0 {
		return "", nil, refuse(reasonEmpty, "the payload is empty")
	}
	switch trimmed[0] {
	case '{', '[':
		return ingest.PayloadJSON, payload, nil
	case '"':
		var text string
		if json.Unmarshal(trimmed, &text) == nil {
			return ingest.PayloadText, []byte(text), nil
		}
	}
	if _, ok := ingest.ParseNumber(trimmed); ok {
		return ingest.PayloadNumber, trimmed, nil
	}
	if looksLikeLine(trimmed) {
		return ingest.PayloadLine, payload, nil
	}
	switch strings.TrimLeft(strings.ToLower(string(trimmed[:min(len(trimmed), 16)])), "+-") {
	case "nan", "inf", "infinity", "null", "undefined":
		return "", nil, refuse(reasonNoValue, "the payload has no value")
	}
	return ingest.PayloadText, trimmed, nil
}

// looksLikeLine reports whether the first line is a comment, or has a field with a value after
// its first space.
func looksLikeLine(payload []byte) bool {
	line, _, _ := bytes.Cut(payload, []byte{'\n'})
	if line[0] == '#' {
		return true
	}
	for rest := line; ; {
		n := bytes.IndexByte(rest, ' ')
		if n <= 0 {
			return false
		}
		escaped := rest[n-1] == '\\'
		if rest = rest[n+1:]; !escaped {
			name, value, ok := bytes.Cut(rest, []byte{'='})
			return ok && len(name) > 0 && len(value) > 0 && strings.IndexByte(`0123456789-."tTfF`, value[0]) >= 0 &&
				!bytes.ContainsAny(bytes.ReplaceAll(name, []byte(`\ `), nil), " ,")
		}
	}
}
