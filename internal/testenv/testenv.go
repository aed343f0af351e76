// Package testenv decides which tests run on this machine.
//
// The default tests need Go and, for Redis, redis-server. They assert only what holds on any machine,
// however busy. The environment variable HEED_TEST enables more:
//
//	all    also tests that need other programs: gateways, a browser, Prometheus
//	long   also long forms, and tests that measure time, shares or speed
package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// All reports whether to run tests that need other programs than redis-server.
func All() bool { return os.Getenv("HEED_TEST") == "all" || Long() }

// Long reports whether to run long forms and tests that measure.
func Long() bool { return os.Getenv("HEED_TEST") == "long" }

// NeedLong skips the test unless Long returns true.
func NeedLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("a long form: HEED_TEST=long runs it")
	}
}

// Redis returns the path of redis-server or valkey-server. Without either it skips the test, or
// fails it if the environment variable CI is "true".
func Redis(t testing.TB) string {
	t.Helper()
	path, err := find("redis-server", "valkey-server")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	return path
}

// Program returns the path of the first installed program of names. It skips the test if there is
// none, or unless All returns true.
func Program(t testing.TB, names ...string) string {
	t.Helper()
	if !All() {
		t.Skipf("needs %s: HEED_TEST=all runs it", names[0])
	}
	path, err := find(names...)
	if err != nil {
		t.Skip(err)
	}
	return path
}

func find(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("NOT TESTED: none of %q is in PATH", names)
}
