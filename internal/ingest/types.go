package ingest

import (
	"mime"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// formOf returns the form of a body of this Content-Type.
func formOf(contentType string) (form, error) {
	switch contentType { // as nearly all write it
	case "":
		return formGuess, nil
	case "application/json":
		return formJSON, nil
	case "application/x-ndjson":
		return formLines, nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err == nil {
		switch media {
		case "application/json":
			return formJSON, nil
		case "application/x-ndjson", "application/ndjson", "application/jsonl":
			return formLines, nil
		case "application/x-www-form-urlencoded": // what curl -d sends if not told otherwise
			return formGuess, nil
		}
	}
	return 0, telemetry.Errorf(telemetry.Unsupported, codeTypeUnknown,
		"Content-Type %s cannot be read; allowed are application/json and application/x-ndjson", telemetry.Quote([]byte(contentType)))
}
