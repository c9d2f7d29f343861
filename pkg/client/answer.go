package client

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// parseAnswer reads what a daemon says of so many readings.
func parseAnswer(body []byte, readings int) (Result, error) {
	var a struct {
		Accepted, Rejected *int
		Ack                telemetry.Ack
		Errors             []struct {
			Index   int
			Code    telemetry.Code
			Message string
		}
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return Result{}, err
	}
	if a.Accepted == nil || a.Rejected == nil {
		return Result{}, errors.New("it does not say how many readings were accepted and rejected")
	}
	r := Result{Accepted: *a.Accepted, Rejected: *a.Rejected, Ack: a.Ack}
	for _, e := range a.Errors {
		r.Refused = append(r.Refused, Refused{Index: e.Index, Code: e.Code, Message: e.Message})
	}
	return r, checkResult(r, readings)
}

// errImpossible is in the error of an answer that a daemon gave to something else.
var errImpossible = errors.New("the answer is not to this request")

// checkResult refuses what cannot be true of so many readings.
func checkResult(r Result, readings int) error {
	if r.Accepted < 0 || r.Rejected < 0 || r.Accepted > readings || r.Accepted+r.Rejected != readings {
		return fmt.Errorf("%w: it tells of %d readings accepted and %d rejected, but %d were sent", errImpossible, r.Accepted, r.Rejected, readings)
	}
	for _, e := range r.Refused {
		if e.Index < 0 || e.Index >= readings {
			return fmt.Errorf("%w: it tells of reading %d, but %d were sent", errImpossible, e.Index, readings)
		}
	}
	return nil
}

// parseProblem reads why a daemon refused a whole request; nil if it is not a
// daemon that answered.
func parseProblem(body []byte) *telemetry.Error {
	var p struct{ Code, Message string }
	if err := json.Unmarshal(body, &p); err == nil && p.Code != "" {
		return &telemetry.Error{Code: p.Code, Message: p.Message}
	}
	return nil
}
