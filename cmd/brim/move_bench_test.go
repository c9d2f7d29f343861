package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// BenchmarkMoveIngest measures how long 2,000 requests a second with one reading each wait for the
// journal, alternately without and with a `brim move` on the same machine, with its default share
// of the time. It moves three million readings of 1,000 sensors, in bucket documents of 5 minutes,
// into a time series, or into documents with another compressor.
//
//	go test -run '^$' -bench MoveIngest -benchtime 3x ./cmd/brim
func BenchmarkMoveIngest(b *testing.B) {
	for into, flags := range map[string][]string{"series": {"--storage", "timeseries"}, "zstd": {"--compressor", "zstd"}} {
		b.Run(into, func(b *testing.B) {
			site := append(onShared(b, mongodtest.Database(b)), "--ack", "journaled")
			first := startBrim(b, site...).awaitStorage()
			first.postMany(b, 1000, 3000)
			code, answer := first.admin(http.MethodPost, "/flush?timeout=10m")
			require.Equal(b, http.StatusOK, code, answer)
			require.Zero(b, first.Stop())
			daemon := startBrim(b, append(site, flags...)...).awaitStorage()
			daemon.compareAcks(b, func() (end func()) { return startMove(b, site[:4]) })
		})
	}
}

// postMany posts readings of sensors, one every second.
func (b *brimProcess) postMany(t testing.TB, sensors, each int) {
	t.Helper()
	var body []byte
	for i := range each {
		for s := range sensors {
			body = fmt.Appendf(body, `{"sensorId":"sensor-%d","ts":%d,"fields":{"t":%d.5,"n":%d}}`+"\n", s, daySide().UnixMilli()+int64(1000*i), s%40, i)
		}
		if (i+1)%5 == 0 || i == each-1 {
			code, answer, err := b.send("/v1/readings", body, "Content-Type", "application/x-ndjson")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code, answer)
			body = body[:0]
		}
	}
}

// startMove starts a move, and returns when it copies. The move must not have ended before end
// interrupts it.
func startMove(b *testing.B, mongo []string) (end func()) {
	b.Helper()
	cmd := exec.Command(brimBinary(b), append([]string{"move", "readings", "--admin", "127.0.0.1:1"}, mongo...)...)
	cmd.Env = foreignEnv()
	out, err := cmd.StderrPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "  sensor ") {
		b.Log(lines.Text())
	}
	require.Contains(b, lines.Text(), "  sensor ", "the move copies")
	return func() {
		last := make(chan string)
		go func() {
			text := ""
			for lines.Scan() {
				text = lines.Text()
			}
			last <- text
		}()
		require.NoError(b, cmd.Process.Signal(syscall.SIGINT))
		require.Contains(b, <-last, "interrupted", "the move has ended early")
		require.Error(b, cmd.Wait())
	}
}
