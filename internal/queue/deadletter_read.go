package queue

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"
)

// A BrokenLine is a line of the file that is no letter.
type BrokenLine struct {
	Number int // from 1
	Err    error
}

// Read returns the letters in the order in which they came, each id once, with
// what was last said of it, and the lines that are none. A file that does not
// exist holds none. It sees every letter whose Put returned before.
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

// Settle notes outcomes by id. Other letters and broken lines stay as they are,
// also those that were put since they were read. The file is replaced as a
// whole, so that a crash leaves the old one or the new one.
func (f *DeadLetterFile) Settle(outcomes map[string]Outcome) error {
	if exists, err := f.exists(); !exists {
		return err
	}
	return f.locked(func() error {
		temporary := f.Path + ".new"
		if err := f.rewrite(temporary, outcomes); err != nil {
			return errors.Join(err, os.Remove(temporary))
		}
		if err := os.Rename(temporary, f.Path); err != nil {
			return fmt.Errorf("replace dead letters: %w", err)
		}
		if err := syncFolder(filepath.Dir(f.Path)); err != nil {
			return fmt.Errorf("replace dead letters: %w", err)
		}
		return nil
	})
}

// rewrite writes what stays of the file to another one.
func (f *DeadLetterFile) rewrite(to string, outcomes map[string]Outcome) error {
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return fmt.Errorf("make dead letters: %w", err)
	}
	w := bufio.NewWriter(file)
	err = f.eachLine(func(_ int, line []byte) error {
		kept, err := settled(line, outcomes)
		if err != nil || kept == nil {
			return err
		}
		_, err = w.Write(append(kept, '\n'))
		return err
	})
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write dead letters: %w", err)
	}
	return nil
}

// settled returns what becomes of a line, nil where nothing stays.
func settled(line []byte, outcomes map[string]Outcome) ([]byte, error) {
	letter, err := parseLetter(line)
	if err != nil {
		return line, nil //nolint:nilerr // what is no letter is kept for people to look at
	}
	outcome, ok := outcomes[letter.ID]
	switch {
	case !ok:
		return line, nil
	case outcome.Gone:
		return nil, nil
	}
	letter.Reason = outcome.Reason
	return json.Marshal(letter)
}

// eachLine calls visit for every line that is not empty; the line is its to keep.
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

// parseLetter reads one line. A letter without an id, as the first version of
// the file had them, is named by its content.
func parseLetter(line []byte) (KeptLetter, error) {
	var letter KeptLetter
	if err := json.Unmarshal(line, &letter); err != nil {
		return letter, fmt.Errorf("the line is no dead letter: %w", err)
	}
	if letter.Stream == "" || len(letter.Reading) == 0 || letter.Reading[0] != '{' {
		return letter, errors.New("the line is no dead letter: it has no stream or no reading")
	}
	if letter.ID == "" {
		letter.ID = fmt.Sprintf("x%016x", xxhash.Sum64(line))
	}
	return letter, nil
}
