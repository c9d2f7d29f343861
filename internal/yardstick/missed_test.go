package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestARowSaysThatItsBarWasMissed(t *testing.T) {
	t.Parallel()
	for bar, of := range map[string]struct{ good, bad float64 }{
		">= 1.0x, aim 1.2x":                       {1.0, 0.99},
		"<= 3 us, aim 2":                          {3.01, 3.1},
		">= 15,000/s, oldest reading not growing": {14_960, 14_000},
		"<= 1 GiB":                                {1024, 1100},
		"<= 256 MiB":                              {200, 277},
		">= 1 GB/s":                               {1.8, 0.5},
	} {
		good, bad := row{Bar: bar, Measured: of.good}, row{Bar: bar, Measured: of.bad}
		assert.Empty(t, good.missed(), bar)
		assert.Equal(t, " (missed)", bad.missed(), bar)
	}
	without := row{Bar: "reported", Measured: 7}
	assert.Empty(t, without.missed())
}
