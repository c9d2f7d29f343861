package store

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// TestErrorClasses: a code that is listed twice would not compile.
func TestErrorClasses(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]struct{ transient, away, content, tooLarge bool }{
		6: {transient: true, away: true}, 91: {transient: true, away: true}, 133: {transient: true, away: true}, 189: {transient: true, away: true},
		202: {transient: true, away: true}, 10107: {transient: true, away: true}, 11600: {transient: true, away: true}, 11602: {transient: true, away: true},
		13435: {transient: true, away: true}, 13436: {transient: true, away: true},
		43: {transient: true}, 112: {transient: true}, 175: {transient: true}, 262: {transient: true}, 290: {transient: true}, 292: {transient: true}, 11601: {transient: true},
		2: {content: true}, 40: {content: true}, 10334: {tooLarge: true}, 17419: {tooLarge: true},
		13: {}, 18: {}, 26: {}, 121: {}, 361: {}, 14031: {}, // authorization, validation, a full disk and unknown codes
	} {
		for kind, err := range map[string]error{
			"command": mongo.CommandError{Code: int32(code)},
			"write":   mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: code}}},
			"bulk":    mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: code}}}},
		} {
			err = fmt.Errorf("wrapped: %w", err)
			assert.Equal(t, want.transient, Transient(err), "%s %d", kind, code)
			assert.Equal(t, want.away, Away(err), "%s %d", kind, code)
		}
		assert.Equal(t, want.content, ContentError(code), code)
		assert.Equal(t, want.tooLarge, TooLarge(code), code)
	}
}

// TestErrorsWithoutACode are the driver's own errors, and its labels.
func TestErrorsWithoutACode(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err             error
		away, transient bool
	}{
		"network":         {mongo.CommandError{Labels: []string{"NetworkError"}}, true, true},
		"timeout":         {context.DeadlineExceeded, true, true},
		"pool is cleared": {clearedPoolError{}, true, true},
		"retryable write": {mongo.WriteException{Labels: []string{"RetryableWriteError"}}, false, true},
		"transaction":     {mongo.CommandError{Code: 999, Labels: []string{"TransientTransactionError"}}, false, true},
		"overloaded":      {mongo.CommandError{Code: 999, Labels: []string{"SystemOverloadedError"}}, false, true},
		"disconnected":    {mongo.ErrClientDisconnected, true, true},
		"nothing":         {nil, false, false},
		"cancelled":       {context.Canceled, false, false},
		"another":         {errors.New("broken"), false, false},
	} {
		assert.Equal(t, tt.away, Away(tt.err), name)
		assert.Equal(t, tt.transient, Transient(tt.err), name)
	}
}

// clearedPoolError is like the driver's error of that kind, which is not exported.
type clearedPoolError struct{}

func (clearedPoolError) Error() string   { return "connection pool was cleared" }
func (clearedPoolError) Retryable() bool { return true }

func TestResend(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		mongo.WriteException{Labels: []string{"RetryableWriteError"}}, mongo.CommandError{Labels: []string{"NetworkError"}}, fmt.Errorf("check out: %w", clearedPoolError{}),
	} {
		assert.True(t, Resend(err), "%v", err)
	}
	for _, err := range []error{nil, mongo.WriteException{}, mongo.CommandError{Code: 112}, context.DeadlineExceeded} {
		assert.False(t, Resend(err), "%v", err)
	}
}
