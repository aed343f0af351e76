//go:build race

package quotatest

// raced reports whether the race detector is on.
const raced = true
