package ingest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLettersAreBounded(t *testing.T) {
	t.Parallel()
	f := &LetterFile{Path: filepath.Join(t.TempDir(), "letters"), most: 1000}
	letter := func(n int) Letter { return Letter{Topic: fmt.Sprint(n), Payload: make([]byte, 100)} }
	for n := range 100 {
		require.NoError(t, f.put([]Letter{letter(n)}))
	}
	// A crash cuts off a line; the next one is whole.
	file, err := os.OpenFile(f.Path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(`{"topic":"cut`)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.NoError(t, f.put([]Letter{letter(100)}))
	letters, err := f.Read()
	require.NoError(t, err)
	assert.Less(t, len(letters), 12)
	assert.Greater(t, len(letters), 4)
	assert.Equal(t, "100", letters[len(letters)-1].Topic)
	assert.Equal(t, "99", letters[len(letters)-2].Topic)
}
