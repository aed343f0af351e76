package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/*.golden")

const github = "HTTP/2 403\r\nDate: Sat, 21 Nov 2026 11:00:00 GMT\r\nx-ratelimit-limit: 5000\r\n" +
	"x-ratelimit-remaining: 0\r\nx-ratelimit-reset: 1795262400\r\n\r\n{\"message\": \"x: y\"}"

const verbose = "> GET / HTTP/1.1\n< HTTP/1.1 429 Too Many Requests\n< Retry-After: 2\n" +
	"< Retry-After-Ms: 1500\n< RateLimit-Policy: \"burst\";q=10;w=1, \"daily\";q=1000;w=86400\n" +
	"< RateLimit: \"burst\";r=0;t=2, \"daily\";r=400;t=90\n<\n"

// Commands with their input and exit code. Their output is in testdata, by name.
var calls = []struct {
	name, command, input string
	code                 int
}{
	{"nothing", "", "", 2},
	{"help", "help", "", 0},
	{"help", "-h", "", 0},
	{"help", "--help", "", 0},
	{"help-group", "help|store", "", 0},
	{"help-group", "store|--help", "", 0},
	{"help-command", "help|rules|explain", "", 0},
	{"help-command", "rules|explain|-h", "", 0},
	{"help-command", "--help|rules|explain", "", 0},
	{"help-unknown", "help|rules|exprot", "", 2},
	{"unknown", "rules|chek", "", 2},
	{"unknown-group", "ruels|check", "", 2},
	{"unknown-all", "frobnicate", "", 2},
	{"group", "rules", "", 2},
	{"store-none", "store|show", "", 2},
	{"store-many", "store|show|a|b", "", 2},
	{"store-denied", "store|list|-denied", "", 2},
	{"limits-none", "limits|set|ann", "", 2},
	{"check-typo", "rules|check|testdata/typo.yaml", "", 0},
	{"check", "rules|check|testdata/rules.yaml", "", 0},
	{"check-bad", "rules|check|testdata/bad.yaml|testdata/rules.yaml|testdata/none.yaml", "", 1},
	{"check-none", "rules|check", "", 2},
	{"rules-search", "rules|explain|testdata/rules.yaml|GET|/v1/search?q=a", "", 0},
	{"rules-proxied", "rules|explain|-from|10.0.0.1|-H|X-Forwarded-For: 203.0.113.9|-H|Authorization: " +
		"Bearer s3cret|testdata/rules.yaml|POST|https://api.example.com/v1/users", "", 0},
	{"rules-user", "rules|explain|testdata/tiers.yaml|GET|/|-key|user=ann|-tier|plan=pro", "", 0},
	{"rules-nobody", "rules|explain|-key|ann|testdata/tiers.yaml|GET|/", "", 2},
	{"rules-exempt", "rules|explain|testdata/rules.yaml|GET|/health", "", 0},
	{"rules-allowed", "rules|explain|-from|198.51.100.7|testdata/rules.yaml|GET|/v1/users", "", 0},
	{"rules-bad", "rules|explain|testdata/bad.yaml|GET|/v1/users", "", 1},
	{"rules-url", "rules|explain|testdata/rules.yaml|GET|users", "", 1},
	{"rules-method", "rules|explain|testdata/rules.yaml|G T|/users", "", 1},
	{"rules-from", "rules|explain|-from|home|testdata/rules.yaml|GET|/users", "", 1},
	{"rules-flag", "rules|explain|-H|nothing|testdata/rules.yaml|GET|/users", "", 2},
	{"export", "rules|export|-times|5|nginx|testdata/rules.yaml", "", 0},
	{"export-unknown", "rules|export|ngnix|testdata/rules.yaml", "", 2},
	{"export-bad", "rules|export|nginx|testdata/bad.yaml", "", 1},
	{"export-none", "rules|export|nginx|testdata/none.yaml", "", 1},
	{"export-times", "rules|export|-times|-1|nginx|testdata/rules.yaml", "", 1},
	{"export-redis", "rules|export|-redis|redis.internal|nginx|testdata/rules.yaml", "", 2},
	{"export-window", "rules|export|-window|1500ms|prometheus|testdata/rules.yaml", "", 1},
	{"key", "rules|key|header:x-api-key", "s3cret\n", 0},
	{"key-unknown", "rules|key|query:x", "s3cret\n", 1},
	{"key-function", "rules|key|user", "s3cret\n", 1},
	{"key-nameless", "rules|key|header:", "s3cret\n", 1},
	{"key-empty", "rules|key|header:X-Api-Key", "\n", 1},
	{"seconds", "explain|120", "", 0},
	{"date", "explain|Sat, 21 Nov 2026 11:30:00 GMT", "", 0},
	{"date-past", "explain|Sat, 21 Nov 2026 10:30:00 GMT", "", 0},
	{"now", "explain|0", "", 0},
	{"hours", "explain|7201", "", 0},
	{"days", "explain|172800", "", 0},
	{"unix", "explain|1795262400", "", 0},
	{"duration", "explain|1m30s", "", 0},
	{"draft11", `explain|"default";r=0;t=17`, "", 0},
	{"draft07", "explain|limit=100, remaining=20, reset=35", "", 0},
	{"policy", "explain|100;w=60", "", 0},
	{"field", "explain|-status|503|Retry-After: 7", "", 0},
	{"github", "explain", github, 0},
	{"verbose", "explain", verbose, 0},
	{"success", "explain", "HTTP/1.1 200 OK\nRateLimit-Limit: 100\nRateLimit-Remaining: 99\nRateLimit-Reset: 30\n", 0},
	{"no-limit", "explain", "HTTP/1.1 200 OK\nServer: x\n", 1},
	{"silent", "explain", "HTTP/1.1 429 Too Many Requests\nServer: x\n", 1},
	{"years", "explain|99999999999", "", 0},
	{"github-silent", "explain", "HTTP/2 403\nX-GitHub-Request-Id: 1\n", 1},
	{"rfc3339", "explain|2026-11-21T11:02:30Z", "", 0},
	{"nonsense", "explain|soon", "", 1},
	{"empty", "explain", "", 1},
}

func TestCommandOutput(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("CET", 3600))
	for _, c := range calls {
		var out, fault bytes.Buffer
		s := &session{in: strings.NewReader(c.input), out: &out, err: &fault, now: now}
		var args []string
		if c.command != "" {
			args = strings.Split(c.command, "|")
		}
		assert.Equal(t, c.code, s.run(args), c.name)
		got := fmt.Sprintf("%s%s", out.String(), prefixed("! ", fault.String()))
		golden := filepath.Join("testdata", c.name+".golden")
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err, "run go test ./cmd/heed -update")
		assert.Equal(t, string(want), got, c.name)
		assert.NotContains(t, got, "s3cret", c.name)
	}
}

// prefixed marks lines of standard error.
func prefixed(prefix, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(prefix + line)
	}
	return b.String()
}

func TestUsageEqualsThePackageDoc(t *testing.T) {
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	comment, _, _ := strings.Cut(string(source), "package main")
	for _, c := range commands() {
		if c.name != "help" {
			assert.Contains(t, comment, "//\t"+c.usage()+"\n")
		}
	}
}

// Whatever is pasted, explain prints something and does not panic.
func FuzzExplain(f *testing.F) {
	for _, c := range calls {
		f.Add(c.input)
		f.Add(c.command[strings.LastIndexByte(c.command, '|')+1:])
	}
	f.Fuzz(func(t *testing.T, text string) {
		var out bytes.Buffer
		s := &session{in: strings.NewReader(text), out: &out, err: &out, now: time.Unix(1795262400, 0)}
		assert.LessOrEqual(t, s.run([]string{"explain"}), 1)
		if utf := strings.Trim(text, " \r\n"); utf != "" && out.Len() == 0 {
			t.Errorf("nothing is said of %q", text)
		}
	})
}

func TestKeysArePrintedReadably(t *testing.T) {
	for _, c := range [][3]string{
		{"ip", "key:192.0.2.1", "192.0.2.1"},
		{"user", "192.0.2.1", "192.0.2.1, the address, because the key is empty"},
		{"user", "default:192.0.2.1", "192.0.2.1, the address, because the key is empty"},
		{"first(user, ip)", "key:1:192.0.2.1", "192.0.2.1"},
		{"join(ip, user)", "key:9:192.0.2.13:ann", "192.0.2.1 and ann"},
		{"join(user, ip)", "key:-9:192.0.2.19:192.0.2.1", "192.0.2.1 (the address, because the key is empty) and 192.0.2.1"},
		{"join(user, ip)", "key:9:short", "9:short"},
		{"join(user, ip)", "hash:0123", "hash:0123"},
	} {
		assert.Equal(t, c[2], spell(c[0], c[1]))
	}
}
