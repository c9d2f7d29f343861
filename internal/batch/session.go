package batch

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// NewSession draws the name of a session: a letter and ten more characters
// that make 48 random bits, short because every bucket document keeps it.
func NewSession() string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return "s" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random[:]))
}

// ReadingID makes the 12 bytes that name a reading for ever: six of its
// session, six of its sequence.
func ReadingID(session string, seq uint64) (id [12]byte) {
	binary.BigEndian.PutUint64(id[:8], xxhash.Sum64String(session))
	var low [8]byte
	binary.BigEndian.PutUint64(low[:], seq)
	copy(id[6:], low[2:])
	return id
}
