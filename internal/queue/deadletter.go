package queue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/gofrs/flock"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// DeadLettersName is the name of the file of dead letters in the data folder.
const DeadLettersName = "dead-letters.ndjson"

// A DeadLetter is a reading that the database refuses for its content.
type DeadLetter struct {
	// ID identifies the reading permanently. A reading may be put twice, if the process ended
	// before it noted the first time; both have the same ID.
	ID      string
	Stream  string
	Reading telemetry.Reading
	Reason  error
}

// DeadLetterFile stores dead letters as lines of JSON in one file. Its methods may be called by
// several goroutines, and by several processes with the same path, which use a lock file.
type DeadLetterFile struct {
	Path string // created with its folder when the first letter comes

	mu    sync.Mutex // waiting for it blocks no thread, unlike waiting for the lock file
	named bool       // the file's name is durable
}

// A KeptLetter is a line of the file.
type KeptLetter struct {
	ID      string          `json:"id"`
	At      string          `json:"at"` // RFC 3339
	Stream  string          `json:"stream"`
	Reason  string          `json:"reason"`
	Reading json.RawMessage `json:"reading"` // as the HTTP API takes it; not decoded, so that its numbers stay as they are
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

// append adds one line.
func (f *DeadLetterFile) append(line []byte) error {
	err := machine.AppendLines(f.Path, line)
	if err == nil && !f.named {
		// Even if the file existed, since an earlier process may have crashed before this.
		err = machine.SyncFolder(filepath.Dir(f.Path))
		f.named = err == nil
	}
	if err != nil {
		return fmt.Errorf("write dead letter: %w", err)
	}
	return nil
}

// locked calls do under the lock, when no other goroutine or process uses the file.
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

// A BrokenLine is a line of the file that is not a letter.
type BrokenLine struct {
	Number int // from 1
	Err    error
}

// Read returns the letters in the order of Put, each id once with its last reason, and the
// broken lines. A missing file has no letters. Read returns every letter for which Put has
// returned before.
func (f *DeadLetterFile) Read() (letters []KeptLetter, broken []BrokenLine, err error) {
	index := make(map[string]int)
	err = f.eachLine(func(number int, line []byte) error {
		letter, err := parseLetter(line)
		at, known := index[letter.ID]
		switch {
		case err != nil:
			broken = append(broken, BrokenLine{Number: number, Err: err})
		case known:
			letters[at] = letter
		default:
			index[letter.ID] = len(letters)
			letters = append(letters, letter)
		}
		return nil
	}, nil)
	return letters, broken, err
}

// An Outcome is the result of trying a letter again.
type Outcome struct {
	Gone   bool   // remove it
	Reason string // keep it, with this reason
}

// Settle applies outcomes by id. Other letters and broken lines do not change, including those
// that were added since Read. The file is replaced atomically.
func (f *DeadLetterFile) Settle(outcomes map[string]Outcome) error {
	var left bytes.Buffer
	return f.eachLine(func(_ int, line []byte) error {
		letter, err := parseLetter(line)
		if outcome, ok := outcomes[letter.ID]; err == nil && ok {
			if outcome.Gone {
				return nil
			}
			letter.Reason = outcome.Reason
			if line, err = json.Marshal(letter); err != nil {
				return fmt.Errorf("encode dead letter: %w", err)
			}
		}
		left.Write(line)
		left.WriteByte('\n')
		return nil
	}, func() error {
		err := machine.ReplaceFile(f.Path, left.Bytes(), func(file *os.File) error { return file.Chmod(0o640) })
		if err != nil {
			return fmt.Errorf("replace dead letters: %w", err)
		}
		return nil
	})
}

// eachLine calls visit for every line that is not empty, and then finish, if it is
// not nil, under one lock. Without a file it creates no folder and no lock.
func (f *DeadLetterFile) eachLine(visit func(number int, line []byte) error, finish func() error) error {
	if _, err := os.Stat(f.Path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("open dead letters: %w", err)
	}
	return f.locked(func() error {
		content, err := os.ReadFile(f.Path)
		if err != nil {
			return fmt.Errorf("read dead letters: %w", err)
		}
		number := 0
		for line := range bytes.Lines(content) {
			number++
			if line = bytes.TrimSpace(line); len(line) > 0 {
				if err := visit(number, line); err != nil {
					return err
				}
			}
		}
		if finish == nil {
			return nil
		}
		return finish()
	})
}

// parseLetter parses one line. Letters in the first version of the file have no id; they get
// one from their content.
func parseLetter(line []byte) (KeptLetter, error) {
	var letter KeptLetter
	if err := json.Unmarshal(line, &letter); err != nil {
		return letter, fmt.Errorf("the line is not a dead letter: %w", err)
	}
	if letter.Stream == "" || len(letter.Reading) == 0 || letter.Reading[0] != '{' {
		return letter, errors.New("the line is not a dead letter: it has no stream or no reading")
	}
	if letter.ID == "" {
		letter.ID = fmt.Sprintf("x%016x", xxhash.Sum64(line))
	}
	return letter, nil
}
