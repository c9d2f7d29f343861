//go:build !linux

package faulttest_test

import (
	"errors"
	"testing"
)

// smallDisk returns no folder: in-memory disks need Linux.
func smallDisk(testing.TB) string {
	notRun("FS-5 on a small disk; the journal's own limit stands in for it", errors.ErrUnsupported)
	return ""
}
