package faulttest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
)

// Attackers are a process of their own, of the lowest priority. On a machine with
// few processors, attackers that are as strong as what they attack take the
// processors from everybody, good clients as well, whatever the daemon does.
// Attackers from elsewhere bring their own. With what others leave of the
// processors they can still do more than most networks would carry, and the
// daemon's work for them has the priority of its work for good clients.

// attackerMode is set in the environment of a test binary that is to attack.
const attackerMode = "BRIM_FAULT_ATTACKER"

// A report is what attackers saw since the last one.
type report struct {
	Codes   map[string]int
	Texts   []string
	Sensors int // that were sent since the start, each another one
}

// attackMain attacks as long as it is told to: in comes a target, and then a line
// for each time to begin or end; out goes a report at each end.
func attackMain(in io.Reader, out io.Writer) error {
	commands, reports := bufio.NewScanner(in), json.NewEncoder(out)
	if !commands.Scan() {
		return commands.Err()
	}
	var t target
	if err := json.Unmarshal(commands.Bytes(), &t); err != nil {
		return fmt.Errorf("read the target: %w", err)
	}
	a := newAttacker(t)
	defer a.close()
	attacks := a.attacks()
	for commands.Scan() {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		for _, one := range attacks {
			for range one.clients {
				running.Go(func() { one.again(ctx) })
			}
		}
		commands.Scan()
		cancel()
		running.Wait()
		a.close()
		if err := reports.Encode(a.report()); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return commands.Err()
}

// again attacks until ctx ends.
func (a *attack) again(ctx context.Context) {
	for ctx.Err() == nil {
		a.once(ctx)
		rest(ctx, a.every)
	}
}

// report returns what was seen since the last one.
func (a *attacker) report() report {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := report{Codes: a.codes, Sensors: a.next - a.first}
	for text := range a.texts {
		r.Texts = append(r.Texts, text)
	}
	a.codes, a.texts = make(map[string]int), make(map[string]bool)
	return r
}

// add adds what another one saw.
func (a *attacker) add(r *report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for code, n := range r.Codes {
		a.codes[code] += n
	}
	for _, text := range r.Texts {
		a.texts[text] = true
	}
}

// attackers are the process.
type attackers struct {
	g       *siege
	cmd     *exec.Cmd
	in      io.WriteCloser
	reports *json.Decoder
}

// startAttackers starts them; they rest.
func (g *siege) startAttackers(t target) *attackers {
	path, err := os.Executable()
	require.NoError(g.t, err)
	cmd := exec.Command("nice", "-n", "19", path)
	cmd.Env = append(slices.Clone(foreignEnv()), attackerMode+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(g.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(g.t, err)
	require.NoError(g.t, cmd.Start())
	p := &attackers{g: g, cmd: cmd, in: in, reports: json.NewDecoder(out)}
	g.t.Cleanup(func() {
		_ = in.Close() // which ends it
		_ = cmd.Wait() // how, is known from its reports
	})
	require.NoError(g.t, json.NewEncoder(in).Encode(t))
	return p
}

// attack lets them attack meanwhile, and returns how many sensors they have sent
// until now.
func (p *attackers) attack(meanwhile func()) (sensors int) {
	t := p.g.t
	_, err := io.WriteString(p.in, "begin\n")
	require.NoError(t, err)
	meanwhile()
	_, err = io.WriteString(p.in, "end\n")
	require.NoError(t, err)
	var r report
	require.NoError(t, p.reports.Decode(&r))
	p.g.attacker.add(&r)
	return r.Sensors
}

// A siegePlan says how quiet times and sieges alternate: what a machine does
// beside, changes from minute to minute.
type siegePlan struct {
	rounds       int
	quiet, siege time.Duration // in each
}

// siegeTime, in the environment, is how long the siege lasts in the full form, in
// all; ten minutes if it is not there.
const siegeTime = "BRIM_FAULT_SIEGE"

func (g *siege) plan() siegePlan {
	switch {
	case len(g.off) > 0:
		return siegePlan{rounds: 1, quiet: 500 * time.Millisecond, siege: 1500 * time.Millisecond}
	case !full():
		return siegePlan{rounds: 2, quiet: time.Second, siege: 2500 * time.Millisecond}
	}
	all := 10 * time.Minute
	if text := os.Getenv(siegeTime); text != "" {
		var err error
		all, err = time.ParseDuration(text)
		require.NoError(g.t, err)
	}
	const rounds = 5
	return siegePlan{rounds: rounds, quiet: max(all/10, 10*time.Second) / rounds * 2, siege: all / rounds}
}
