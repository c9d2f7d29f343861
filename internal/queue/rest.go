package queue

// RestOf returns a position of the journal before which all readings of the
// stream's sensors with this hash of batch.SeriesHash are at rest. It is that of
// their lane, which may be far ahead of one that has a bucket set aside.
func (q *Queue) RestOf(stream string, hash uint64) uint64 {
	for _, l := range q.lanes {
		if l.stream == stream && l.part.Has(hash) {
			return l.rest.Load()
		}
	}
	return q.Status().Rest
}
