//go:build !unix

package machine

// FileID returns an empty string: files have no known ID on this system.
func FileID(string) string { return "" }
