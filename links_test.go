package heed_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDocumentationLinksWork(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	anchors := map[string][]string{} // by page
	seen := 0
	for _, file := range filesWith(t, ".md") {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			seen++
			path := file
			if target != "" {
				path = filepath.Join(filepath.Dir(file), target)
			}
			if _, err := os.Stat(path); !assert.NoError(t, err, "%s links to %s", file, m[1]) || anchor == "" {
				continue
			}
			if anchors[path] == nil {
				anchors[path] = anchorsOf(t, path)
			}
			assert.Contains(t, anchors[path], anchor, "%s links to %s", file, m[1])
		}
	}
	assert.Greater(t, seen, 50)
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchorsOf returns the anchors that GitHub makes from a page's headings.
func anchorsOf(t *testing.T, page string) (anchors []string) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
		kept := notInAnchor.ReplaceAllString(strings.ToLower(h[1]), "")
		anchors = append(anchors, strings.ReplaceAll(kept, " ", "-"))
	}
	return anchors
}

// filesWith returns all files of all modules that end with one of suffixes.
func filesWith(t *testing.T, suffixes ...string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		for _, suffix := range suffixes {
			if strings.HasSuffix(path, suffix) {
				files = append(files, filepath.ToSlash(path))
			}
		}
		return nil
	}))
	return files
}
