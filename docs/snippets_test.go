package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Go snippet of a page is a whole program, which must compile, or a part of a Go file of this
// repository: compiled there, and run by its tests.
func TestSnippetsAreCompiled(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	files := sync.OnceValue(func() []string { return goFiles(t) })
	for _, page := range append(pages, "../README.md") {
		for _, b := range blocks(read(t, page)) {
			switch {
			case b.language != "go":
			case strings.HasPrefix(b.text, "package main\n"):
				vet(t, page, b)
			default:
				assert.True(t, contained(files(), b.text), "%s:%d: no Go file has this snippet:\n%s", page, b.line, b.text)
			}
		}
	}
}

// goFiles returns the texts of all Go files of the repository, without indentation.
func goFiles(t *testing.T) (texts []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		texts = append(texts, unindented(string(text)))
		return err
	})
	require.NoError(t, err)
	return texts
}

func contained(files []string, snippet string) bool {
	snippet = unindented(snippet)
	for _, file := range files {
		if strings.Contains("\n"+file, "\n"+snippet) {
			return true
		}
	}
	return false
}

var indentation = regexp.MustCompile(`(?m)^[\t ]+`)

func unindented(text string) string { return indentation.ReplaceAllString(text, "") }

// vet compiles a program as this module sees it.
func vet(t *testing.T, page string, program block) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program.text), 0o600))
	out, err := exec.Command("go", "vet", file).CombinedOutput()
	assert.NoError(t, err, "%s:%d: %s", page, program.line, out)
}
