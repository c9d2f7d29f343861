package queue

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A DeadLetter is a reading that the database refuses for its content.
type DeadLetter struct {
	ID      string // of the reading: its session and sequence
	Stream  string
	Reading telemetry.Reading
	Reason  error
}

// DeadLetterFile keeps dead letters as lines of JSON in one file: when, which
// stream, why, and the reading as the HTTP API takes it.
type DeadLetterFile struct {
	Path string // created with its folder when the first letter comes

	mu sync.Mutex
}

// deadLetter is one line of the file.
type deadLetter struct {
	ID      string            `json:"id"`
	At      string            `json:"at"`
	Stream  string            `json:"stream"`
	Reason  string            `json:"reason"`
	Reading telemetry.Reading `json:"reading"`
}

// Put implements DeadLetters: the line is fsynced when it returns.
func (f *DeadLetterFile) Put(letter DeadLetter) error {
	line, err := json.Marshal(deadLetter{
		ID: letter.ID, At: time.Now().UTC().Format(telemetry.TimeFormat), Stream: letter.Stream, Reason: letter.Reason.Error(), Reading: letter.Reading,
	})
	if err != nil {
		return fmt.Errorf("encode dead letter: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o750); err != nil {
		return fmt.Errorf("make folder of dead letters: %w", err)
	}
	file, err := os.OpenFile(f.Path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("open dead letters: %w", err)
	}
	if _, err = file.Write(append(line, '\n')); err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write dead letter: %w", err)
	}
	return nil
}
