package console

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTagsMayHaveSpacesInTheirValues(t *testing.T) {
	t.Parallel()
	out := node(t, importing(t, "tagsIn", "tags.js")+`
for (const text of ["", "site=north", " site=north wing  room!=1 ", "site=~a b|c room!~x y a=~z", "site!=a b", "site= room=1"]) console.log(JSON.stringify(tagsIn(text)));`)
	assert.Equal(t, `[""]
["site=north"]
["site=north wing","room!=1"]
["site=~a b|c","room!~x y","a=~z"]
["site!=a b"]
["site=","room=1"]
`, out)
}
