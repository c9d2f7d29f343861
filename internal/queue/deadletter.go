package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// DeadLettersName is the name of the file of dead letters in the data folder.
const DeadLettersName = "dead-letters.ndjson"

// A DeadLetter is a reading that the database refuses for its content.
type DeadLetter struct {
	// ID names the reading for ever: one that is put twice, because the process
	// ended between putting it aside and noting that, is the same letter.
	ID      string
	Stream  string
	Reading telemetry.Reading
	Reason  error
}

// DeadLetterFile keeps dead letters as lines of JSON in one file: the id, when,
// which stream, why, and the reading as the HTTP API takes it. Its methods may
// be called by several goroutines, and by several processes for one path: a lock
// file beside it keeps them apart.
type DeadLetterFile struct {
	Path string // created with its folder when the first letter comes

	mu    sync.Mutex // within the process, so that waiting costs no thread
	named bool       // the file's name is durable
}

// A KeptLetter is a line of the file.
type KeptLetter struct {
	ID      string          `json:"id"`
	At      string          `json:"at"` // RFC 3339
	Stream  string          `json:"stream"`
	Reason  string          `json:"reason"`
	Reading json.RawMessage `json:"reading"` // as the HTTP API takes it; undecoded, so that its numbers stay as they are
}

// Put implements DeadLetters: the line is fsynced when it returns.
func (f *DeadLetterFile) Put(letter DeadLetter) error {
	line, err := json.Marshal(KeptLetter{
		ID: letter.ID, At: time.Now().UTC().Format(telemetry.TimeFormat), Stream: letter.Stream,
		Reason: letter.Reason.Error(), Reading: letter.Reading.AppendJSON(nil),
	})
	if err != nil {
		return fmt.Errorf("encode dead letter: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o750); err != nil {
		return fmt.Errorf("make folder of dead letters: %w", err)
	}
	return f.locked(func() error { return f.append(append(line, '\n')) })
}

// append writes one line behind the others. What a crash left of a line before
// is ended first, so that it spoils no other.
func (f *DeadLetterFile) append(line []byte) (err error) {
	file, err := os.OpenFile(f.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("open dead letters: %w", err)
	}
	defer func() {
		if closeErr := file.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("close dead letters: %w", closeErr)
		}
	}()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("look at dead letters: %w", err)
	}
	if size > 0 {
		var last [1]byte
		if _, err := file.ReadAt(last[:], size-1); err != nil {
			return fmt.Errorf("look at dead letters: %w", err)
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err = file.Write(line); err == nil {
		err = file.Sync()
	}
	// A process before this one may have ended between the two.
	if err == nil && !f.named {
		err = syncFolder(filepath.Dir(f.Path))
		f.named = err == nil
	}
	if err != nil {
		return fmt.Errorf("write dead letter: %w", err)
	}
	return nil
}

// locked calls do while nobody else reads or writes the file. It waits for who
// does, which takes no longer than writing the file.
func (f *DeadLetterFile) locked(do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := flock.New(f.Path+".lock", flock.SetPermissions(0o640))
	if err := l.Lock(); err != nil {
		return fmt.Errorf("lock dead letters: %w", err)
	}
	err := do()
	if unlockErr := l.Unlock(); err == nil && unlockErr != nil {
		err = fmt.Errorf("unlock dead letters: %w", unlockErr)
	}
	return err
}

// exists reports whether any letter was ever put; where none was, reading makes
// no folder and no lock.
func (f *DeadLetterFile) exists() (bool, error) {
	_, err := os.Stat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("look for dead letters: %w", err)
	}
	return true, nil
}

// syncFolder makes a new name in a folder durable.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no such call: its file system journals names by itself
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
