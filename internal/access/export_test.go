package access

// Settle reads the files twice, so that a change is applied.
func (t *TLS) Settle() {
	t.poll()
	t.poll()
}
