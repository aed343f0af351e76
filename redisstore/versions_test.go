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
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
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
	for file, code := range scripts(t) {
		for _, m := range ofRedis.FindAllStringSubmatch(code, -1) {
			assert.Contains(t, functions, m[1], file)
		}
		assert.Empty(t, foreign.FindAllString(code, -1), file)
	}
}

// scripts returns all scripts by their files, without comments.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("lua/*.lua")
	require.NoError(t, err)
	all := make(map[string]string)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		all[file] = comment.ReplaceAllString(string(source), "")
	}
	return all
}

// commandsOfScripts returns all commands that the scripts contain.
func commandsOfScripts(t *testing.T) map[string]bool {
	t.Helper()
	commands := make(map[string]bool)
	for _, code := range scripts(t) {
		for _, m := range word.FindAllStringSubmatch(code, -1) {
			if !slices.Contains(options, m[1]) {
				commands[m[1]] = true
			}
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

// The documented user may do everything that heed needs, and hardly anything else.
func TestTheDocumentedUserHasAllPermissionsNeeded(t *testing.T) {
	mostlyWaits(t)
	page, err := os.ReadFile("../docs/redis.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "    ACL SETUSER ")
	require.True(t, found)
	rules, _, _ := strings.Cut(rest, "\n\n")
	for command := range commandsOfScripts(t) {
		assert.Contains(t, strings.Fields(rules), "+"+strings.ToLower(command))
	}
	admit := func(server *redistest.Server) {
		args := []any{"ACL", "SETUSER"}
		for _, rule := range strings.Fields(rules) {
			args = append(args, rule)
		}
		require.NoError(t, newClient(t, server).Do(ctx, args...).Err())
	}
	server, nodes := redistest.Shared(t), redistest.SharedCluster(t)
	// Without DisableIdentity go-redis sends CLIENT SETINFO, which this user may not.
	single := redis.NewClient(&redis.Options{
		Addr: server.Addr, Username: "heed", Password: "secret", DisableIdentity: true,
	})
	defer single.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs(nodes), Username: "heed", Password: "secret", DisableIdentity: true,
	})
	defer cluster.Close()
	for client, servers := range map[redis.UniversalClient][]*redistest.Server{single: {server}, cluster: nodes} {
		for _, server := range servers {
			admit(server)
		}
		s := &redisstore.Store{Client: client, Timeout: patient}
		for name, call := range calls(s, quota.Charge{Key: "key", ID: "once", Limit: compile(t, quota.PerDay(100))}) {
			assert.NoError(t, call(ctx), name)
		}
		_, err = s.Inspect(ctx, "key")
		assert.NoError(t, err)
		assert.NoError(t, s.Reset(ctx, "key"))
		assert.True(t, failing(t, slowly(client)).Withdraw(ctx, host))
		for _, server := range servers {
			assert.Empty(t, newClient(t, server).Do(ctx, "ACL", "LOG").Val(), "denied")
		}
		assert.ErrorContains(t, client.Set(ctx, "other", 1, 0).Err(), "NOPERM")
		assert.ErrorContains(t, client.HSet(ctx, "other", "a", 1).Err(), "NOPERM")
	}
}
