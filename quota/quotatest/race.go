//go:build race

package quotatest

// raced is whether the race detector is on.
const raced = true
