package ingest

import (
	"errors"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A pace is how fast a body must come. Nothing is asked of it for a while; from
// then on as much as the rate must have come for every second. Beyond a chunk it
// holds room that others wait for, and must be heavyRate times as fast.
type pace struct {
	grace time.Duration
	rate  int64 // bytes a second; 0: any
}

// heavyRate is how many times faster the part of a body must come for which room
// is reserved: 32 KiB/s with the default rate, so that 8 MiB take 6 minutes at
// most, grace and first chunk included.
const heavyRate = 32

// until returns when more must have come of a body that began to be read at
// start, and of which length bytes have come.
func (p pace) until(start time.Time, length int64) time.Time {
	light, heavy := min(length, chunkBytes), max(0, length-chunkBytes)
	return start.Add(p.grace + seconds(light, p.rate) + seconds(heavy, p.rate*heavyRate))
}

func seconds(bytes, rate int64) time.Duration {
	return time.Duration(float64(bytes) / float64(rate) * float64(time.Second))
}

// A pacer holds one body to its pace, by the deadline of its connection.
type pacer struct {
	pace    pace
	control *http.ResponseController // nil: the connection has no deadline
	start   time.Time
	set     time.Time   // deadline; zero: none
	awaited atomic.Bool // others wait for the memory
}

// begin sets the first deadline.
func (p *pacer) begin() {
	if p.pace.rate == 0 || p.control == nil {
		p.control = nil
		return
	}
	p.start = time.Now()
	p.move(0)
}

// came moves the deadline, if that is worth it.
func (p *pacer) came(length int64) {
	const step = time.Second // of deadlines; to move one costs as much as to decode a reading
	if p.control != nil && p.pace.until(p.start, length).Sub(p.set) > min(step, p.pace.grace) {
		p.move(length)
	}
}

func (p *pacer) move(length int64) {
	p.set = p.pace.until(p.start, length)
	if p.control.SetReadDeadline(p.set) != nil {
		p.control = nil // not a connection
	}
}

// end takes the deadline away: what comes behind the body is watched for as long
// as its answer takes.
func (p *pacer) end() {
	if p.control != nil {
		_ = p.control.SetReadDeadline(time.Time{}) // it could be set before
	}
}

// giveUp aborts the body, because others wait for its memory. Any goroutine may
// call it while the body is being received.
func (p *pacer) giveUp() {
	p.awaited.Store(true)
	if p.control != nil {
		_ = p.control.SetReadDeadline(time.Unix(1, 0)) // it could be set before
	}
}

// explain turns an error of reading a body into one for its sender.
func (p *pacer) explain(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if p.awaited.Load() {
			return errAwaited()
		}
		return &telemetry.Error{
			Kind: telemetry.TooSlow, Code: codeTooSlow, Err: err,
			Message: "the body came too slowly; nothing was taken, send smaller requests",
		}
	}
	return &telemetry.Error{Kind: telemetry.Invalid, Code: codeCutOff, Message: "the body did not arrive whole; nothing was taken", Err: err}
}

func errAwaited() error {
	return telemetry.Errorf(telemetry.TooSlow, codeTooSlow,
		"the body arrived too slowly while other requests waited for the memory it held (--ingest-max-bytes); nothing was taken, send smaller requests")
}
