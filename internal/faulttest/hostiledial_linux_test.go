package faulttest_test

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// portLater makes a connection choose its port when the destination is known. A
// port chosen earlier must differ from those of all closed connections that the
// kernel still remembers; with tens of thousands of those, the search takes up a
// CPU, whatever the priority.
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
