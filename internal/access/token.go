package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

const (
	// tokenPrefix lets people and scanners for secrets tell what they see.
	tokenPrefix = "brim_"
	// secretBytes are 256 random bits.
	secretBytes = 32
	hashPrefix  = "sha256:"
)

// NewToken returns a new token: brim_ and 43 characters of base64url, which are
// 256 random bits.
func NewToken() (string, error) {
	var secret [secretBytes]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:]), nil
}

// HashOf returns what stands for a token in an access file. One round of a fast
// hash is enough: slow ones are for passwords, which people choose and others can
// guess, and nobody guesses 256 random bits.
func HashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}
