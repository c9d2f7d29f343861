package telemetry

import (
	"context"
	"sync/atomic"
)

// A Budget bounds the bytes that one answer may read. Stores take the bytes of
// the documents they fetch out of it with Spend. It is safe for concurrent use.
type Budget struct {
	limit int64
	spent atomic.Int64
}

// NewBudget returns a budget of so many bytes; 0: any number.
func NewBudget(bytes int64) *Budget { return &Budget{limit: bytes} }

// Spent returns the bytes that were taken out.
func (b *Budget) Spent() int64 { return b.spent.Load() }

// Add takes so many bytes out, even if fewer are left.
func (b *Budget) Add(bytes int64) { b.spent.Add(bytes) }

// Limit returns the bytes that the budget began with; 0: any number.
func (b *Budget) Limit() int64 { return b.limit }

type budgetKey struct{}

// WithBudget returns a context whose questions to a store come out of the budget.
func WithBudget(ctx context.Context, b *Budget) context.Context {
	return context.WithValue(ctx, budgetKey{}, b)
}

// Spend says that so many bytes of documents were fetched, or unfolded, for the
// answer that ctx belongs to. It returns an *Error with CodeTooCostly once that is
// more than the budget allows; without a budget nothing is too much.
func Spend(ctx context.Context, bytes int) error {
	b, ok := ctx.Value(budgetKey{}).(*Budget)
	if !ok {
		return nil
	}
	if spent := b.spent.Add(int64(bytes)); b.limit > 0 && spent > b.limit {
		return Errorf(Invalid, CodeTooCostly, "the answer would need more than the %d bytes of documents that one answer may read", b.limit)
	}
	return nil
}

// CodeTooCostly is the code of a question that is refused for what it would cost.
const CodeTooCostly = "query_too_costly"
