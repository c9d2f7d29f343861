package mongod

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func line(severity, message, attr string) string {
	return fmt.Sprintf(`{"t":{"$date":"2026-11-21T10:00:00.000Z"},"s":%q,"c":"STORAGE","id":1,"ctx":"main","msg":%q,"attr":%s}`+"\n", severity, message, attr)
}

func TestLastWords(t *testing.T) {
	t.Parallel()
	many := ""
	for n := range 9 {
		many += line("I", fmt.Sprintf("step %d", n), "{}")
	}
	for name, row := range map[string]struct{ out, log, want string }{
		"nothing at all":            {want: "it wrote nothing"},
		"what the loader said":      {out: "mongod: cannot open shared object file\n", want: "mongod: cannot open shared object file"},
		"chatter before the log":    {out: line("I", "automatically disabling", "{}"), want: "it wrote nothing"},
		"an error before the log":   {out: line("F", "global init", `{"error":{"code":2,"errmsg":"Unknown parameter"}}`), want: "global init: Unknown parameter"},
		"errors before the rest":    {log: line("E", "storage", `{"error":"disk full"}`) + many, want: "storage: disk full"},
		"a message beside a number": {log: line("E", "WiredTiger error", `{"error":2,"message":"no such file"}`), want: "WiredTiger error: no such file"},
		"an event of the storage engine": {
			log: line("E", "WiredTiger error", `{"error":-31804,"message":{"msg":"read error","error_str":"WT_PANIC"}}`), want: "WiredTiger error: read error: WT_PANIC",
		},
		"lines in a message": {log: line("F", "\n\n***aborting\n\n", "{}"), want: "***aborting"},
		"the last when none is an error": {
			log: many, want: "step 4; step 5; step 6; step 7; step 8",
		},
		"a stack trace is no reason": {
			out:  `Frame: {"a":"55CE"}` + "\n" + line("E", "Frame", "{}"),
			log:  line("F", "Invariant failure", `{"error":"No space left on device"}`) + line("F", "BACKTRACE: {bt}", "{}") + `{"t":{"$da` + `te":1},"msg":"BACKTRACE","att`,
			want: "Invariant failure: No space left on device",
		},
		"lines that are cut off": {log: `{"t":{"$da`, want: `{"t":{"$da`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f := files{out: filepath.Join(dir, "out"), log: filepath.Join(dir, "log")}
			require.NoError(t, os.WriteFile(f.out, []byte(row.out), 0o600))
			require.NoError(t, os.WriteFile(f.log, []byte("of an earlier start\n"+row.log), 0o600))
			require.Equal(t, row.want, exitReason(f, int64(len("of an earlier start\n"))))
		})
	}
}

func TestTailIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	text := strings.Repeat("x", 3*exitReasonBytes) + "end"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.Equal(t, text[len(text)-exitReasonBytes:], string(tail(path, 0)))
	require.Equal(t, "end", string(tail(path, int64(len(text)-3))))
	require.Len(t, tail(path, int64(len(text)+1)), exitReasonBytes, "a log that was rotated meanwhile")
	require.Empty(t, tail(path+".no", 0))
}

func TestRotateKeepsOneOldFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	rotated, err := rotate(path, 3)
	require.NoError(t, err, "a log that is not there yet")
	require.False(t, rotated)
	for _, row := range []struct {
		text    string
		rotated bool
	}{{"abc", false}, {"abcd", true}, {"efgh", true}} {
		require.NoError(t, os.WriteFile(path, []byte(row.text), 0o600))
		rotated, err := rotate(path, 3)
		require.NoError(t, err)
		require.Equal(t, row.rotated, rotated, row.text)
		require.Equal(t, row.rotated, size(path) == 0)
	}
	old, err := os.ReadFile(path + ".1")
	require.NoError(t, err)
	require.Equal(t, "efgh", string(old))
}
