package journal

// A deque is a queue whose items have numbers that never change.
type deque[T any] struct {
	items []T
	head  int    // items before it were dropped
	base  uint64 // number of the first item
}

func (d *deque[T]) len() int { return len(d.items) - d.head }

// at returns item i, counted from the first.
func (d *deque[T]) at(i int) *T { return &d.items[d.head+i] }

func (d *deque[T]) push(item T) { d.items = append(d.items, item) }

// drop forgets the first item.
func (d *deque[T]) drop() {
	var zero T
	d.items[d.head] = zero
	d.head++
	d.base++
	// Moving no more than was dropped costs nothing on average.
	if d.head >= 64 && d.head*2 >= len(d.items) {
		n := copy(d.items, d.items[d.head:])
		clear(d.items[n:])
		d.items, d.head = d.items[:n], 0
	}
}
