package report

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

func someExperiments() []*bench.Experiment {
	run := func(context.Context, *bench.Lab) {}
	return []*bench.Experiment{
		{
			Name: "one", Question: "What does a reading cost that is stored beside many others, and what does it cost alone, in its own document?",
			Full: 6*time.Minute + 20*time.Second, Quick: 50 * time.Second, Restarts: "the standalone mongod", Run: run,
			Cells: []bench.Cell{{Name: "push", What: "the cost of an append, by how many readings are there before, in a document of its own"}, {Name: "indexes", What: "further indexes", Slow: "it takes two minutes"}},
		},
		{Name: "two", Question: "And the other?", Full: time.Minute, Quick: 30 * time.Second, Run: run},
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, List(&b, 80, someExperiments()))
	for _, want := range []string{
		"one\n  What does a reading cost that is stored", "  Takes about 6 min; with --quick about 50 s.\n", "Left out with --mongo-uri: the standalone mongod.\n",
		"    push     the cost of an append,", "    indexes  further indexes (not in a quick run: it takes two minutes)\n", "two\n  And the other?\n",
		"all\n  Takes about 7 min; with --quick about 80 s.\n",
	} {
		assert.Contains(t, b.String(), want)
	}
	for line := range strings.Lines(b.String()) {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 81)
	}
	assert.Contains(t, Describe(someExperiments()[0], 80), "Cells:\n  push ")
	require.ErrorIs(t, List(fullDisk{}, 80, someExperiments()), errFull)
}

func TestListAsJSON(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, ListJSON(&b, someExperiments()[1:]))
	assert.JSONEq(t, `[{"name":"two","question":"And the other?","full_seconds":60,"quick_seconds":30,"cells":[]}]`, b.String())
	b.Reset()
	require.NoError(t, ListJSON(&b, someExperiments()))
	assert.Contains(t, b.String(), `"not_in_quick": "it takes two minutes"`)
}
