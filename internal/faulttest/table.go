package faulttest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/sabotage/patch"
)

// A Row is a line of the table of fault tests.
type Row struct {
	Test    string  `json:"test"`   // its name, such as CRASH-1
	Faults  int     `json:"faults"` // injected
	Acked   int     `json:"acked"`  // readings
	Lost    int     `json:"lost"`
	Twice   int     `json:"twice"`
	Bad     int     `json:"bad"` // invented readings, malformed documents
	Seconds float64 `json:"seconds"`

	tests []test // that logged it
}

// A test is a test run by go test.
type test struct{ pkg, name string }

// shownLines is the number of lines shown of a failed test's output.
const shownLines = 100

// rowMark marks a row in a test's output.
const rowMark = "FAULT-ROW "

// Log writes the row to the test's log, where ReadTable finds it.
func (r *Row) Log(t testing.TB) {
	t.Helper()
	text, _ := json.Marshal(r) // numbers and a name
	t.Log(rowMark + string(text))
}

// good reports whether the promise was kept.
func (r *Row) good() bool { return r.Lost == 0 && r.Twice == 0 && r.Bad == 0 }

// A Table is the result of a run of all fault tests.
type Table struct {
	Rows      []Row
	Failed    []string // tests
	Sabotages []*patch.Sabotage
	Took      time.Duration
}

// event is a line of `go test -json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// ReadTable collects the rows from the output of `go test -json`, and prints
// failures and finished tests to progress. Rows with the same name, from tests
// with several topologies, are added up.
func ReadTable(r io.Reader, progress io.Writer) (*Table, error) {
	began := time.Now()
	table := &Table{}
	output := make(map[string][]string) // of tests that have not passed
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(progress, lines.Text()) // from the go command itself
			continue
		}
		test := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			output[test] = append(output[test], e.Output)
			if err := table.take(&e, progress); err != nil {
				return nil, err
			}
		case "pass", "skip":
			delete(output, test)
		case "fail", "build-fail":
			table.Failed = append(table.Failed, test)
			cut := max(0, len(output[test])-shownLines)
			// Logs of other programs can be long. The test's own messages are always shown.
			said := slices.DeleteFunc(slices.Clone(output[test][:cut]), func(line string) bool { return !strings.Contains(line, "_test.go:") })
			fmt.Fprintf(progress, "FAILED: %s\n%s", test, strings.Join(append(said, output[test][cut:]...), ""))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the tests' output: %w", err)
	}
	table.Took = time.Since(began)
	slices.SortFunc(table.Rows, func(a, b Row) int { return cmp.Compare(a.Test, b.Test) })
	return table, nil
}

func (t *Table) take(e *event, progress io.Writer) error {
	_, text, ok := strings.Cut(e.Output, rowMark)
	if !ok {
		return nil
	}
	var row Row
	if err := json.Unmarshal([]byte(text), &row); err != nil {
		return fmt.Errorf("read a row of the table: %w", err)
	}
	row.tests = []test{{e.Package, e.Test}}
	fmt.Fprintf(progress, "%s after %.0f s: %d acknowledged, %d lost, %d twice\n", row.Test, row.Seconds, row.Acked, row.Lost, row.Twice)
	for i := range t.Rows {
		if have := &t.Rows[i]; have.Test == row.Test {
			have.add(&row)
			return nil
		}
	}
	t.Rows = append(t.Rows, row)
	return nil
}

func (r *Row) add(more *Row) {
	r.Faults += more.Faults
	r.Acked += more.Acked
	r.Lost += more.Lost
	r.Twice += more.Twice
	r.Bad += more.Bad
	r.Seconds += more.Seconds
	r.tests = append(r.tests, more.tests...)
}

// Missing returns the tests without a row.
func (t *Table) Missing(tests []string) []string {
	var missing []string
	for _, name := range tests {
		if !slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Test == name }) {
			missing = append(missing, name)
		}
	}
	return missing
}

// Good reports whether every row is good, and no test failed.
func (t *Table) Good() bool {
	return len(t.Failed) == 0 && !slices.ContainsFunc(t.Rows, func(r Row) bool { return !r.good() })
}

// Markdown returns the table, and a line about sabotages that no row catches.
func (t *Table) Markdown() string {
	var b strings.Builder
	b.WriteString("| test | faults injected | readings acknowledged | lost | twice | fails without |\n|---|--:|--:|--:|--:|---|\n")
	rest := slices.Clone(t.Sabotages)
	for i := range t.Rows {
		r := &t.Rows[i]
		var names []string
		for _, s := range t.Sabotages {
			if caught(s, r) {
				names = append(names, s.Name)
				rest = slices.DeleteFunc(rest, func(one *patch.Sabotage) bool { return one == s })
			}
		}
		twice := fmt.Sprint(r.Twice)
		if r.Bad > 0 {
			twice += fmt.Sprintf(" (and %d bad documents)", r.Bad)
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s | %s |\n", r.Test, r.Faults, r.Acked, r.Lost, twice, strings.Join(names, ", "))
	}
	if len(rest) > 0 {
		names := make([]string, len(rest))
		for i, s := range rest {
			names[i] = s.Name
		}
		fmt.Fprintf(&b, "\nOther tests fail without %s.\n", strings.Join(names, ", "))
	}
	return b.String()
}

// caught reports whether a test of the row fails under the sabotage.
func caught(s *patch.Sabotage, r *Row) bool {
	return slices.ContainsFunc(s.Tests, func(c patch.Check) bool {
		return slices.ContainsFunc(r.tests, func(t test) bool {
			return strings.HasSuffix(t.pkg, strings.TrimPrefix(c.Package, ".")) && selected(t.name, c.Run)
		})
	})
}

// selected reports whether go test -run selects a test or a subtest.
func selected(name, run string) bool {
	names := strings.Split(name, "/")
	for i, part := range strings.Split(run, "/") {
		if i == len(names) {
			return true
		}
		if matches, err := regexp.MatchString(part, names[i]); err != nil || !matches {
			return false
		}
	}
	return true
}

// Names are the tests that the table must have. Each is described in its file.
func Names() []string {
	return []string{
		"CRASH-1", "CRASH-2", "CRASH-3", "CRASH-4",
		"FS-1", "FS-2", "FS-3", "FS-4", "FS-5", "FS-6",
		"MONGO-1", "MONGO-2", "MONGO-3", "MONGO-4", "MONGO-5", "MONGO-6", "MONGO-7",
		"RACE-1", "RACE-2", "CAP-1", "HOL-1", "SET-1", "TS-1", "CLI-1", "POISON-1",
		"DROP-1",    // a collection is dropped while the daemon runs
		"SEAL-1",    // windows are sealed while readings for them arrive, and a sealer is killed at each step
		"ROLLUP-1",  // readings expire in each way in which a rollup could lose them or count them twice
		"GEN-2",     // the daemon is killed and started with another storage or compressor
		"MOVE-1",    // readings are moved into another collection, and the mover, the daemons and answers are killed
		"MOVE-2",    // the same with three members and elections
		"MERGE-1",   // the daemon is killed while almost all readings wait to be merged
		"WAVE-1",    // sensors that send all at once, very often, late, or with wrong clocks
		"HOSTILE-1", // clients that are not authorized, or send too much
		"SCALE-1",   // four daemons, one lost forever, its journal adopted
		"MQTT-1",    // the daemon and its MQTT broker are killed in turn
		"LOAD-1",    // the load generator's honesty
		"PROTOCOL",  // a random simulation of all of these with the store
	}
}
