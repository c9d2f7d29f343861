package fault

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNilInjectorDoesNothing(t *testing.T) {
	t.Parallel()
	i, err := Parse("")
	require.NoError(t, err)
	i.At(AfterFsync)
	assert.False(t, i.Off(Guard))
}

func TestCrashesAtTheChosenArrival(t *testing.T) {
	t.Parallel()
	i, err := Parse("crash=fsync.after:3,off=guard,off=fence")
	require.NoError(t, err)
	var crashed []Point
	i.Crash = func(p Point) { crashed = append(crashed, p) }
	for range 5 {
		i.At(AfterFsync)
		i.At(BeforeFsync)
	}
	assert.Equal(t, []Point{AfterFsync}, crashed, "once, at the third")
	assert.True(t, i.Off(Guard))
	assert.True(t, i.Off(Fence))
	assert.False(t, i.Off(Look))
}

func TestUnknownNamesAreRefused(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"crash=nowhere":       `there is no point "nowhere"`,
		"crash=fsync.after:0": `"0" is not a number of arrivals`,
		"off=luck":            `there is no protection "luck"`,
		"burn":                "allowed are crash=POINT[:N] and off=PROTECTION",
	} {
		_, err := Parse(text)
		assert.ErrorContains(t, err, says, text)
	}
}
