//go:build race

package load_test

func init() { raced = true }
