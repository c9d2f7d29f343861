package faulttest_test

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// portLater has a connection choose its port when it knows where it goes. A port
// that is chosen before must differ from those of all closed connections that the
// kernel still remembers; when those are tens of thousands, the search takes a
// processor away from everybody, and no priority helps.
func portLater(_, _ string, conn syscall.RawConn) error {
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("choose the port later: %w", err)
	}
	return nil
}
