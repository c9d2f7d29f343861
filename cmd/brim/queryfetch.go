package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/brim-telemetry/brim/internal/config"
)

// maxAnswer bounds what is read of an answer: a page of readings with 256 long
// fields each would be larger, and is told to be asked for in smaller pages.
const maxAnswer = 1 << 30

// fetch asks for one page; after is where the next one begins, empty if this is
// the last.
func (o *queryOptions) fetch(ctx context.Context, q *question) (items []json.RawMessage, after string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, q.address+"?"+q.query.Encode(), http.NoBody)
	if err != nil {
		return nil, "", fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", q.kind.accept())
	resp, err := o.client.Do(req)
	if err != nil {
		return nil, "", o.explain(err)
	}
	defer resp.Body.Close()
	body := io.LimitReader(resp.Body, maxAnswer)
	if resp.StatusCode != http.StatusOK {
		return nil, "", o.refusal(resp.StatusCode, body)
	}
	switch {
	case q.kind.single:
		var item json.RawMessage
		if err := json.NewDecoder(body).Decode(&item); err != nil {
			return nil, "", fmt.Errorf("read the daemon's answer: %w", err)
		}
		return []json.RawMessage{item}, "", nil
	case q.kind.lines && strings.HasPrefix(resp.Header.Get("Content-Type"), asLines):
		items, err = readLines(body)
		return items, "", err
	default:
		return o.readPage(body, q.kind.name)
	}
}

// The forms in which a daemon can be asked to answer.
const (
	asJSON  = "application/json"
	asLines = "application/x-ndjson"
)

// accept is the form in which an answer is asked for: as lines where it comes in
// one page, since one of JSON is refused if it is long.
func (k kind) accept() string {
	if k.lines {
		return asLines
	}
	return asJSON
}

// readPage reads a list of things under their name, and where the next one begins.
func (o *queryOptions) readPage(body io.Reader, name string) (items []json.RawMessage, after string, err error) {
	var page map[string]json.RawMessage
	if err := json.NewDecoder(body).Decode(&page); err != nil {
		return nil, "", fmt.Errorf("read the daemon's answer: %w", err)
	}
	list, ok := page[name]
	if !ok {
		return nil, "", fmt.Errorf("the daemon's answer has no %s; is %s the --http-addr of a daemon?", name, config.MaskUser(o.base))
	}
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, "", fmt.Errorf("read the daemon's answer: %w", err)
	}
	if next, ok := page["after"]; ok {
		if err := json.Unmarshal(next, &after); err != nil {
			return nil, "", fmt.Errorf("read the daemon's answer: %w", err)
		}
	}
	return items, after, nil
}

// readLines reads a thing a line. An answer that the daemon could not end has as
// its last line why.
func readLines(body io.Reader) (items []json.RawMessage, err error) {
	for lines := json.NewDecoder(body); ; {
		var item json.RawMessage
		switch err := lines.Decode(&item); {
		case errors.Is(err, io.EOF):
			return items, nil
		case err != nil:
			return nil, fmt.Errorf("read the daemon's answer: %w", err)
		}
		var broken struct {
			Error *struct{ Code, Message string }
		}
		if bytes.HasPrefix(item, []byte(`{"error"`)) && json.Unmarshal(item, &broken) == nil && broken.Error != nil {
			return nil, fmt.Errorf("the daemon broke its answer off: %s (%s)", broken.Error.Message, broken.Error.Code)
		}
		items = append(items, item)
	}
}

// explain tells what to do when there is no answer.
func (o *queryOptions) explain(err error) error {
	if told := explainCall(o.base, "--url", err); told != err { //nolint:errorlint // whether there is something to tell
		return told
	}
	return fmt.Errorf("ask the daemon at %s: %w", config.MaskUser(o.base), err)
}

// refusal makes an error of an answer that is no page.
func (o *queryOptions) refusal(code int, answer io.Reader) error {
	body, err := io.ReadAll(io.LimitReader(answer, 1<<20))
	if err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	if wantsTLS(code, body) {
		return config.Usage(fmt.Errorf("--url: %s speaks TLS; call it by https://", config.MaskUser(o.base)))
	}
	var problem struct{ Code, Message string }
	if err := json.Unmarshal(body, &problem); err != nil || problem.Message == "" {
		return fmt.Errorf("the daemon answered %d %s without saying why; is this its --http-addr?", code, http.StatusText(code))
	}
	err = fmt.Errorf("%s (%s, HTTP %d)%s", problem.Message, problem.Code, code, o.caller.hint(code))
	if code == http.StatusBadRequest {
		return config.Usage(err)
	}
	return err
}
