package queue

import (
	"bufio"
	"bytes"
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

	"github.com/cespare/xxhash/v2"
	"github.com/gofrs/flock"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// DeadLettersName is the name of the file of dead letters in the data folder.
const DeadLettersName = "dead-letters.ndjson"

// A DeadLetter is a reading that the database refuses for its content.
type DeadLetter struct {
	// ID names the reading for good. One that is put twice, because the process ended
	// before the first time was noted, is the same letter.
	ID      string
	Stream  string
	Reading telemetry.Reading
	Reason  error
}

// DeadLetterFile keeps dead letters as lines of JSON in one file. Its methods may be
// called by several goroutines, and by several processes for one path: a lock file
// beside it keeps them apart.
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

// append adds one line. It first ends an incomplete line that a crash left, so that
// it spoils no other.
func (f *DeadLetterFile) append(line []byte) (err error) {
	file, err := os.OpenFile(f.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("open dead letters: %w", err)
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = fmt.Errorf("write dead letter: %w", err)
		}
	}()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size > 0 {
		var last [1]byte
		if _, err := file.ReadAt(last[:], size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err = file.Write(line); err != nil {
		return err
	}
	if err = file.Sync(); err != nil || f.named {
		return err
	}
	// Even if the file existed: an earlier process may have ended before this.
	err = syncFolder(filepath.Dir(f.Path))
	f.named = err == nil
	return err
}

// locked calls do while no other goroutine or process reads or writes the file. It
// waits for them, which takes no longer than writing the file.
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

// exists reports whether any letter was ever put. If none was, reading makes no
// folder and no lock.
func (f *DeadLetterFile) exists() (bool, error) {
	_, err := os.Stat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// syncFolder makes a new name in a folder durable.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // NTFS journals names and has no such call
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// A BrokenLine is a line of the file that is not a letter.
type BrokenLine struct {
	Number int // from 1
	Err    error
}

// Read returns the letters in the order in which they came, each id once with its
// last reason, and the broken lines. A file that does not exist holds none. It sees
// every letter whose Put returned before.
func (f *DeadLetterFile) Read() (letters []KeptLetter, broken []BrokenLine, err error) {
	if exists, err := f.exists(); !exists {
		return nil, nil, err
	}
	place := make(map[string]int)
	err = f.locked(func() error {
		return f.eachLine(func(number int, line []byte) error {
			letter, err := parseLetter(line)
			at, known := place[letter.ID]
			switch {
			case err != nil:
				broken = append(broken, BrokenLine{Number: number, Err: err})
			case known:
				letters[at] = letter
			default:
				place[letter.ID] = len(letters)
				letters = append(letters, letter)
			}
			return nil
		})
	})
	return letters, broken, err
}

// An Outcome is what became of a letter that was tried again.
type Outcome struct {
	Gone   bool   // it is taken out
	Reason string // it stays, with this reason
}

// Settle notes outcomes by id. Other letters and broken lines stay as they are, also
// those that were put since they were read. The file is replaced as a whole, so that
// a crash leaves the old one or the new one.
func (f *DeadLetterFile) Settle(outcomes map[string]Outcome) error {
	if exists, err := f.exists(); !exists {
		return err
	}
	return f.locked(func() error {
		temporary := f.Path + ".new"
		if err := f.rewrite(temporary, outcomes); err != nil {
			return errors.Join(fmt.Errorf("write dead letters: %w", err), os.Remove(temporary))
		}
		err := os.Rename(temporary, f.Path)
		if err == nil {
			err = syncFolder(filepath.Dir(f.Path))
		}
		if err != nil {
			return fmt.Errorf("replace dead letters: %w", err)
		}
		return nil
	})
}

// rewrite writes what stays of the file to another one.
func (f *DeadLetterFile) rewrite(to string, outcomes map[string]Outcome) error {
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	err = f.eachLine(func(_ int, line []byte) error {
		letter, err := parseLetter(line)
		outcome, ok := outcomes[letter.ID]
		if err == nil && ok { // what is not a letter is kept for an operator to look at
			if outcome.Gone {
				return nil
			}
			letter.Reason = outcome.Reason
			if line, err = json.Marshal(letter); err != nil {
				return err
			}
		}
		_, err = w.Write(append(line, '\n'))
		return err
	})
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// eachLine calls visit for every line that is not empty; it may keep the line.
func (f *DeadLetterFile) eachLine(visit func(number int, line []byte) error) error {
	file, err := os.Open(f.Path)
	if err != nil {
		return fmt.Errorf("open dead letters: %w", err)
	}
	defer file.Close()
	r := bufio.NewReader(file)
	for number := 1; ; number++ {
		line, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read dead letters: %w", err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := visit(number, line); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

// parseLetter reads one line. A letter without an id, as the first version of the
// file had them, is named by its content.
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
