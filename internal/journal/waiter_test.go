package journal

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAPositionThatIsUsedAgainKeepsItsWaiter(t *testing.T) {
	t.Parallel()
	var all waiters
	refused, next := newWaiter(1), newWaiter(1)
	all.add(5, refused)
	all.add(5, next) // the first one's write failed
	all.remove(5, refused)
	assert.Same(t, next, all.at(5))
	all.remove(5, next)
	assert.Nil(t, all.at(5))
}
