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
	// In the scripts only commands and their options are words in capitals and quotes.
	word    = regexp.MustCompile(`'([A-Z]{2,})'`)
	ofRedis = regexp.MustCompile(`\bredis\.(\w+)`)
	foreign = regexp.MustCompile(`\b(bit|cjson|cmsgpack|os|server|struct)\.\w+`)
	comment = regexp.MustCompile(`--.*`)

	// options are words that are no commands, and older than Redis 6.2.
	options = []string{"LIMIT", "NX", "WITHSCORES"}

	// functions are those of Redis 6.2, and the one of Redis 7 that a script looks for
	// before it calls it. Those of Lua itself are the same in both.
	functions = []string{"call", "pcall", "error_reply", "acl_check_cmd"}
)

// What the README asks for is what go.mod says, and what is tested here.
func TestTheReadmeNamesTheVersionsThatAreNeeded(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	module, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	require.NotNil(t, language)
	assert.Contains(t, string(readme), "Go "+string(language[1])+" or later, Redis 6.2 or later")
	info, err := newClient(t, redistest.Shared(t)).Info(ctx, "server").Result()
	require.NoError(t, err)
	var major, minor int
	_, version, _ := strings.Cut(info, "redis_version:")
	_, err = fmt.Sscanf(version, "%d.%d.", &major, &minor)
	require.NoError(t, err)
	assert.True(t, major > 6 || major == 6 && minor >= 2, "Redis %d.%d", major, minor)
}

func TestTheScriptsUseOnlyWhatRedis62Has(t *testing.T) {
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

// scripts are all there are, by their files, without comments.
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

// commandsOfScripts are those which any script names.
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

// The user that the documentation describes can do whatever is asked of Redis, and
// hardly anything else.
func TestTheDocumentedUserMayDoAllThatIsNeeded(t *testing.T) {
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
	// Identity is CLIENT SETINFO, which this user may not send: Redis has it from 7.2 on.
	single := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "heed", Password: "secret", DisableIdentity: true})
	defer single.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs(nodes), Username: "heed", Password: "secret", DisableIdentity: true})
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
		assert.ErrorContains(t, client.Set(ctx, "heed:x", 1, 0).Err(), "NOPERM")
		assert.ErrorContains(t, client.HSet(ctx, "other", "a", 1).Err(), "NOPERM")
	}
}

func TestTheDocumentationNamesTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("../docs/redis.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var source strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		source.Write(b)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		assert.Contains(t, source.String(), "func "+name[1]+"(t *testing.T)")
	}
}
