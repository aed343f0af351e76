// Package release_test installs the modules of the working tree as users do, with go get.
package release_test

import (
	"archive/zip"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/testenv"
)

const (
	root    = "../.."
	version = "v0.1.0" // the first release, which go.mod files of released modules require
)

// internalDirs have modules that are not released. A module anywhere else is.
var internalDirs = []string{"benchmarks", "browsertest", "examples", "internal", "testdata", "tools"}

// A module is one that is released.
type module struct{ dir, path string }

func modules(t *testing.T) (all []module) {
	walk(t, root, func(path string, d fs.DirEntry) error {
		if d.IsDir() && slices.Contains(internalDirs, d.Name()) {
			return filepath.SkipDir
		}
		if d.Name() == "go.mod" {
			all = append(all, module{filepath.Dir(path), modulePath(t, path)})
		}
		return nil
	})
	return all
}

var moduleLine = regexp.MustCompile(`(?m)^module (\S+)$`)

func modulePath(t *testing.T, file string) string {
	m := moduleLine.FindStringSubmatch(read(t, file))
	require.NotNil(t, m, "%s names no module", file)
	return m[1]
}

// walk calls f for the files and directories below dir, but for hidden ones.
func walk(t *testing.T, dir string, f func(path string, d fs.DirEntry) error) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != dir && strings.HasPrefix(d.Name(), ".") && d.IsDir():
			return filepath.SkipDir
		case path != dir && strings.HasPrefix(d.Name(), "."):
			return nil
		}
		return f(path, d)
	}))
}

// files are those of a module, without those of modules below it.
func (m module) files(t *testing.T) (paths []string) {
	walk(t, m.dir, func(path string, d fs.DirEntry) error {
		if !d.IsDir() {
			paths = append(paths, path)
			return nil
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != m.dir {
			return filepath.SkipDir
		}
		return nil
	})
	return paths
}

// packages are those that users may import.
func (m module) packages(t *testing.T) (paths []string) {
	for _, file := range m.files(t) {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		dir, err := filepath.Rel(m.dir, filepath.Dir(file))
		require.NoError(t, err)
		dir = filepath.ToSlash(dir)
		if slices.ContainsFunc(strings.Split(dir, "/"), func(s string) bool { return s == "internal" || s == "testdata" }) {
			continue
		}
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly)
		require.NoError(t, err)
		if source.Name.Name != "main" {
			paths = append(paths, strings.TrimSuffix(m.path+"/"+dir, "/."))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// publish puts a module into the proxy in a directory, by https://go.dev/ref/mod#goproxy-protocol.
func (m module) publish(t *testing.T, proxy string) {
	dir := filepath.Join(proxy, filepath.FromSlash(m.path), "@v")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, content := range map[string]string{
		"list":            version + "\n",
		version + ".info": `{"Version": "` + version + `", "Time": "2026-01-01T00:00:00Z"}`,
		version + ".mod":  read(t, filepath.Join(m.dir, "go.mod")),
	} {
		write(t, filepath.Join(dir, name), content)
	}
	file, err := os.Create(filepath.Join(dir, version+".zip"))
	require.NoError(t, err)
	defer file.Close()
	archive := zip.NewWriter(file)
	for _, path := range m.files(t) {
		name, err := filepath.Rel(m.dir, path)
		require.NoError(t, err)
		w, err := archive.Create(m.path + "@" + version + "/" + filepath.ToSlash(name))
		require.NoError(t, err)
		_, err = w.Write([]byte(read(t, path)))
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
}

// A project is a user's module, which may get the released modules.
type project struct {
	*testing.T
	dir string
	env []string
}

// projects publishes modules, and returns a function that makes an empty project. Nothing
// comes from the network: other modules come from the module cache of the machine, and
// nothing is written there.
func projects(t *testing.T, all []module) func(t *testing.T) project {
	proxy, cache := t.TempDir(), t.TempDir()
	for _, m := range all {
		m.publish(t, proxy)
	}
	env := append(os.Environ(), "GOMODCACHE="+cache, "GOSUMDB=off", "GOWORK=off", "GOENV=off", "GOPRIVATE=", "GONOPROXY=",
		"GOPROXY="+fileURL(proxy)+","+fileURL(filepath.Join(machineCache(t), "cache", "download")), "GOTOOLCHAIN=local",
		"GOFLAGS=-mod=mod -modcacherw")
	return func(t *testing.T) project {
		p := project{t, t.TempDir(), env}
		p.write("go.mod", "module example.com/fresh\n\ngo 1.26\n")
		return p
	}
}

func machineCache(t *testing.T) string {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func fileURL(path string) string { return "file://" + filepath.ToSlash(path) }

func (p project) write(name, content string) { write(p.T, filepath.Join(p.dir, name), content) }

// run runs go, which must succeed.
func (p project) run(args ...string) {
	p.Helper()
	cmd := exec.CommandContext(p.Context(), "go", args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	require.NoError(p, err, "go %s\n%s", strings.Join(args, " "), out)
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(b)
}

func write(t *testing.T, file, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
}

// download puts what m needs into the module cache of the machine, where most of it is already if
// the module was ever built there. The test is skipped if that fails.
func (m module) download(t *testing.T) {
	for _, command := range []string{"list -deps ./...", "mod graph"} { // the packages, and every go.mod
		cmd := exec.CommandContext(t.Context(), "go", strings.Fields(command)...)
		cmd.Dir = m.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("NOT TESTED: go %s in %s: %s", command, m.dir, out)
		}
	}
}

func TestEachModuleInstallsWithGoGet(t *testing.T) {
	all := modules(t)
	empty := projects(t, all)
	paths := []string{}
	for _, m := range all {
		paths = append(paths, m.path)
		t.Run(m.path, func(t *testing.T) {
			m.download(t)
			p := empty(t)
			p.run("get", m.path+"@"+version)
			program := "package main\n\nimport (\n"
			for _, path := range m.packages(t) {
				program += fmt.Sprintf("\t_ %q\n", path)
			}
			p.write("main.go", program+")\n\nfunc main() {}\n")
			p.run("list", "-deps", ".")
			if testenv.All() { // which compiles all of it, and finds it in the build cache the next time
				p.run("vet", "-trimpath", ".")
			}
		})
	}
	assert.Subset(t, paths, []string{"github.com/heedhttp/heed", "github.com/heedhttp/heed/serverside/metrics"})
}

// program is a whole program in a page.
var program = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")

func TestThePagesProgramsCompileInAFreshModule(t *testing.T) {
	pages, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	module{dir: root}.download(t)
	p := projects(t, modules(t))(t)
	p.run("get", "github.com/heedhttp/heed@"+version)
	n := 0
	for _, page := range append(pages, root+"/README.md") {
		for _, shown := range program.FindAllStringSubmatch(read(t, page), -1) {
			n++
			p.write("main.go", shown[1])
			p.run("vet", ".")
		}
	}
	assert.GreaterOrEqual(t, n, 2, "those of the README")
}

// The page on migrating shows parts of a module that needs other libraries, too.
func TestTheMigrationCompilesInAFreshModule(t *testing.T) {
	if !testenv.All() {
		t.Skip("only in the form -all")
	}
	m := module{dir: root + "/examples/migrating"}
	m.download(t)
	p := projects(t, modules(t))(t)
	required := regexp.MustCompile(`(?m)^replace .*$`).ReplaceAllString(read(t, m.dir+"/go.mod"), "")
	p.write("go.mod", strings.Replace(required, "heed v0.0.0", "heed "+version, 1))
	for _, file := range m.files(t) {
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			p.write(filepath.Base(file), read(t, file))
		}
	}
	p.run("vet", ".")
}
