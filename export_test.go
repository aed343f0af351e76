package heed

// Keys is how many keys b keeps a balance for.
func (b *LocalBudget) Keys() int {
	b.accounts.mu.Lock()
	defer b.accounts.mu.Unlock()
	return len(b.accounts.all)
}
