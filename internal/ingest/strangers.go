package ingest

import (
	"context"
	"time"
)

// strangerTime is how long a connection may last on which nobody has made a call
// that he may make, as probes of the health that keep theirs do: they come again.
// Other connections end when no call has been open for idleTime.
const (
	strangerTime = 5 * time.Minute
	idleTime     = 15 * time.Minute
)

// expect ends the connection if it is a stranger's when that time is over.
func (c *callConn) expect() {
	timer := time.AfterFunc(strangerTime, func() {
		c.mu.Lock()
		strange := c.newest == 0 || !c.known.Load()
		c.mu.Unlock()
		if strange {
			c.end(endNameless)
		}
	})
	context.AfterFunc(c.ctx, func() { timer.Stop() })
}
