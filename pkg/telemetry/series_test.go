package telemetry

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAppendSeriesWord(t *testing.T) {
	t.Parallel()
	const word = `a,b c\d=é`
	assert.Equal(t, `x:a\,b\ c\\d=é`, string(AppendSeriesWord([]byte("x:"), word, false)))
	assert.Equal(t, `a\,b\ c\\d\=é`, string(AppendSeriesWord(nil, []byte(word), true)))
}
