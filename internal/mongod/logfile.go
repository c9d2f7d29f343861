package mongod

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

const (
	// maxLogBytes bounds the log; one old file of this size is kept.
	maxLogBytes = 16 << 20
	// exitReasonBytes of a log are searched for the reason of a death.
	exitReasonBytes = 64 << 10
	exitReasonLines = 5
)

// rotate renames a log larger than limit, and reports whether it did. mongod writes
// to the renamed file until it is told to reopen its log.
func rotate(path string, limit int64) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= limit {
		return false, nil
	}
	if err == nil {
		err = os.Rename(path, path+".1")
	}
	if err != nil {
		return false, fmt.Errorf("rotate mongod's log: %w", err)
	}
	return true, nil
}

// size returns 0 for a file that does not exist.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// exitReason says in one line why a mongod died: the errors that it printed before it
// opened its log, and the errors, or else the last lines, that it logged after the
// offset from.
func exitReason(f files, from int64) string {
	_, words := logLines(tail(f.out, 0))
	all, errs := logLines(tail(f.log, from))
	if len(errs) > 0 {
		all = errs
	}
	words = append(words[max(0, len(words)-exitReasonLines):], all[max(0, len(all)-exitReasonLines):]...)
	if len(words) == 0 {
		return "it wrote nothing"
	}
	return strings.Join(words, "; ")
}

// logLines returns the messages in mongod's log (JSON, one object per line), and
// those that are errors. A line that is not JSON comes from the system or from
// mongod's option parser, and is an error.
func logLines(text []byte) (all, errs []string) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		var entry struct {
			Severity string                               `json:"s"`
			Message  string                               `json:"msg"`
			Attr     struct{ Message, Error, Reason any } `json:"attr"`
		}
		isError := line != ""
		if json.Unmarshal([]byte(line), &entry) == nil {
			isError = entry.Severity == "E" || entry.Severity == "F"
			detail := cmp.Or(detailOf(entry.Attr.Message), detailOf(entry.Attr.Error), detailOf(entry.Attr.Reason))
			if line = entry.Message; detail != "" {
				line += ": " + detail
			}
			line = strings.Join(strings.Fields(line), " ")
		}
		if isStack(line) {
			continue
		}
		all = append(all, line)
		if isError {
			errs = append(errs, line)
		}
	}
	return all, errs
}

// isStack reports whether a line belongs to a stack trace, which says where mongod was, not
// why it ended; a full disk truncates such lines.
func isStack(line string) bool {
	return strings.HasPrefix(line, "Frame") || strings.HasPrefix(line, "BACKTRACE") || strings.Contains(line, `"msg":"BACKTRACE"`)
}

// detailOf returns the explanation in an attribute of a log line: a string, a status
// of the server ("errmsg"), or an event of the storage engine ("msg", "error_str").
func detailOf(attr any) string {
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

// tail returns the end of a file, starting at from at the earliest.
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
		from = 0 // rotated in between
	}
	text, err := io.ReadAll(io.NewSectionReader(file, max(from, info.Size()-exitReasonBytes), exitReasonBytes))
	if err != nil {
		return nil
	}
	return text
}
