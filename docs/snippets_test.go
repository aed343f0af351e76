package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each Go snippet on a page is part of a Go file in this repository, which is compiled and tested.
// Package internal/release compiles whole programs, in a fresh module.
func TestSnippetsAreCompiled(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	files := sync.OnceValue(func() []string { return goFiles(t) })
	for _, page := range append(pages, "../README.md") {
		for _, b := range blocks(read(t, page)) {
			if b.language == "go" && !strings.HasPrefix(b.text, "package main\n") {
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
