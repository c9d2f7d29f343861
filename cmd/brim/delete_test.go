package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDeleteCountsNoReadingsIfSomeAreUnknown whatever the order of the pages.
func TestDeleteCountsNoReadingsIfSomeAreUnknown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pages [3]int // deleted readings
		want  string
	}{
		{[3]int{5, 6, 7}, "deleted 6 sensors with 18 readings\n"},
		{[3]int{5, -1, 7}, "deleted 6 sensors\n"},
		{[3]int{-1, -1, 7}, "deleted 6 sensors\n"},
		{[3]int{5, 6, -1}, "deleted 6 sensors\n"},
	} {
		page := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			after := ""
			if page < len(c.pages)-1 {
				after = fmt.Sprintf(`,"after":"s-%d"`, page)
			}
			fmt.Fprintf(w, `{"deleted":%d,"sensors":2%s}`, c.pages[page], after)
			page++
		}))
		got := runBrim(t, nil, "delete", "--prefix", "s", "--yes", "--url", server.URL)
		server.Close()
		require.NoError(t, got.err)
		assert.Equal(t, c.want, got.stdout)
	}
}
