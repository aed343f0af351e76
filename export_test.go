package heed

// Keys is how many keys b keeps a balance for.
func (b *LocalBudget) Keys() int {
	b.purses.mu.Lock()
	defer b.purses.mu.Unlock()
	return len(b.purses.all)
}
