package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A pkg is a package of the module, as go list prints it.
type pkg struct {
	ImportPath, Dir              string
	GoFiles, EmbedFiles, Imports []string

	limit time.Duration // for its tests; 0 is unknown
}

// A tester runs the tests of a module with mutants.
type tester struct {
	root string // of the module, absolute
	temp string // the directory of the mutant, and for temporary files of the tests

	packages []*pkg
	slack    time.Duration // what tests may take, besides three times what they took
}

func newTester(dir string) (*tester, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "mutate-")
	return &tester{root: root, temp: temp, slack: 30 * time.Second}, err
}

// run runs the go command. After limit it kills the command, and in any case what the command has left running.
func (t *tester) run(ctx context.Context, limit time.Duration, args ...string) (output []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = t.root, os.Stderr
	// With CI, tests fail without redis-server instead of skipping. Tests that are killed leave temporary files.
	cmd.Env = append(cmd.Environ(), "CI=true", "TMPDIR="+t.temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killAll := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = killAll, time.Second
	output, err = cmd.Output()
	if cmd.Process != nil {
		killAll()
	}
	return output, cmp.Or(ctx.Err(), err)
}

// mutants returns all mutants of the packages that patterns name, in the order of the code.
func (t *tester) mutants(ctx context.Context, patterns []string) (all []*mutant, err error) {
	out, err := t.run(ctx, time.Minute, "list", "-json=ImportPath,Dir,GoFiles,EmbedFiles,Imports", "./...")
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		p := new(pkg)
		if err := d.Decode(p); err != nil {
			return nil, err
		}
		t.packages = append(t.packages, p)
	}
	out, err = t.run(ctx, time.Minute, append([]string{"list", "--"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	named := strings.Fields(string(out))
	for _, p := range t.packages {
		base := path.Base(p.ImportPath)
		helper := strings.HasPrefix(base, "test") || strings.HasSuffix(base, "test")
		if !slices.Contains(named, p.ImportPath) || helper && !slices.Contains(patterns, "./"+t.rel(p.Dir)) {
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.EmbedFiles) {
			found, err := t.mutantsOf(p, filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

func (t *tester) mutantsOf(p *pkg, file string) (all []*mutant, err error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(file) {
	case ".go":
		all, err = goMutants(source)
	case ".lua":
		all = luaMutants(source)
	}
	for _, m := range all {
		m.of, m.path, m.File = p, file, t.rel(file)
	}
	return all, err
}

// rel returns path as seen from the root.
func (t *tester) rel(path string) string {
	short, err := filepath.Rel(t.root, path)
	if err != nil {
		return path
	}
	return filepath.ToSlash(short)
}

// try runs the tests of m's package and, while m lives, of each package that imports it. An error means that m was not
// tested.
func (t *tester) try(ctx context.Context, m *mutant) (verdict, error) {
	file, overlay := filepath.Join(t.temp, "mutant"), filepath.Join(t.temp, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{m.path: file}})
	if err != nil {
		return verdict{}, err
	}
	err = errors.Join(os.WriteFile(file, m.mutated(), 0o600), os.WriteFile(overlay, replace, 0o600))
	if err != nil {
		return verdict{}, err
	}
	tested := []*pkg{m.of}
	for _, p := range t.packages {
		if slices.Contains(p.Imports, m.of.ImportPath) {
			tested = append(tested, p)
		}
	}
	for _, p := range tested {
		if p.limit == 0 {
			began := time.Now()
			if v, err := t.test(ctx, p, time.Hour); err != nil {
				return v, err
			} else if v.Outcome != survived {
				return v, fmt.Errorf("without a mutant: %v", v)
			}
			p.limit = 3*time.Since(began) + t.slack
		}
		if v, err := t.test(ctx, p, p.limit, "-overlay="+overlay); err != nil || v.Outcome != survived {
			return v, err
		}
	}
	return verdict{Outcome: survived}, nil
}

// The first lines that a test process prints when it ends outside the code of a test.
var (
	died       = regexp.MustCompile(`^(panic: |fatal error: |\*\*\* Test killed)`)
	ranTooLong = regexp.MustCompile(`^(panic: test timed out|\*\*\* Test killed)`)
)

// test runs the tests of p, which may take limit. The go command may take a minute more, because it also compiles.
func (t *tester) test(ctx context.Context, p *pkg, limit time.Duration, flags ...string) (verdict, error) {
	args := append([]string{"test", "-json", "-failfast", "-count=1", "-vet=off", "-timeout=" + limit.String()}, flags...)
	out, err := t.run(ctx, limit+time.Minute, append(args, p.ImportPath)...)
	if err == nil {
		return verdict{Outcome: survived}, nil
	}
	if ctx.Err() != nil {
		return verdict{}, ctx.Err()
	}
	v := verdict{Outcome: caught, Package: t.rel(p.Dir)}
	failed := false
	// Output that was cut off ends with an error, which says nothing.
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var event struct{ Action, Test, Output, FailedBuild string }
		if d.Decode(&event) != nil {
			break
		}
		switch {
		case event.FailedBuild != "":
			return verdict{Outcome: notCompiled}, nil
		case died.MatchString(event.Output):
			v.Test = cmp.Or(v.Test, event.Test)
			if ranTooLong.MatchString(event.Output) {
				v.Outcome = timeout
			}
		case event.Action == "fail":
			failed = true
			v.Test = cmp.Or(v.Test, event.Test)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		v.Outcome = timeout
	} else if !failed {
		return v, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return v, nil
}
