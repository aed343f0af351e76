package examples_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// command has the examples and how to run them.
var command = map[string]string{
	"batch":      "go run ./examples/batch",
	"client":     "go run ./examples/client",
	"fleet":      "go run ./examples/fleet",
	"profiles":   "go run ./examples/profiles forge",
	"quickstart": "go run ./examples/quickstart",
	"rules":      "go run ./examples/rules",
	"server":     "go run ./examples/server",
	"storm":      "go run ./examples/storm",
	"testing":    "go test -v ./examples/testing",
	"workers":    "go run ./examples/workers",
}

// long are the examples that do not fit on one screen.
var long = []string{"storm", "workers"}

func TestExamplesAreUnderSixtyLines(t *testing.T) {
	for name := range command {
		lines := 0
		for _, file := range sources(t, name) {
			lines += strings.Count(file, "\n")
		}
		if !slices.Contains(long, name) {
			assert.Less(t, lines, 60, name)
		}
	}
}

func TestTheFirstCommentOfAnExampleHasItsCommand(t *testing.T) {
	for name, command := range command {
		found := false
		for _, file := range sources(t, name) {
			comment, _, _ := strings.Cut(file, "package ")
			found = found || strings.Contains(comment, "\n//\t"+command+"\n")
		}
		assert.True(t, found, "%s: %s", name, command)
	}
}

// sources returns the files of an example. Tests count only where they are the example.
func sources(t *testing.T, name string) (files []string) {
	names, err := filepath.Glob(filepath.Join(name, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, names, name)
	for _, file := range names {
		if strings.HasSuffix(file, "_test.go") && name != "testing" {
			continue
		}
		file, err := os.ReadFile(file)
		require.NoError(t, err)
		files = append(files, string(file))
	}
	return files
}

// programsDir has the programs once they are built.
var programsDir string

// programs builds the programs that tests start.
var programs = sync.OnceValue(func() (err error) {
	if programsDir, err = os.MkdirTemp("", "examples-"); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", programsDir+string(filepath.Separator))
	build.Args = append(build.Args, "./client", "./profiles", "./rules", "./server")
	out, err := build.CombinedOutput()
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

// built returns the path of the program of an example.
func built(t *testing.T, name string) string {
	require.NoError(t, programs())
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(programsDir, name)
}

// start starts a program that ends with the test. Until then program is in use: otherwise the garbage
// collector may close the program's pipes, and it ends when it writes.
func start(t *testing.T, program *exec.Cmd) {
	require.NoError(t, program.Start())
	t.Cleanup(func() { program.Process.Kill(); program.Wait() })
}

func TestTheClientRetriesAndEndsByItself(t *testing.T) {
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
	start(t, server)
	text := bufio.NewReader(stdout)
	address := announced(t, text)
	begun := time.Now()
	resp, err := http.Head(address) // as curl -I
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		assert.Regexp(t, `^\d+$`, resp.Header.Get(name), name)
	}
	admitted := 1
	for status(t, address) == http.StatusOK {
		admitted++
	}
	assert.GreaterOrEqual(t, admitted, 5)
	assert.LessOrEqual(t, admitted, 5+int(time.Since(begun)/(2*time.Second)), "then one every two seconds")
	assert.Equal(t, http.StatusOK, status(t, strings.Replace(address, "/v1/hello", "/limits/", 1)))
	if runtime.GOOS == "windows" {
		return // no interrupts there
	}
	require.NoError(t, server.Process.Signal(os.Interrupt))
	_, err = io.Copy(io.Discard, text)
	assert.NoError(t, err)
	assert.NoError(t, server.Wait())
}

// announced returns the first URL that a server prints.
func announced(t *testing.T, text *bufio.Reader) string {
	for {
		line, err := text.ReadString('\n')
		require.NoError(t, err)
		if url := regexp.MustCompile(`http://\S+`).FindString(line); url != "" {
			return url
		}
	}
}

func TestEachProfileLimitsLoginsAndHasAPage(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"api", "forge", "forja", "patterns", "universal"} {
		server := exec.Command(built(t, "profiles"), "-at", "localhost:0", name)
		stdout, err := server.StdoutPipe()
		require.NoError(t, err)
		start(t, server)
		page := announced(t, bufio.NewReader(stdout))
		assert.Equal(t, http.StatusOK, status(t, page), name)
		login, denied := strings.Replace(page, "/limits/", "/login", 1), false
		for i := 0; i < 1000 && !denied; i++ {
			resp, err := http.PostForm(login, url.Values{"user": {"ann"}, "password": {"x"}})
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			denied = resp.StatusCode == http.StatusTooManyRequests
		}
		assert.True(t, denied, name)
	}
}

func status(t *testing.T, url string) int {
	resp, err := http.Get(url)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}
