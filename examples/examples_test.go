package examples_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// short are the examples that fit one screen.
var short = []string{"client", "quickstart", "rules", "server", "testing"}

func TestShortExamplesAreUnderSixtyLines(t *testing.T) {
	for _, name := range short {
		lines := 0
		for _, file := range sources(t, name) {
			lines += strings.Count(file, "\n")
		}
		assert.Less(t, lines, 60, name)
	}
}

func TestTheFirstCommentOfAnExampleHasItsCommand(t *testing.T) {
	command := map[string]string{
		"batch":      "\n//\tgo run ./examples/batch\n",
		"client":     "\n//\tgo run ./examples/client\n",
		"fleet":      "\n//\tgo run ./examples/fleet\n",
		"profiles":   "\n//\tgo run ./examples/profiles forge\n",
		"quickstart": "\n//\tgo run ./examples/quickstart\n",
		"rules":      "\n//\tgo run ./examples/rules\n",
		"server":     "\n//\tgo run ./examples/server\n",
		"storm":      "\n//\tgo run ./examples/storm\n",
		"testing":    "\n//\tgo test -v ./examples/testing\n",
		"workers":    "\n//\tgo run ./examples/workers\n",
	}
	for _, name := range append(short, "batch", "fleet", "profiles", "storm", "workers") {
		assert.Contains(t, strings.Join(firstComments(t, name), ""), command[name], name)
	}
}

// firstComments is what the files of an example begin with.
func firstComments(t *testing.T, name string) (comments []string) {
	for _, file := range sources(t, name) {
		comment, _, _ := strings.Cut(file, "\npackage ")
		comments = append(comments, comment+"\n")
	}
	return comments
}

func sources(t *testing.T, name string) (files []string) {
	names, err := filepath.Glob(filepath.Join(name, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, names, name)
	for _, name := range names {
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		files = append(files, string(file))
	}
	return files
}

// programsDir is where programs are, once they were built.
var programsDir string

// programs builds them, all at once.
var programs = sync.OnceValue(func() (err error) {
	if programsDir, err = os.MkdirTemp("", "examples-"); err != nil {
		return err
	}
	out, err := exec.Command("go", "build", "-o", programsDir+string(filepath.Separator), "./client", "./rules", "./server").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if programsDir != "" {
		os.RemoveAll(programsDir)
	}
	os.Exit(code)
}

// built returns the path of an example's program.
func built(t *testing.T, name string) string {
	require.NoError(t, programs())
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(programsDir, name)
}

func TestTheClientEndsByItself(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(built(t, "client")).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, 5, strings.Count(string(out), ": 200 OK\n"))
	for _, text := range []string{"request paced", "status=503 verdict=again", "status=429 verdict=again", "cause=hint"} {
		assert.Contains(t, string(out), text)
	}
}

func TestTheServerLimitsUntilCtrlC(t *testing.T) {
	t.Parallel()
	server := exec.Command(built(t, "server"), "localhost:0")
	stdout, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	defer server.Process.Kill()
	text := bufio.NewReader(stdout)
	url := announced(t, text)
	start := time.Now()
	resp, err := http.Head(url) // as curl -I
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		assert.Regexp(t, `^\d+$`, resp.Header.Get(name), name)
	}
	admitted := 1
	for status(t, url) == http.StatusOK {
		admitted++
	}
	assert.GreaterOrEqual(t, admitted, 5, "at once")
	assert.LessOrEqual(t, admitted, 5+int(time.Since(start)/(2*time.Second)), "then one every two seconds")
	assert.Equal(t, http.StatusOK, status(t, strings.Replace(url, "/v1/hello", "/limits/", 1)))
	if runtime.GOOS == "windows" {
		return // there is no interrupt to send
	}
	require.NoError(t, server.Process.Signal(os.Interrupt))
	_, err = io.Copy(io.Discard, text)
	assert.NoError(t, err)
	assert.NoError(t, server.Wait())
}

// announced is the URL in the first command that the server says to try.
func announced(t *testing.T, text *bufio.Reader) string {
	for {
		line, err := text.ReadString('\n')
		require.NoError(t, err)
		if url := regexp.MustCompile(`http://\S+`).FindString(line); url != "" {
			return url
		}
	}
}

func status(t *testing.T, url string) int {
	resp, err := http.Get(url)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}
