package mongod

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

const (
	// maxLogBytes bounds the log: one file of this size is kept beside the
	// one that is written.
	maxLogBytes = 16 << 20
	// lastWordsBytes is how far back a death's reason is looked for.
	lastWordsBytes = 64 << 10
	// lastWordsLines of a log tell why it died; more would bury it.
	lastWordsLines = 5
)

// rotate renames a log that has grown over limit, and reports whether it did;
// mongod then writes to the old file under its new name until it is told to
// open its log again.
func rotate(path string, limit int64) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at mongod's log: %w", err)
	}
	if info.Size() <= limit {
		return false, nil
	}
	if err := os.Rename(path, path+".1"); err != nil {
		return false, fmt.Errorf("rotate mongod's log: %w", err)
	}
	return true, nil
}

// size returns 0 for a file that is not there.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// lastWords says in one line why a mongod died: the errors in what it wrote
// before it had a log, and the errors, or else the last lines, of what it
// logged after the offset from.
func lastWords(f files, from int64) string {
	var words, all, grave []string
	for line := range strings.Lines(string(tail(f.out, 0))) {
		text, isGrave := logLine(line)
		if isGrave {
			words = append(words, text)
		}
	}
	for line := range strings.Lines(string(tail(f.log, from))) {
		text, isGrave := logLine(line)
		all = append(all, text)
		if isGrave {
			grave = append(grave, text)
		}
	}
	if len(grave) > 0 {
		all = grave
	}
	words = append(words[max(0, len(words)-lastWordsLines):], all[max(0, len(all)-lastWordsLines):]...)
	if len(words) == 0 {
		return "it wrote nothing"
	}
	return strings.Join(words, "; ")
}

// logLine returns what a line of mongod's log (JSON, one object a line) says,
// and whether it is an error or a fatal one. What is not JSON comes from the
// system or from mongod's parser of flags, and is an error.
func logLine(line string) (text string, grave bool) {
	var entry struct {
		Severity string `json:"s"`
		Message  string `json:"msg"`
		Attr     struct {
			Error   any `json:"error"`
			Message any `json:"message"`
			Reason  any `json:"reason"`
		} `json:"attr"`
	}
	line = strings.TrimSpace(line)
	if json.Unmarshal([]byte(line), &entry) != nil {
		return line, line != ""
	}
	parts := []string{entry.Message}
	for _, attr := range []any{entry.Attr.Message, entry.Attr.Error, entry.Attr.Reason} {
		if detail := detailText(attr); detail != "" {
			parts = append(parts, detail)
			break
		}
	}
	return strings.Join(strings.Fields(strings.Join(parts, ": ")), " "), entry.Severity == "E" || entry.Severity == "F"
}

// detailText reads the forms in which an attribute of a log line holds an
// explanation: plain, as a status of the server ("errmsg"), or as an event of
// the storage engine ("msg" and "error_str"). A bare number is none.
func detailText(attr any) string {
	switch attr := attr.(type) {
	case string:
		return attr
	case map[string]any:
		var parts []string
		for _, key := range []string{"errmsg", "msg", "error_str"} {
			if part, ok := attr[key].(string); ok {
				parts = append(parts, part)
			}
		}
		return strings.Join(parts, ": ")
	}
	return ""
}

// tail returns the end of a file, not from before the offset from.
func tail(path string, from int64) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	if info.Size() < from {
		from = 0 // rotated meanwhile
	}
	from = max(from, info.Size()-lastWordsBytes)
	text, err := io.ReadAll(io.NewSectionReader(file, from, lastWordsBytes))
	if err != nil {
		return nil
	}
	return text
}
