// Brim takes telemetry readings in over HTTP and gRPC and stores them in
// MongoDB, each once. This package is the program: its commands, its
// configuration, and the wiring of the parts in internal/.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	var found verdict
	if err != nil && !errors.As(err, &found) {
		fmt.Fprintln(os.Stderr, "brim:", err)
	}
	os.Exit(exitCode(err))
}
