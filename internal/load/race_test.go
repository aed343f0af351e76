//go:build race && unix

package load_test

func init() { raced = true }
