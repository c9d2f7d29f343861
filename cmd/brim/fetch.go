package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// A readingsPage is the daemon's answer to a question for readings.
type readingsPage struct {
	Readings []json.RawMessage `json:"readings"`
	After    string            `json:"after"` // where the next page begins; empty if this is the last
}

// maxAnswer bounds what is read of an answer: a page of readings with 256 long
// fields each would be larger, and is told to be asked for in smaller pages.
const maxAnswer = 1 << 30

// fetch asks for one page.
func (o *queryOptions) fetch(ctx context.Context, address string) (*readingsPage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := o.client.Do(req)
	if err != nil {
		return nil, o.explainNoAnswer(err)
	}
	defer resp.Body.Close()
	body := io.LimitReader(resp.Body, maxAnswer)
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp.StatusCode, body)
	}
	var page readingsPage
	if err := json.NewDecoder(body).Decode(&page); err != nil {
		return nil, fmt.Errorf("read the daemon's answer: %w", err)
	}
	return &page, nil
}

// refusal makes an error of an answer that is no page.
func refusal(code int, body io.Reader) error {
	var problem struct{ Code, Message string }
	if err := json.NewDecoder(body).Decode(&problem); err != nil || problem.Message == "" {
		return fmt.Errorf("the daemon answered %d %s without saying why; is this its --http-addr?", code, http.StatusText(code))
	}
	err := fmt.Errorf("%s (%s, HTTP %d)", problem.Message, problem.Code, code)
	if code == http.StatusBadRequest {
		return usageError{err}
	}
	return err
}
