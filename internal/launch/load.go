package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/load"
)

// killDelay is how long `brim load` may take to end when it is told to.
const killDelay = 5 * time.Second

// Load runs `brim load` of a program against a daemon.
func Load(ctx context.Context, brim string, d *Daemon, args ...string) (*load.Result, error) {
	cmd := exec.CommandContext(ctx, brim, append([]string{"load", "--target", "http://" + d.HTTP, "--output", "json"}, args...)...)
	cmd.Env = environment()
	cmd.WaitDelay = killDelay
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
		return nil, fmt.Errorf("read what came of brim load: %w", err)
	}
	return &result, nil
}
