package maintain

import (
	"bytes"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// Identity leaves documents as they are: what changes is how they are stored.
type Identity struct{}

// Span is an hour, which every granularity divides.
func (Identity) Span() time.Duration { return store.MaxGranularity }

// Reshape returns the group.
func (Identity) Reshape(group []bson.Raw) ([]bson.Raw, error) { return group, nil }

// Verify compares byte by byte.
func (Identity) Verify(before, after []bson.Raw) error {
	if len(before) != len(after) {
		return fmt.Errorf("there are %d documents, and %d in the copy", len(before), len(after))
	}
	for i := range before {
		if !bytes.Equal(before[i], after[i]) {
			return fmt.Errorf("the document with _id %s differs from the copy's with %s", before[i].Lookup("_id"), after[i].Lookup("_id"))
		}
	}
	return nil
}
