package store

import (
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// CountError makes the error of a deletion whose count failed, which comes first.
func CountError(sensor string, err error) error {
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "not_deleted", RetryAfter: time.Second,
		Err:     fmt.Errorf("count readings of sensor %q: %w", sensor, err),
		Message: "MongoDB did not say how many readings the sensor has, which is asked first, so nothing was deleted; repeat the request",
	}
}

// DeleteError makes the error of a deletion of a sensor's documents. Where MongoDB
// forbids it nothing was deleted, and who may change that is told so.
func DeleteError(sensor string, err error) error {
	const unauthorized = 13
	if !HasCode(err, unauthorized) {
		return fmt.Errorf("delete sensor %q: %w", sensor, err)
	}
	return &telemetry.Error{
		Kind: telemetry.Forbidden, Code: "delete_not_granted", Err: err,
		Message: "MongoDB does not let the daemon delete documents, so nothing was deleted; give the daemon's MongoDB user the action remove on the stream's collection",
	}
}
