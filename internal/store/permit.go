package store

import "context"

type permitKey struct{}

// WithPermit returns a context for Write with what is asked before each of its
// commands: together they can take longer than the claim is good for that the
// write began with.
func WithPermit(ctx context.Context, permit func() error) context.Context {
	return context.WithValue(ctx, permitKey{}, permit)
}

// Permitted returns why the next command of a write must not be sent, nil if it may
// be.
func Permitted(ctx context.Context) error {
	if permit, ok := ctx.Value(permitKey{}).(func() error); ok {
		return permit()
	}
	return nil
}
