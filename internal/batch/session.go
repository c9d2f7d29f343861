package batch

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// NewSession draws the name of a session: a letter and ten more characters with 48
// random bits, short because every bucket document keeps it. The time is mixed in,
// since two machines resumed from one snapshot may draw the same bits.
func NewSession() string {
	var random [8]byte
	_, _ = rand.Read(random[:])                                                                             // never fails
	binary.BigEndian.PutUint64(random[:], binary.BigEndian.Uint64(random[:])^uint64(time.Now().UnixNano())) //nolint:gosec // bits
	return "s" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random[2:]))
}

// ReadingID returns the 12 bytes that identify a reading: six of its session, six of
// its sequence.
func ReadingID(session string, seq uint64) (id [12]byte) {
	binary.BigEndian.PutUint64(id[:8], xxhash.Sum64String(session))
	var low [8]byte
	binary.BigEndian.PutUint64(low[:], seq)
	copy(id[6:], low[2:])
	return id
}
