package redisstore

// BudgetSource is the script of a Budget.
var BudgetSource = budgetSource

// Accounts reports how many accounts b keeps.
func Accounts(b *Budget) int { return b.accounts.Len() }
