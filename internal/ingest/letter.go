package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/brim-telemetry/brim/internal/machine"
)

// maxLettersBytes is the size at which the file is renamed to NAME.old, replacing an
// earlier one, so that refused messages cannot fill the disk.
const maxLettersBytes = 64 << 20

// A Letter is a message that was refused, wholly or in part.
type Letter struct {
	At           string `json:"at"` // RFC 3339
	Subscription string `json:"subscription"`
	Topic        string `json:"topic"`
	Reason       string `json:"reason"`
	Payload      []byte `json:"payload"` // base64
}

// A LetterFile keeps letters as lines of JSON.
type LetterFile struct {
	Path string

	mu    sync.Mutex
	most  int64 // 0: maxLettersBytes
	named bool  // the file's name is durable
}

// put appends letters and fsyncs the file.
func (f *LetterFile) put(letters []Letter) error {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines) // ends each value with a line break
	encoder.SetEscapeHTML(false)
	for _, l := range letters {
		if err := encoder.Encode(l); err != nil {
			return fmt.Errorf("encode a refused message: %w", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	most := f.most
	if most == 0 {
		most = maxLettersBytes
	}
	info, err := os.Stat(f.Path)
	if err != nil { // it does not exist, or the write says why not
		f.named = false
	} else if info.Size() > 0 && info.Size()+int64(lines.Len()) > most {
		f.named = false
		if err := os.Rename(f.Path, f.Path+".old"); err != nil {
			return fmt.Errorf("rename the full file of refused messages: %w", err)
		}
	}
	err = machine.AppendLines(f.Path, lines.Bytes())
	if err == nil && !f.named {
		err = machine.SyncFolder(filepath.Dir(f.Path))
		f.named = err == nil
	}
	if err != nil {
		return fmt.Errorf("write refused messages: %w", err)
	}
	return nil
}

// Read returns the letters, oldest first. It skips lines that a crash cut off.
func (f *LetterFile) Read() ([]Letter, error) {
	var all []Letter
	for _, path := range []string{f.Path + ".old", f.Path} {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read refused messages: %w", err)
		}
		for line := range bytes.Lines(content) {
			var l Letter
			if json.Unmarshal(line, &l) == nil {
				all = append(all, l)
			}
		}
	}
	return all, nil
}
