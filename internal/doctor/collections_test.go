package doctor

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTheCompressorIsReadFromTheCreationString in the format of each version.
func TestTheCompressorIsReadFromTheCreationString(t *testing.T) {
	t.Parallel()
	for creation, want := range map[string]string{
		"allocation_size=4KB,block_compressor=zstd,cache_resident=false": "zstd",
		"allocation_size=4KB,block_compressor=,cache_resident=false":     "none",
		"allocation_size=4KB": "",
		"":                    "",
	} {
		name, _ := blockCompressor(creation)
		assert.Equal(t, want, name, creation)
	}
}
