package advise

import (
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
)

// Span writes a duration as the configuration does: 90d, 5m, 2.777ms.
func Span(d time.Duration) string {
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return config.FormatDuration(d)
}
