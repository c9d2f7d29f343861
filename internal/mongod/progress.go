package mongod

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

const (
	// barInterval is how often a terminal's bar is drawn.
	barInterval = 200 * time.Millisecond
	// lineInterval is how often a log gets a line.
	lineInterval = 10 * time.Second
	barWidth     = 30
)

// progress tells an operator what an installation does: a live bar on a
// terminal, now and then a line anywhere else. What cannot be written is lost;
// the installation goes on.
type progress struct {
	out  io.Writer
	live bool
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, live: isTerminal(out)}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

func (p *progress) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, format+"\n", args...)
}

// during runs work, and shows meanwhile how much of total there is.
func (p *progress) during(work func() error, done func() int64, total int64) error {
	result := make(chan error, 1)
	go func() { result <- work() }()
	interval := lineInterval
	if p.live {
		interval = barInterval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case err := <-result:
			if p.live {
				p.bar(done(), total)
				p.say("")
			}
			return err
		case <-tick.C:
			if p.live {
				p.bar(done(), total)
			} else {
				p.say("downloaded %s of %s", megabytes(done()), megabytes(total))
			}
		}
	}
}

// bar draws over the last one.
func (p *progress) bar(done, total int64) {
	done = min(done, total)
	full := int(done * barWidth / total)
	_, _ = fmt.Fprintf(p.out, "\r  [%s%s] %3d%%  %s of %s ", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full),
		done*100/total, megabytes(done), megabytes(total))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
