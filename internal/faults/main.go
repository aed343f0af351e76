// The command faults shows that the tests in rules_test.go can fail:
//
//	go run ./internal/faults
//
// For each test it puts a one-line fault into a copy of the code, runs the test, and prints whether
// the test failed. It exits with status 1 if a test passed in spite of its fault.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "heed-faults-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copyClient(dir); err != nil {
		return err
	}
	if out, err := test(dir, "."); err != nil {
		return fmt.Errorf("a test fails without a fault: %w\n%s", err, out)
	}
	var missed []error
	fmt.Printf("%-52s %-18s %s\n", "test", "fault in", "result")
	for _, f := range faults {
		verdict := "fails, as it should"
		if err := f.try(dir); err != nil {
			verdict = "NOT CAUGHT: " + err.Error()
			missed = append(missed, fmt.Errorf("%s: %w", f.test, err))
		}
		fmt.Printf("%-52s %-18s %s\n", f.test, f.file, verdict)
	}
	fmt.Printf("%d faults, %d caught\n", len(faults), len(faults)-len(missed))
	return errors.Join(missed...)
}

// try puts f into the copy in dir, runs its test, and restores the copy.
func (f fault) try(dir string) error {
	name := filepath.Join(dir, f.file)
	good, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if n := strings.Count(string(good), "\t"+f.line+"\n") + strings.Count(string(good), "\n"+f.line+"\n"); n != 1 {
		return fmt.Errorf("the line occurs %d times in %s", n, f.file)
	}
	bad := strings.Replace(string(good), f.line+"\n", f.bad+"\n", 1)
	if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
		return err
	}
	defer os.WriteFile(name, good, 0o600)
	out, err := test(dir, "^"+f.test+"$")
	switch {
	case err == nil:
		return errors.New("the test passes with the fault")
	case bytes.Contains(out, []byte("[build failed]")):
		return fmt.Errorf("the fault does not compile: %s", out)
	}
	return nil
}

func test(dir, pattern string) ([]byte, error) {
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-timeout=2m", "-run", pattern, ".")
	cmd.Dir = dir
	return cmd.CombinedOutput()
}

// copyClient copies what the root package and its rules_test.go need.
func copyClient(dir string) error {
	for _, part := range []string{".", "ratelimit", "internal/hostkey", "internal/keyed", "internal/adaptive",
		"internal/scope"} {
		if err := copyFiles(part, filepath.Join(dir, part)); err != nil {
			return err
		}
	}
	return nil
}

func copyFiles(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !needed(entry) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, entry.Name()), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// needed reports whether entry is part of the root package, rules_test.go or helpers_test.go. The
// other tests import packages that are not copied.
func needed(entry fs.DirEntry) bool {
	name := entry.Name()
	switch {
	case entry.IsDir():
		return false
	case strings.HasSuffix(name, "_test.go"):
		return name == "rules_test.go" || name == "helpers_test.go"
	}
	return strings.HasSuffix(name, ".go") || name == "go.mod" || name == "go.sum"
}
