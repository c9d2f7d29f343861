package maintain

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"pgregory.net/rapid"
)

// someDocuments draws documents of a few _ids, in their order.
func someDocuments(t *rapid.T, name string) []bson.Raw {
	var documents []bson.Raw
	for id := range int32(6) {
		if value := rapid.Int32Range(0, 2).Draw(t, name); value > 0 {
			raw, err := bson.Marshal(bson.D{{Key: "_id", Value: id}, {Key: "v", Value: value}})
			require.NoError(t, err)
			documents = append(documents, raw)
		}
	}
	return documents
}

func TestAmendmentsNeedTheFewestWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want, have := someDocuments(t, "want"), someDocuments(t, "have")
		byID := make(map[string]bson.Raw)
		for _, d := range have {
			byID[d.Lookup("_id").String()] = d
		}
		least := 0
		for _, d := range want {
			if !bytes.Equal(byID[d.Lookup("_id").String()], d) {
				least++
			}
		}
		changes := amendments(want, []group{{documents: have}})
		for _, c := range changes {
			assert.Positive(t, c.size)
			switch model := c.model.(type) {
			case *mongo.ReplaceOneModel:
				d, _ := model.Replacement.(bson.Raw)
				byID[d.Lookup("_id").String()] = d
				least--
			case *mongo.DeleteOneModel:
				id, _ := valueOf(model.Filter.(bson.D), "_id").(bson.RawValue)
				require.Contains(t, byID, id.String())
				delete(byID, id.String())
			}
		}
		assert.Zero(t, least, "only what differs is replaced")
		assert.Len(t, byID, len(want))
		for _, d := range want {
			assert.Equal(t, d, byID[d.Lookup("_id").String()])
		}
	})
}

func TestTopLevelCutsOutsideParentheses(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"a=1", "log=(enabled=false,x=(y,z))", "b=[1,2]"}, topLevel("a=1,log=(enabled=false,x=(y,z)),b=[1,2]"))
	assert.Empty(t, topLevel(""))
}
