package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
)

// killDelay is how long to wait for the output of `brim load` after killing it.
const killDelay = 5 * time.Second

// Load runs `brim load` against a daemon. It is killed when ctx ends, and gets SIGTERM when
// this process ends.
func Load(ctx context.Context, brim string, d *Daemon, args ...string) (*load.Result, error) {
	flags := []string{"load", "--target", d.url(d.HTTP), "--output", "json"}
	if d.CA != "" {
		flags = append(flags, "--ca", d.CA)
	}
	cmd := exec.CommandContext(ctx, brim, append(flags, args...)...)
	cmd.Env = environment()
	cmd.WaitDelay = killDelay
	cmd.SysProcAttr = machine.NewGroup(syscall.SIGTERM)
	runtime.LockOSThread() // the signal is sent when the thread ends
	defer runtime.UnlockOSThread()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("run brim load: %w", context.Cause(ctx))
		}
		return nil, fmt.Errorf("run brim load %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	var result load.Result
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		return nil, fmt.Errorf("read the result of brim load: %w", err)
	}
	return &result, nil
}
