package redisstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// In the scripts only commands and their options are words in capitals and quotes.
	word    = regexp.MustCompile(`'([A-Z]{2,})'`)
	ofRedis = regexp.MustCompile(`\bredis\.(\w+)`)
	foreign = regexp.MustCompile(`\b(bit|cjson|cmsgpack|os|server|struct)\.\w+`)
	comment = regexp.MustCompile(`--.*`)

	// options are words that are no commands, and older than Redis 6.2.
	options = []string{"LIMIT", "WITHSCORES"}

	// functions are those of Redis 6.2, and the one of Redis 7 that a script looks for
	// before it calls it. Those of Lua itself are the same in both.
	functions = []string{"call", "pcall", "error_reply", "acl_check_cmd"}
)

func TestTheScriptsUseOnlyWhatRedis62Has(t *testing.T) {
	client := newClient(t, redistest.Start(t))
	files, err := filepath.Glob("lua/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	commands := make(map[string]bool)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		code := comment.ReplaceAllString(string(source), "")
		for _, m := range word.FindAllStringSubmatch(code, -1) {
			if !slices.Contains(options, m[1]) {
				commands[m[1]] = true
			}
		}
		for _, m := range ofRedis.FindAllStringSubmatch(code, -1) {
			assert.Contains(t, functions, m[1], file)
		}
		assert.Empty(t, foreign.FindAllString(code, -1), file)
	}
	require.Contains(t, commands, "TIME")
	require.Contains(t, commands, "PEXPIRE")
	for command := range commands {
		since := introduced(t, client, command)
		var major, minor int
		_, err := fmt.Sscanf(since, "%d.%d.", &major, &minor)
		require.NoError(t, err, "%s: since %q", command, since)
		assert.True(t, major < 6 || major == 6 && minor <= 2, "%s is there only since Redis %s", command, since)
	}
}

// introduced is the version of Redis that brought a command, as a server says which is
// new enough to know.
func introduced(t *testing.T, client *redis.Client, command string) string {
	t.Helper()
	docs, err := client.Do(ctx, "COMMAND", "DOCS", command).Result()
	if err != nil && strings.Contains(err.Error(), "subcommand") {
		return "6.2.0" // one that says no is no newer than that, and has run the scripts
	}
	require.NoError(t, err)
	of, ok := docs.(map[any]any)[strings.ToLower(command)].(map[any]any)
	require.True(t, ok, "%s is no command: %v", command, docs)
	return of["since"].(string)
}
