package journal

import "github.com/brim-telemetry/brim/internal/batch"

type volatileCursor struct {
	journal  *Volatile
	position uint64
}

// Next implements batch.Cursor.
func (c *volatileCursor) Next() (batch.Record, bool, error) {
	v := c.journal
	v.mu.Lock()
	defer v.mu.Unlock()
	for c.position = max(c.position, v.records.base); c.position < v.end(); {
		b := v.records.at(int(c.position - v.records.base)).batch
		c.position++
		if b != nil {
			return batch.Record{Batch: b, Position: c.position - 1, Next: c.position}, true, nil
		}
	}
	return batch.Record{}, false, nil
}

// Position implements batch.Cursor.
func (c *volatileCursor) Position() uint64 { return c.position }

// Close implements batch.Cursor.
func (c *volatileCursor) Close() {}
