// Package report shows what came of a run of load: as text, JSON, an HTML page
// and an .hgrm file, beside another run's, and against conditions that it must
// not meet.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/brim-telemetry/brim/internal/load"
)

// Extras is what a report says beside the result.
type Extras struct {
	// Floor is an earlier result, of the same load against a stream with storage
	// memory: what the daemon, the generator and the network take by themselves.
	// nil: none. FloorPath is the file it came from.
	Floor     *load.Result
	FloorPath string
}

// written is a result with the verdict on it.
type written struct {
	Saturated    bool   `json:"saturated"`
	SaturatedWhy string `json:"saturated_why,omitempty"`
	*load.Result
}

// JSON writes the result as Read reads it.
func JSON(w io.Writer, r *load.Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	why := Saturation(r)
	if err := e.Encode(written{Saturated: why != "", SaturatedWhy: why, Result: r}); err != nil {
		return fmt.Errorf("write the result as JSON: %w", err)
	}
	return nil
}

// maxFile is far more than a run of a day, of a row a second, takes.
const maxFile = 256 << 20

var errNoResult = errors.New("it is not what brim load --output json prints")

// Read reads the result that JSON wrote to a file.
func Read(path string) (*load.Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read a result: %w", err) // names the file
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read a result: %w", err)
	case len(content) > maxFile:
		return nil, fmt.Errorf("read a result from %s: it has more than %d bytes; %w", path, maxFile, errNoResult)
	}
	var r load.Result
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("read a result from %s: %w; %w", path, errNoResult, err)
	}
	if r.Began.IsZero() || r.Setup.Protocol == "" || len(r.ByFill) != tenths || len(r.StoreByFill) != 0 && len(r.StoreByFill) != tenths {
		return nil, fmt.Errorf("read a result from %s: %w: begin, setup or by_fill are missing", path, errNoResult)
	}
	return &r, nil
}
