package doctor

import (
	"context"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// lookAtWindow asks for how long the server keeps old versions of documents.
// It is asked at each look, since an operator may change it while we watch.
func (m *Monitor) lookAtWindow(parent context.Context, now *look) {
	now.historyWindow = math.NaN()
	switch {
	case now.server == nil || now.serverWhy != "":
		return
	case now.server.info.topology == standalone:
		now.historyWindow = 0 // whatever is set: without an oplog there is no history to read
		return
	}
	ctx, cancel := context.WithTimeout(parent, m.patience())
	defer cancel()
	const parameter = "minSnapshotHistoryWindowInSeconds"
	raw, err := m.database.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "getParameter", Value: 1}, {Key: parameter, Value: 1}}).Raw()
	if err == nil && raw.Validate() == nil { // else the diagnosis does without
		now.historyWindow = number(raw, parameter)
	}
}
