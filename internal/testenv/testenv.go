// Package testenv says what a test may ask of its machine.
//
// The default tests need Go and, for what is about Redis, redis-server; they assert
// what holds on any machine, however busy. The environment variable HEED_TEST asks for
// more:
//
//	all    besides, tests that need other programs: gateways, a browser, Prometheus
//	long   besides those, long forms, and tests that measure time, shares or speed
package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// All reports whether tests are asked for that need other programs than redis-server.
func All() bool { return os.Getenv("HEED_TEST") == "all" || Long() }

// Long reports whether long forms are asked for, and tests that measure.
func Long() bool { return os.Getenv("HEED_TEST") == "long" }

// NeedLong skips the test unless the long forms are asked for.
func NeedLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("a long form: HEED_TEST=long runs it")
	}
}

// Redis returns the path of redis-server, or of valkey-server where there is no other.
// If there is neither, the test is skipped, or fails if the environment variable CI is
// "true".
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

// Program returns the path of the first of some programs that is installed. The test is
// skipped if none is, or unless all tests are asked for.
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
