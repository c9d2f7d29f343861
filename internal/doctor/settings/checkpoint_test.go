package settings

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzEngineClock: whatever the engine's settings are, a clock is a part of
// them that names a time or a size.
func FuzzEngineClock(f *testing.F) {
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
		assert.Equal(f, clock, engineClock(config), config)
		f.Add(config)
	}
	f.Fuzz(func(t *testing.T, config string) {
		clock := engineClock(config)
		assert.Contains(t, config, clock)
		if clock != "" {
			assert.True(t, strings.Contains(clock, "wait=") || strings.Contains(clock, "log_size="))
		}
	})
}

// TestTheCompressorIsReadOfTheCreationString, of the form that every version has.
func TestTheCompressorIsReadOfTheCreationString(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "zstd", blockCompressor("allocation_size=4KB,block_compressor=zstd,cache_resident=false"))
	assert.Equal(t, "none", blockCompressor("allocation_size=4KB,block_compressor=,cache_resident=false"))
	assert.Empty(t, blockCompressor("allocation_size=4KB"))
	assert.Empty(t, blockCompressor(""))
}
