package docs_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/daemon"
	"github.com/heedhttp/heed/internal/testenv"
)

const page = "operations.md"

// A block is a fenced block of a page.
type block struct {
	language, text string
	line           int // in the page
}

// blocks returns the fenced blocks of a text, in order.
func blocks(text string) (all []block) {
	for _, at := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatchIndex(text, -1) {
		all = append(all, block{text[at[2]:at[3]], text[at[4]:at[5]], 2 + strings.Count(text[:at[0]], "\n")})
	}
	return all
}

// A shell runs the blocks of commands that a reader pastes, one after the other.
type shell struct {
	t     *testing.T
	in    io.Writer
	out   *bufio.Reader
	local *strings.Replacer // replaces the page's addresses with the test's
}

// newShell starts bash in dir, with dir and programs in its PATH.
func newShell(t *testing.T, programs, dir string, local *strings.Replacer) *shell {
	t.Helper()
	bash := exec.Command("bash")
	bash.Dir = dir
	bash.Env = append(os.Environ(), "PATH="+dir+":"+programs+":"+os.Getenv("PATH"), "TZ=UTC")
	in, err := bash.StdinPipe()
	require.NoError(t, err)
	out, w, err := os.Pipe()
	require.NoError(t, err)
	bash.Stdout, bash.Stderr = w, w
	require.NoError(t, bash.Start())
	w.Close()
	t.Cleanup(func() {
		bash.Process.Kill()
		bash.Wait()
		out.Close()
	})
	return &shell{t, in, bufio.NewReader(out), local}
}

const end = "-- that was all --"

// run returns what a block prints, and the exit code of its last command.
func (s *shell) run(b block) (said string, code string) {
	s.t.Helper()
	timer := time.AfterFunc(time.Minute, func() { panic("this does not end: " + b.text) })
	defer timer.Stop()
	_, err := io.WriteString(s.in, s.local.Replace(b.text)+"echo '"+end+"' $?\n")
	require.NoError(s.t, err)
	var all strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		require.NoError(s.t, err, all.String())
		if before, code, found := strings.Cut(line, end); found {
			return strings.ReplaceAll(all.String()+before, "\r", ""), strings.TrimSpace(code)
		}
		all.WriteString(line)
	}
}

// pattern matches the promised output: … stands for any text in a line or, on a line of its
// own, for any lines.
func pattern(promised string) *regexp.Regexp {
	p := regexp.QuoteMeta(promised)
	p = regexp.MustCompile(`(?m)^…\n`).ReplaceAllString(p, `(?:.*\n)*?`)
	return regexp.MustCompile(`^` + strings.ReplaceAll(p, "…", `.*`) + `$`)
}

// programs builds heed and the quickstart into a directory.
func programs(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	out, err := exec.Command("go", "build", "-o", dir, "../cmd/heed", "../examples/quickstart").CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

// workplace returns a directory with a redis-cli for d and the quickstart's rules.
func workplace(t *testing.T, d *database) (dir string) {
	t.Helper()
	dir = t.TempDir()
	_, port, _ := strings.Cut(d.addr, ":")
	cli := "#!/bin/sh\nexec " + testenv.Program(t, "redis-cli") + " -p " + port + " \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redis-cli"), []byte(cli), 0o700))
	rules := "store_timeout: 600ms # for a busy machine\n" + read(t, "../examples/quickstart/rules.yaml")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600))
	return dir
}

// serve starts the quickstart, which logs to server.log, and returns where it listens.
func serve(t *testing.T, d *database, programs, dir string) (addr string) {
	t.Helper()
	addr = "127.0.0.1:" + strconv.Itoa(daemon.FreePort(t))
	process := started(t, func() *exec.Cmd {
		server := exec.Command("sh", "-c", "exec "+programs+"/quickstart 2> server.log")
		server.Dir = dir
		server.Env = append(os.Environ(), "LISTEN="+addr, "RULES=rules.yaml", "REDIS_TIMEOUT=500ms",
			"REDIS_URL=redis://heed:"+ofLimiters+"@"+d.addr+"/0")
		return server
	}, func() bool { return listens(addr) })
	t.Cleanup(process.Kill)
	return addr
}

// The quickstart runs, with the Redis that the page configures. The commands are pasted in the
// order of the page.
func TestCommandsPrintWhatThePageSays(t *testing.T) {
	testenv.Program(t, "curl")
	built := programs(t)
	var faults []string
	for range 3 { // a machine that stops for half a second loses its Redis
		if faults = paste(t, built, blocks(read(t, page))); len(faults) == 0 {
			return
		}
		t.Log(faults)
	}
	require.Empty(t, faults)
}

// paste runs all commands, and returns those that do not print what the page says.
func paste(t *testing.T, programs string, all []block) (faults []string) {
	d := documented(t)
	dir := workplace(t, d)
	addr := serve(t, d, programs, dir)
	s := newShell(t, programs, dir, strings.NewReplacer("localhost:8080", addr, "localhost:6379", d.addr))
	for i, b := range all {
		if b.language != "sh" {
			continue
		}
		promised := ""
		if i+1 < len(all) && all[i+1].language == "text" {
			promised = all[i+1].text
		}
		if said, code := s.run(b); !pattern(promised).MatchString(said) || code != "0" {
			faults = append(faults, fmt.Sprintf("\n%s:%d:\n%s\nprints:\n%s\ninstead of:\n%s\nexit code %s",
				page, b.line, b.text, said, promised, code))
		}
	}
	return faults
}

// KEYS and MONITOR slow down all clients while they run.
func TestNoCommandOnThePageStopsRedis(t *testing.T) {
	sections := map[string]bool{}
	all := blocks(read(t, page))
	for i, b := range all {
		assert.True(t, b.language != "text" || i > 0 && all[i-1].language == "sh",
			"%s:%d: output of no command", page, b.line)
		if b.language == "sh" {
			assert.NotRegexp(t, `\b(KEYS|MONITOR|FLUSHALL|FLUSHDB|DEBUG)\b`, strings.ReplaceAll(b.text, "HKEYS", ""))
			sections[b.text] = true
		}
	}
	assert.Greater(t, len(sections), 15)
}
