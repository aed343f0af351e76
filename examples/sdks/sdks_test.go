// Package sdks_test keeps the examples short, and the pages true that describe them.
package sdks_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExamplesAreShortAndBeginWithTheirCommand(t *testing.T) {
	files, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	require.Len(t, files, 6)
	for _, file := range files {
		code := read(t, file)
		assert.Less(t, strings.Count(code, "\n"), 60, file)
		comment, _, _ := strings.Cut(code, "package main")
		assert.Contains(t, comment, "\n//\tcd examples/sdks && go run ./"+filepath.Dir(file)+"\n")
	}
}

func TestTheTableOfSDKsShowsPartsOfTheExamples(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	var rows [][]string
	for _, page := range append(pages, "../../README.md") {
		row := regexp.MustCompile(`(?m)^\| \[.*\]\((?:\.\./)?(examples/sdks/\w+/main\.go)\) \|(.*)$`)
		rows = append(rows, row.FindAllStringSubmatch(read(t, page), -1)...)
	}
	require.Len(t, rows, 5)
	for _, row := range rows {
		code := read(t, "../../"+row[1])
		pieces := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1)
		require.NotEmpty(t, pieces, row[1])
		for _, piece := range pieces {
			for part := range strings.SplitSeq(piece[1], "…") {
				assert.Contains(t, code, part, row[1])
			}
		}
	}
}

func read(t *testing.T, file string) string {
	text, err := os.ReadFile(filepath.FromSlash(file))
	require.NoError(t, err)
	return string(text)
}
