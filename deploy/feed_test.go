package deploy_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// feed writes to both streams until the test ends: readings at each tenth of a
// window, and one that is refused.
func feed(t testing.TB, url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
				post(t, url, n)
			case <-ctx.Done():
				return
			}
		}
	}()
}

// post sends request n of a feed. Each has its own sensors; a bucket's fill is
// the position of its only reading in the window.
func post(t testing.TB, url string, n int) {
	window := time.Now().Add(-2 * time.Minute).Truncate(time.Minute)
	body := `{"sensorId":"s","ts":1,"fields":{"$":1}}` + "\n"
	for tenth := range 10 {
		ts := window.Add(time.Duration(tenth)*6*time.Second + 3*time.Second).UnixMilli()
		body += fmt.Sprintf(`{"sensorId":"s-%d-%d","ts":%d,"fields":{"t":23.5}}`+"\n", n, tenth, ts)
	}
	for _, stream := range []string{"readings", "series"} {
		code, answer, err := brimtest.Ask(http.MethodPost, url+"/v1/streams/"+stream+"/readings", body)
		if assert.NoError(t, err) {
			assert.Equal(t, http.StatusMultiStatus, code, answer)
		}
	}
}
