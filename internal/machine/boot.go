package machine

import (
	"os"
	"strings"
)

// BootID identifies the current boot of the machine; empty if it is not known.
func BootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
