package doctor

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzEngineTimer: whatever the engine's settings are, a clock is a part of
// them that names a time or a size.
func FuzzEngineTimer(f *testing.F) {
	for config, clock := range map[string]string{
		"":                                       "",
		"cache_size=1G":                          "",
		"checkpoint=(wait=0,log_size=0)":         "",
		"checkpoint=(wait=30)":                   "wait=30",
		"a=1,checkpoint=(log_size=2GB),b=(c=2)":  "log_size=2GB",
		"checkpoint=(name=x, wait=5)":            "name=x, wait=5",
		"checkpoint=(wait=":                      "",
		"checkpoint=(wait=-1)":                   "",
		"checkpoint_sync=false,checkpoint=(wait": "",
	} {
		assert.Equal(f, clock, engineTimer(config), config)
		f.Add(config)
	}
	f.Fuzz(func(t *testing.T, config string) {
		clock := engineTimer(config)
		assert.Contains(t, config, clock)
		if clock != "" {
			assert.True(t, strings.Contains(clock, "wait=") || strings.Contains(clock, "log_size="))
		}
	})
}

// TestTheCompressorIsReadFromTheCreationString, in the form that every version has.
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
