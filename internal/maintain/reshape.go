package maintain

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Reshaper says what documents become in the new collection. Documents are
// reshaped by groups: all of one sensor whose windows begin within the same
// span, aligned to the epoch. What becomes of a group depends on nothing but its
// documents, so that a group can be made anew whenever one of them changed.
type Reshaper interface {
	// Span is the length of a group's time: a multiple of every granularity, of
	// the documents that are there and of those that they become.
	Span() time.Duration
	// Reshape returns what a group's documents become. Both are in the order of
	// their _id, and the new ones lie in the same span. It keeps nothing of the
	// group's memory, and an error names the document.
	Reshape(group []bson.Raw) ([]bson.Raw, error)
	// Verify returns why the documents after do not hold exactly the readings of
	// those before, nil if they do.
	Verify(before, after []bson.Raw) error
}
