package access

import "fmt"

// SetDefault changes Config.Default of a Guard that is in use. What identities
// have used of their quotas stays. On nil, which limits nobody, it does nothing.
func (g *Guard) SetDefault(q Quota) error {
	if err := q.check(); err != nil {
		return fmt.Errorf("set the default quota: %w", err)
	}
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.defaults = q.over(Quota{})
	all := []*Identity{g.nobody}
	if g.Asks() {
		all = g.table.Load().all
	}
	for _, i := range all {
		may := *i.may.Load()
		may.quota = may.own.over(g.defaults)
		i.may.Store(&may)
	}
	return nil
}
