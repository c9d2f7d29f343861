package brimtest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// Ask makes a request on a connection of its own.
func Ask(method, url, body string) (code int, answer string, err error) {
	return AskFor(Patience, method, url, body)
}

// AskFor is Ask with a patience of its own.
func AskFor(patience time.Duration, method, url, body string) (code int, answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	return CarryOut(req)
}

// CarryOut makes a request on a connection of its own.
func CarryOut(req *http.Request) (code int, answer string, err error) {
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
