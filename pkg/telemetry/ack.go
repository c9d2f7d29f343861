package telemetry

import "fmt"

// Ack is what an acknowledgement promises.
type Ack string

const (
	// Journaled: the readings are fsynced in Brim's journal.
	Journaled Ack = "journaled"
	// Stored: MongoDB has the readings, majority-committed and journaled there.
	Stored Ack = "stored"
)

// ParseAck parses a level.
func ParseAck(s string) (Ack, error) {
	switch a := Ack(s); a {
	case Journaled, Stored:
		return a, nil
	}
	return "", fmt.Errorf("ack %s is unknown; allowed: journaled and stored", Quote([]byte(s)))
}
