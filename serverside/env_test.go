package serverside_test

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// setenv sets variables, given as NAME=value, and unsets all others that are read.
func setenv(t *testing.T, variables ...string) {
	t.Helper()
	for name := range variablesIn(t, "env.go") {
		t.Setenv(name, "")
	}
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

// variablesIn are the names of variables that a source reads.
func variablesIn(t *testing.T, file string) map[string]bool {
	t.Helper()
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, match := range regexp.MustCompile(`"([A-Z]+_[A-Z_]+)"`).FindAllSubmatch(source, -1) {
		names[string(match[1])] = true
	}
	require.NotEmpty(t, names)
	return names
}

func TestEnvironmentWithoutVariables(t *testing.T) { // F104, F105, F106, C38
	setenv(t)
	synctest.Test(t, func(t *testing.T) {
		cfg, err := serverside.FromEnv()
		require.NoError(t, err)
		h := must(t, cfg).Wrap(new(ok))
		assert.Equal(t, map[int]int{200: 50, 429: 1}, codes(51, h, "GET", "/"))
		admitted := 50
		for range 20 {
			time.Sleep(time.Second)
			admitted += codes(50, h, "GET", "/")[200]
		}
		assert.Equal(t, 500+20*500/60, admitted, "500 at once, and what comes back in 20 seconds")
		assert.EqualValues(t, 20, cfg.Rules[0].MaxInFlight)
	})
}

func TestEnvironmentSaysTheNumbers(t *testing.T) { // F104, F107
	setenv(t, "APP__SECURITY__RATE_LIMIT_PER_SECOND=2", "APP__SECURITY__RATE_LIMIT_PER_MINUTE=0", "APP__SECURITY__RATE_LIMIT_BURST=3", "RATE_LIMIT_FAIL_MODE=closed")
	cfg, err := serverside.FromEnv()
	require.NoError(t, err)
	assert.Equal(t, []quota.Policy{quota.PerSecond(2)}, cfg.Rules[0].Policies)
	assert.EqualValues(t, 3, cfg.Rules[0].MaxInFlight)
	assert.Equal(t, serverside.FailClosed, cfg.OnStoreError)
	synctest.Test(t, func(t *testing.T) {
		h := must(t, cfg).Wrap(new(ok))
		assert.Equal(t, map[int]int{200: 2, 429: 1}, codes(3, h, "GET", "/"))
	})
	setenv(t, "RATE_LIMIT_FAIL_MODE=local")
	cfg, err = serverside.FromEnv()
	require.NoError(t, err)
	assert.Equal(t, serverside.FailLocal, cfg.OnStoreError)
}

func TestEnvironmentMayTrustProxiesButNotEverybody(t *testing.T) { // F035, C02
	request := func(fields ...string) *http.Request {
		r, err := http.NewRequest("GET", "/", nil)
		require.NoError(t, err)
		r.RemoteAddr = "10.0.0.1:1"
		for i := 0; i < len(fields); i += 2 {
			r.Header.Add(fields[i], fields[i+1])
		}
		return r
	}
	forwarded := []string{"X-Forwarded-For", "6.6.6.6, 203.0.113.9", "X-Real-IP", "6.6.6.6"}
	for _, c := range []struct {
		variables []string
		fields    []string
		want      string
	}{
		{nil, forwarded, "10.0.0.1"},
		{[]string{"TRUSTED_PROXIES=10.0.0.0/8"}, forwarded, "10.0.0.1"},
		{[]string{"TRUSTED_PROXIES=10.0.0.0/8", "TRUST_PROXY_HEADERS=false"}, forwarded, "10.0.0.1"},
		{[]string{"TRUSTED_PROXIES=::1, 10.0.0.1", "TRUST_PROXY_HEADERS=true"}, forwarded, "203.0.113.9"},
		{[]string{"TRUSTED_PROXIES=10.0.0.0/8", "TRUST_PROXY_HEADERS=true"}, []string{"X-Real-IP", "203.0.113.9"}, "203.0.113.9"},
		{[]string{"TRUSTED_PROXIES=127.0.0.1", "TRUST_PROXY_HEADERS=true"}, forwarded, "10.0.0.1"},
	} {
		setenv(t, c.variables...)
		cfg, err := serverside.FromEnv()
		require.NoError(t, err)
		assert.Equal(t, c.want, cfg.Key(request(c.fields...)), c.variables)
	}
}

func TestEnvironmentThatIsWrongIsAnErrorForEachVariable(t *testing.T) { // F035, F107, F176
	for variables, want := range map[string][]string{
		"TRUST_PROXY_HEADERS=true":   {"serverside: TRUST_PROXY_HEADERS: is true, but whom to trust is not said: set TRUSTED_PROXIES to the proxies' addresses, as in 10.0.0.0/8,127.0.0.1"},
		"TRUST_PROXY_HEADERS=yes":    {`serverside: TRUST_PROXY_HEADERS: is "yes": must be true or false`},
		"RATE_LIMIT_FAIL_MODE=Open ": {`serverside: RATE_LIMIT_FAIL_MODE: is "Open ": must be open, closed or local`},
		"RATE_LIMIT_FAIL_MODE=foo|TRUSTED_PROXIES=10.0.0.0/8,all|APP__SECURITY__RATE_LIMIT_BURST=-1|APP__SECURITY__RATE_LIMIT_PER_SECOND=1e3": {
			`serverside: APP__SECURITY__RATE_LIMIT_PER_SECOND: is "1e3": must be a whole number from 0 to 1000000000`,
			`serverside: APP__SECURITY__RATE_LIMIT_BURST: is "-1": must be a whole number from 0 to 1000000000`,
			`serverside: RATE_LIMIT_FAIL_MODE: is "foo": must be open, closed or local`,
			`serverside: TRUSTED_PROXIES: "all" is neither an address nor a network: write as in 10.0.0.0/8,127.0.0.1`,
		},
		"APP__SECURITY__RATE_LIMIT_PER_SECOND=0|APP__SECURITY__RATE_LIMIT_PER_MINUTE=0|APP__SECURITY__RATE_LIMIT_BURST=0": {
			"serverside: APP__SECURITY__RATE_LIMIT_PER_SECOND: is 0, and so are the others: nothing would be limited"},
	} {
		setenv(t, strings.Split(variables, "|")...)
		_, err := serverside.FromEnv()
		require.Error(t, err, variables)
		assert.Equal(t, strings.Join(want, "\n"), err.Error())
		fault, ok := errors.AsType[*serverside.EnvError](err)
		assert.True(t, ok)
		assert.True(t, variablesIn(t, "env.go")[fault.Variable])
	}
}

// The README's table has the variables that are read, and no others.
func TestTheReadmeHasAllVariables(t *testing.T) { // F207
	page, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	written := make(map[string]bool)
	for _, match := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllSubmatch(page, -1) {
		written[string(match[1])] = true
	}
	read := variablesIn(t, "env.go")
	maps.Copy(read, variablesIn(t, "../redisstore/env.go"))
	assert.Equal(t, slices.Sorted(maps.Keys(read)), slices.Sorted(maps.Keys(written)))
}
