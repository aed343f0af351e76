package heed_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachComplaintNamesATestThatExists(t *testing.T) {
	page, err := os.ReadFile("docs/complaints.md")
	require.NoError(t, err)
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	require.Len(t, named, 38)
	var source strings.Builder
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		source.Write(b)
	}
	for _, name := range named {
		assert.Contains(t, source.String(), "func "+name[1]+"(t *testing.T)")
	}
}

// The README must not show what does not compile: each line of its snippets
// stands in an example that a test runs. F188, B33.
func TestTheReadmesSnippetsAreTested(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var tested strings.Builder
	for _, pattern := range []string{"*_test.go", "*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			tested.Write(b)
		}
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 5)
	assert.Contains(t, string(page), `http.ListenAndServe(":8080", limiter.Wrap(mux))`, "the limiter runs before the handlers")
	for _, block := range blocks {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSpace(line)
			assert.True(t, strings.Contains(tested.String(), line), "no test has the line %q", line)
		}
	}
}
