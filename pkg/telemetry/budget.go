package telemetry

import (
	"context"
	"sync/atomic"
)

// A Budget limits the bytes that one answer may read. Stores charge it with
// Spend for the documents they fetch. It is safe for concurrent use.
type Budget struct {
	limit int64
	spent atomic.Int64
}

// NewBudget returns a budget of a number of bytes; 0: unlimited.
func NewBudget(bytes int64) *Budget { return &Budget{limit: bytes} }

// Spent returns the bytes charged so far.
func (b *Budget) Spent() int64 { return b.spent.Load() }

// Add charges bytes, even if fewer are left.
func (b *Budget) Add(bytes int64) { b.spent.Add(bytes) }

// Limit returns the initial bytes; 0: unlimited.
func (b *Budget) Limit() int64 { return b.limit }

type budgetKey struct{}

// WithBudget returns a context whose store queries are charged to the budget.
func WithBudget(ctx context.Context, b *Budget) context.Context {
	return context.WithValue(ctx, budgetKey{}, b)
}

// Spend charges the budget of ctx, if any, for documents that were fetched, or
// decoded, for an answer. It returns an *Error with CodeTooCostly once the budget
// is exceeded.
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

// CodeTooCostly is the code for a query that is refused because of its cost.
const CodeTooCostly = "query_too_costly"
