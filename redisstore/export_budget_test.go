package redisstore

// BudgetSource is the script of a Budget.
var BudgetSource = budgetSource

// Accounts reports how many accounts b keeps.
func Accounts(b *Budget) int {
	b.accounts.mu.Lock()
	defer b.accounts.mu.Unlock()
	return len(b.accounts.all)
}

// Touch makes b keep an account for key.
func Touch(b *Budget, key string) { b.account(key) }
