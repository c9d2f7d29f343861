package main

import (
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// buffer is written by the daemon's log, the load and the test at once.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestDemonstrationFillsAllTenthsOfThreeStreams(t *testing.T) {
	t.Parallel()
	binary := brimtest.Binary{Plain: true}
	t.Cleanup(binary.Remove)
	var stdout, stderr buffer
	err := run(t.Context(), []string{"--brim", binary.Path(t), "--duration", "10s", "--sensors", "20", "--interval", "1m"}, &stdout, &stderr)
	require.NoError(t, err, stderr.String())
	table := stdout.String()
	assert.NotContains(t, table, "none", "a tenth without a write")
	assert.Len(t, regexp.MustCompile(`\d+\.\d\d / \d+\.\d\d`).FindAllString(table, -1), 30, table)
	assert.Equal(t, 3, strings.Count(table, "1200 of 1200"), table)
	assert.Regexp(t, `readings per write\s*\|\s*1\.0\s*\|`, table)
	assert.Regexp(t, `Watch it:  http://127\.0\.0\.1:\d+/\n`, stderr.String())
}
