package main

import (
	"bytes"
	"io"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMemoryFilesHoldWhatWasWrittenAcrossChunks(t *testing.T) {
	t.Parallel()
	m := newMemoryFiles()
	f, err := m.Create("dir/a")
	require.NoError(t, err)
	want := bytes.Repeat([]byte("brim"), chunk/3)
	_, err = f.WriteAt(want, chunk-7)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	assert.Equal(t, int64(chunk-7+len(want)), size)
	got := make([]byte, len(want))
	_, err = f.ReadAt(got, chunk-7)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got))
	n, err := f.ReadAt(got, size-3)
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, 3, n)
	assert.Equal(t, int64(len(want)), m.written.Load())

	require.NoError(t, f.Truncate(chunk-5))
	require.NoError(t, f.Truncate(chunk+5))
	_, err = f.ReadAt(got[:12], chunk-7)
	require.NoError(t, err)
	assert.Equal(t, append([]byte("br"), make([]byte, 10)...), got[:12], "what was cut off reads as zeros")
}

func TestMemoryFilesAreUsedAgain(t *testing.T) {
	t.Parallel()
	m := newMemoryFiles()
	f, err := m.Create("dir/a")
	require.NoError(t, err)
	_, err = m.Create("dir/a")
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = f.WriteAt([]byte("brim"), 0)
	require.NoError(t, err)
	require.NoError(t, m.Rename("dir/a", "dir/b"))
	names, err := m.List("dir/")
	require.NoError(t, err)
	assert.Equal(t, []string{"b"}, names)
	require.NoError(t, m.Remove("dir/b"))
	require.ErrorIs(t, m.Remove("dir/b"), fs.ErrNotExist)
	_, err = m.Open("dir/b", false)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Len(t, m.free, 1)
	assert.Equal(t, make([]byte, chunk), m.take(), "nothing of the file before is left in it")
}
