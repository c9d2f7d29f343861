package access

// Settle has the files read twice, so that a change is applied.
func (t *TLS) Settle() {
	t.poll()
	t.poll()
}
