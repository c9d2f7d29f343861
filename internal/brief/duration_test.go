package brief

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestADurationHasNoUnitThatIsZero(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", 5 * time.Minute: "5m", 20 * time.Minute: "20m", 90 * time.Second: "1m30s", 10 * time.Second: "10s",
		time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Hour: "10h", 36*time.Hour + time.Second: "36h0m1s",
	} {
		assert.Equal(t, want, Duration(d))
	}
}
