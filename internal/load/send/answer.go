package send

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/brim-telemetry/brim/internal/load"
)

// httpAnswer returns what a response says to a request of that many readings.
func httpAnswer(status int, body []byte, readings int) (load.Answer, error) {
	switch status {
	case http.StatusOK, http.StatusAccepted, http.StatusMultiStatus:
		accepted, rejected, err := parseCounts(body)
		if err != nil {
			return load.Answer{Failure: FailureAnswer}, fmt.Errorf("read the answer: %w", err)
		}
		return counted(accepted, rejected, readings)
	case http.StatusBadRequest:
		// So a daemon answers where it refused every reading.
		if accepted, rejected, err := parseCounts(body); err == nil && accepted == 0 && rejected == readings {
			return load.Answer{Rejected: rejected}, fmt.Errorf("every reading was refused: %s", problemOf(status, body))
		}
	}
	return load.Answer{Failure: strconv.Itoa(status)}, fmt.Errorf("the answer is %d: %s", status, problemOf(status, body))
}

// counted returns the answer that these counts are, where they can be true.
func counted(accepted, rejected, readings int) (load.Answer, error) {
	if accepted < 0 || rejected < 0 || accepted+rejected != readings {
		return load.Answer{Failure: FailureAnswer}, fmt.Errorf("the answer tells of %d readings accepted and %d rejected, but %d were sent", accepted, rejected, readings)
	}
	return load.Answer{Accepted: accepted, Rejected: rejected}, nil
}

// parseCounts reads the two counts of an answer. A daemon writes them first of
// all; whatever else is between is left to a real decoder.
func parseCounts(body []byte) (accepted, rejected int, err error) {
	if rest, ok := bytes.CutPrefix(body, []byte(`{"accepted":`)); ok {
		if accepted, rest, ok = leadingInt(rest); ok {
			if rest, ok = bytes.CutPrefix(rest, []byte(`,"rejected":`)); ok {
				if rejected, _, ok = leadingInt(rest); ok {
					return accepted, rejected, nil
				}
			}
		}
	}
	var answer struct{ Accepted, Rejected *int }
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, 0, err
	}
	if answer.Accepted == nil || answer.Rejected == nil {
		return 0, 0, errors.New("it does not say how many readings were accepted and rejected")
	}
	return *answer.Accepted, *answer.Rejected, nil
}

// leadingInt reads the digits at the beginning of b.
func leadingInt(b []byte) (n int, rest []byte, ok bool) {
	const digits = 9 // that surely do not overflow
	i := 0
	for ; i < len(b) && i <= digits && '0' <= b[i] && b[i] <= '9'; i++ {
		n = n*10 + int(b[i]-'0')
	}
	return n, b[i:], i > 0 && i <= digits
}

// problemOf returns what the body of a refusal says, for people.
func problemOf(status int, body []byte) string {
	var problem struct {
		Code, Message string
		Errors        []struct{ Code, Message string }
	}
	const most = 300 // bytes of something else
	switch err := json.Unmarshal(body, &problem); {
	case err == nil && problem.Message != "":
		return problem.Code + ": " + problem.Message
	case err == nil && len(problem.Errors) > 0:
		return problem.Errors[0].Code + ": " + problem.Errors[0].Message
	case len(body) > 0:
		return strconv.Quote(string(body[:min(len(body), most)]))
	}
	return http.StatusText(status)
}

// brokenAnswer names an error of the network.
func brokenAnswer(ctx context.Context, err error) load.Answer {
	var network net.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return load.Answer{Failure: FailureCanceled}
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return load.Answer{Failure: FailureTimeout}
	}
	return load.Answer{Failure: FailureConnection}
}
