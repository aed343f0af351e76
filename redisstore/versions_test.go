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
	// In the scripts, only commands and their options are capitals in quotes.
	word    = regexp.MustCompile(`'([A-Z]{2,})'`)
	ofRedis = regexp.MustCompile(`\bredis\.(\w+)`)
	foreign = regexp.MustCompile(`\b(bit|cjson|cmsgpack|os|server|struct)\.\w+`)
	comment = regexp.MustCompile(`--.*`)

	// options are words that are not commands. All are in Redis 6.2.
	options = []string{"KEEPTTL", "LIMIT", "NX", "PX", "WITHSCORES"}

	// functions are those of Redis 6.2, and one of Redis 7 that scripts check for before they call it.
	functions = []string{"call", "pcall", "error_reply", "acl_check_cmd"}
)

func TestTheScriptsUseOnlyCommandsOfRedis62(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	for command := range commandsOfScripts(t) {
		since := introduced(t, client, command)
		var major, minor int
		_, err := fmt.Sscanf(since, "%d.%d.", &major, &minor)
		require.NoError(t, err, "%s: since %q", command, since)
		assert.True(t, major < 6 || major == 6 && minor <= 2, "%s is there only since Redis %s", command, since)
	}
	for _, m := range ofRedis.FindAllStringSubmatch(scripts(t), -1) {
		assert.Contains(t, functions, m[1])
	}
	assert.Empty(t, foreign.FindAllString(scripts(t), -1))
}

// scripts returns all scripts, without comments.
func scripts(t *testing.T) (all string) {
	t.Helper()
	files, err := filepath.Glob("lua/*.lua")
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		all += comment.ReplaceAllString(string(source), "")
	}
	return all
}

// commandsOfScripts returns all commands that the scripts contain.
func commandsOfScripts(t *testing.T) map[string]bool {
	t.Helper()
	commands := make(map[string]bool)
	for _, m := range word.FindAllStringSubmatch(scripts(t), -1) {
		if !slices.Contains(options, m[1]) {
			commands[m[1]] = true
		}
	}
	require.Contains(t, commands, "TIME")
	require.Contains(t, commands, "PEXPIRE")
	return commands
}

// introduced returns the version of Redis that introduced a command, as the server reports it.
func introduced(t *testing.T, client *redis.Client, command string) string {
	t.Helper()
	docs, err := client.Do(ctx, "COMMAND", "DOCS", command).Result()
	if err != nil && strings.Contains(err.Error(), "subcommand") {
		return "6.2.0" // before 7.0 Redis cannot say, but then it is at most this new
	}
	require.NoError(t, err)
	of, ok := docs.(map[any]any)[strings.ToLower(command)].(map[any]any)
	require.True(t, ok, "%s is no command: %v", command, docs)
	return of["since"].(string)
}
