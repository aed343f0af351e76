package ratelimit

// AllVendors are the rows of the table.
func AllVendors() []Profile { return vendors() }
