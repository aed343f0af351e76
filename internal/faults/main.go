// The command faults shows that the tests of the client's rules can fail: for
// each rule it puts a one-line fault into a copy of the code, runs the rule's
// test, and prints a table of what was caught. It ends with status 1 if a fault
// was not.
//
//	go run ./internal/faults
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
	if out, err := test(dir, "TestRule"); err != nil {
		return fmt.Errorf("the rules fail without a fault: %w\n%s", err, out)
	}
	var missed []error
	fmt.Printf("%-4s  %-52s %-18s %s\n", "rule", "", "fault in", "its test")
	for _, f := range faults {
		verdict := "fails, as it should"
		if err := f.try(dir); err != nil {
			verdict = "NOT CAUGHT: " + err.Error()
			missed = append(missed, fmt.Errorf("rule %d: %w", f.rule, err))
		}
		fmt.Printf("%-4d  %-52s %-18s %s\n", f.rule, f.what, f.file, verdict)
	}
	fmt.Printf("%d faults, %d caught\n", len(faults), len(faults)-len(missed))
	return errors.Join(missed...)
}

// try puts f into the copy in dir, and takes it out again.
func (f fault) try(dir string) error {
	name := filepath.Join(dir, f.file)
	good, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if n := strings.Count(string(good), "\t"+f.line+"\n") + strings.Count(string(good), "\n"+f.line+"\n"); n != 1 {
		return fmt.Errorf("the line occurs %d times", n)
	}
	bad := strings.Replace(string(good), f.line+"\n", f.bad+"\n", 1)
	if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
		return err
	}
	defer os.WriteFile(name, good, 0o600)
	out, err := test(dir, fmt.Sprintf("TestRule%02d", f.rule))
	switch {
	case err == nil:
		return errors.New("the test passes")
	case bytes.Contains(out, []byte("[build failed]")):
		return fmt.Errorf("it does not compile: %s", out)
	}
	return nil
}

func test(dir, pattern string) ([]byte, error) {
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-timeout=2m", "-run", pattern, ".")
	cmd.Dir = dir
	return cmd.CombinedOutput()
}

// copyClient copies what the root package is tested with.
func copyClient(dir string) error {
	for _, part := range []string{".", "ratelimit", "internal/hostkey", "internal/keyed", "internal/adaptive", "internal/scope"} {
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

// needed reports whether entry is a part of the root package and of the tests
// of its rules; its other tests import packages that are not copied.
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
