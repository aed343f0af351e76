package heed

// Keys is how many keys b keeps a balance for.
func (b *LocalBudget) Keys() int { return b.accounts.Len() }
