package block_test

import (
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// sealed appends the checksum, so that damage gets as far as the decoder.
func sealed(body []byte) []byte {
	sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	return binary.LittleEndian.AppendUint32(body[:len(body):len(body)], sum)
}

// decodeAll reads all that a block has. Errors are fine. It returns false if the block was
// not opened.
func decodeAll(data []byte) bool {
	b, err := block.Open(data)
	if err != nil {
		return false
	}
	_, _, _ = b.Statistics()
	const most = 1 << 15 // values; readers compare Len with what they expect
	if b.Len()*(b.Columns()+1) > most {
		return true
	}
	_, _ = b.Keys()
	var builder block.Builder
	for i := range b.Columns() {
		for _, err := range b.Readings(sensor, nil, []string{b.Name(i)}) {
			if err != nil {
				break
			}
		}
	}
	for r, err := range b.Readings(sensor, nil, nil) {
		if err != nil {
			return true
		}
		builder.AddReading(r)
	}
	_, _ = builder.Append(nil, block.Options{Statistics: true})
	return true
}

func FuzzDecode(f *testing.F) {
	for _, readings := range shapes() {
		if len(readings) > 100 {
			readings = readings[:100]
		}
		for _, o := range variants {
			data := built(f, readings, o)
			f.Add(data[:len(data)-4])
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		data := sealed(body)
		decodeAll(data)
		assertMemory(t, data)
	})
}

// assertMemory checks that opening a block takes at most 16 times its size, beside what the
// decoder of zstd makes once and keeps.
func assertMemory(t require.TestingT, data []byte) {
	const fixed = 1 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b, _ := block.Open(data)
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(b)
	require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(16*len(data)+fixed))
}

func FuzzRoundTrip(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		want := drawnReadings(t)
		require.Equal(t, want, readAll(t, built(t, want, rapid.SampledFrom(variants).Draw(t, "options")), nil))
	}))
}

func TestDamagedBlocksAreRefused(t *testing.T) {
	t.Parallel()
	data := built(t, []telemetry.Reading{reading(1, "a", 1, "b", "x"), reading(2, "a", 2.5)}, block.Options{Statistics: true})
	for i := range data {
		damaged := append([]byte(nil), data...)
		damaged[i] ^= 0x10
		_, err := block.Open(damaged)
		require.Error(t, err, "byte %d", i)
		_, err = block.Open(data[:i])
		require.Error(t, err, "%d bytes", i)
	}
	_, err := block.Open(sealed(append([]byte{2}, data[1:len(data)-4]...)))
	require.EqualError(t, err, "a block has version 2; this program reads version 1")
}

// Blocks that were made to do harm have a valid checksum.
func TestHarmfulBlocksDoNoHarm(t *testing.T) {
	t.Parallel()
	for _, readings := range shapes() {
		if len(readings) > 20 {
			continue
		}
		for _, o := range variants {
			data := built(t, readings, o)
			body := data[:len(data)-4]
			for i := range body {
				for _, to := range []byte{0, 1, 0x7f, 0x80, 0xff, body[i] + 1} {
					harmful := append([]byte(nil), body...)
					harmful[i] = to
					decodeAll(sealed(harmful))
				}
			}
		}
	}
}
