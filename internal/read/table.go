package read

import (
	"bytes"
	"fmt"

	"github.com/brim-telemetry/brim/internal/files"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A page is a list of readings in the format that the client wants: a writer, or a table.
type page interface {
	add(r *telemetry.Reading) error
	full() bool             // the rest should be on the next page
	mark()                  // sets where rollback returns to
	rollback() bool         // removes what was added since mark, and reports whether it could
	end(after string) error // after is the cursor of the next page; empty: there is none
}

func (q *query) newPage() page {
	if q.params.table != "" {
		return &table{answer: q.w, format: q.params.table}
	}
	return q.newWriter(`{"readings":[`)
}

// add implements page.
func (o *writer) add(r *telemetry.Reading) error {
	o.next()
	o.body = r.AppendJSON(o.body)
	return o.flush()
}

// A table is a page as CSV or Parquet. Its columns are known only when it has all readings,
// so the readings are kept in memory until then, up to maxPageBytes.
type table struct {
	answer  *answer
	format  files.Format
	columns files.Columns
	rows    []telemetry.Reading
	bytes   int
	marked  int // rows at mark
}

func (t *table) add(r *telemetry.Reading) error {
	t.rows = append(t.rows, *r)
	t.bytes += weight(r)
	return nil
}

func (t *table) full() bool { return t.bytes > maxPageBytes }

func (t *table) mark() { t.marked = len(t.rows) }

func (t *table) rollback() bool {
	if t.marked == 0 {
		return false // the page would be empty
	}
	t.rows = t.rows[:t.marked]
	return true
}

func (t *table) end(after string) error {
	for i := range t.rows {
		t.columns.Add(&t.rows[i])
	}
	var body bytes.Buffer
	out, err := files.NewWriter(t.format, &body, &t.columns)
	if err != nil {
		return telemetry.Errorf(telemetry.Invalid, telemetry.CodeTooCostly, "%v", err)
	}
	for i := 0; i < len(t.rows) && err == nil; i++ {
		err = out.Write(&t.rows[i])
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		return fmt.Errorf("write the answer as %s: %w", t.format, err)
	}
	h := t.answer.Header()
	h.Set("Content-Type", t.format.MediaType())
	if after != "" {
		h.Set(telemetry.AfterHeader, headerText(after))
	}
	_, err = t.answer.Write(body.Bytes())
	return err
}
