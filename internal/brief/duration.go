// Package brief writes values as people give them to Brim. It is a leaf.
package brief

import (
	"strings"
	"time"
)

// Duration writes d without the units that are 0: 5m and 1h, where String has
// 5m0s and 1h0m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
