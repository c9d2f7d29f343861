package main

import "slices"

// What is said once below the table, and not in the remarks of each row.
const (
	rawExplained = "Raw `insertMany` is the Go driver with three writers, 1,000 documents a call (960 of a time-series collection, in whole groups of 60), unordered, write concern majority, " +
		"into another database of the same mongod. Documents are `bson.D` made before the clock starts, of which only the time is set; the driver encodes them and adds an `_id` " +
		"(a struct with bson tags costs the client a third more). Documents encoded beforehand are bytes with an `_id` of their own, given to `insertMany` as `bson.Raw`; the driver walks through them again, so they need not be cheaper for the client."
	timeExplained = "The merge factor depends on how many readings of a sensor come while Brim waits. Here 1,000 sensors report much faster than the clock; " +
		"a real fleet with the same rate has more sensors, or shorter intervals, and the factor is what comes of a sensor between two writes of its bucket (`--rows growth` shows the cost at other factors)."
	waysExplained = "Over HTTP each connection has one unanswered request of 1,000 readings; over gRPC each connection has one call with several unanswered requests, as the remark says. All ask for the ack `journaled`, " +
		"and the clock stops when everything is stored and counted in MongoDB."
)

// explain has a text printed below the table, once.
func (y *yardstick) explain(text string) {
	if !slices.Contains(y.explained, text) {
		y.explained = append(y.explained, text)
	}
}
