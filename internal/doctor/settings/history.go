package settings

import (
	"fmt"
	"math"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// historyWindow: a replica set keeps, for as long as the window, every version
// of a document that it replaces. An append to a bucket makes one.
func historyWindow(f *facts) []doctor.Finding {
	if f.kind != replicaSet || !f.hasBuckets() || f.parameters == nil || f.parameters.History == nil || *f.parameters.History <= 0 {
		return nil
	}
	evidence := fmt.Sprintf("it is %s s, so every append leaves the bucket's old version behind for as long", plain(*f.parameters.History))
	if rate := f.span.rate("history_store_inserts_total"); !math.IsNaN(rate) {
		evidence += fmt.Sprintf("; %s old versions a second were written to the history store %s, whose file takes %s",
			amount(rate), f.span, size(f.look.value("history_store_bytes")))
	}
	return advice{
		name:     "setting_history_window",
		cause:    "history window: minSnapshotHistoryWindowInSeconds is " + plain(*f.parameters.History) + ", which bucket streams pay for and do not need",
		evidence: evidence,
		action:   parameter("minSnapshotHistoryWindowInSeconds", 0),
		cost: "no restart. Reads that ask for a snapshot of the past (readConcern snapshot with atClusterTime) find it no more, " +
			"nor do snapshot reads that take longer than the server keeps history for itself; Brim makes none",
	}.alone()
}
