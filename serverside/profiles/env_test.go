package profiles_test

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
)

// variables are read by ForjaFromEnv.
var variables = []string{
	"APP__SECURITY__RATE_LIMIT_PER_SECOND", "APP__SECURITY__RATE_LIMIT_PER_MINUTE", "APP__SECURITY__RATE_LIMIT_BURST",
	"RATE_LIMIT_FAIL_MODE", "TRUST_PROXY_HEADERS", "TRUSTED_PROXIES", "PROXY_HEADER",
}

// setenv sets variables, given as NAME=value, and unsets the others.
func setenv(t *testing.T, set ...string) {
	t.Helper()
	for _, name := range variables {
		t.Setenv(name, "")
	}
	for _, v := range set {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

func TestEnvironmentWithoutVariables(t *testing.T) {
	setenv(t)
	cfg, err := profiles.ForjaFromEnv(options())
	require.NoError(t, err)
	assert.Equal(t, serverside.FailOpen, cfg.OnStoreError)
	assert.EqualValues(t, 20, cfg.Rules[0].MaxInFlight)
	assert.Equal(t, must(t, profiles.Forja(options())).Hash(), must(t, cfg).Hash())
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, cfg)
		n, _ := spend(h, 51, "GET /")
		assert.Equal(t, 50, n)
		for range 20 {
			time.Sleep(time.Second)
			more, _ := spend(h, 50, "GET /")
			n += more
		}
		assert.Equal(t, 500, n, "in a minute of the clock")
	})
}

func TestEnvironmentSetsTheNumbers(t *testing.T) {
	setenv(t, "APP__SECURITY__RATE_LIMIT_PER_SECOND=2", "APP__SECURITY__RATE_LIMIT_PER_MINUTE=0",
		"APP__SECURITY__RATE_LIMIT_BURST=3", "RATE_LIMIT_FAIL_MODE=closed")
	cfg, err := profiles.ForjaFromEnv(options())
	require.NoError(t, err)
	assert.Equal(t, []quota.Policy{{Name: "s", Quota: 2, Window: time.Second, Algorithm: quota.FixedWindow}},
		cfg.Rules[0].Policies)
	assert.EqualValues(t, 3, cfg.Rules[0].MaxInFlight)
	assert.Equal(t, serverside.FailClosed, cfg.OnStoreError)
	synctest.Test(t, func(t *testing.T) {
		n, _ := spend(limited(t, cfg), 3, "GET /")
		assert.Equal(t, 2, n)
	})
	for mode, want := range map[string]serverside.FailureMode{
		"local": serverside.FailLocal, "open": serverside.FailOpen,
	} {
		setenv(t, "RATE_LIMIT_FAIL_MODE="+mode)
		cfg, err = profiles.ForjaFromEnv(options())
		require.NoError(t, err)
		assert.Equal(t, want, cfg.OnStoreError)
	}
}

func TestEnvironmentMayRaiseLimits(t *testing.T) {
	setenv(t, "APP__SECURITY__RATE_LIMIT_PER_SECOND=400")
	synctest.Test(t, func(t *testing.T) {
		cfg, err := profiles.ForjaFromEnv(options())
		require.NoError(t, err)
		h := limited(t, cfg)
		for _, fields := range [][]string{nil, {"X-Api-Key", "unknown"}} {
			n, _ := spend(h, 500, "GET /x", fields...)
			assert.Equal(t, 400, n)
			time.Sleep(time.Minute)
		}
	})
}

func TestEnvironmentMayTrustProxiesButNotEverybody(t *testing.T) {
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
		{[]string{"TRUSTED_PROXIES=10.0.0.1/8", "TRUST_PROXY_HEADERS=true"}, forwarded, "203.0.113.9"},
		{[]string{"TRUSTED_PROXIES=10.0.0.0/8", "TRUST_PROXY_HEADERS=true", "PROXY_HEADER=X-Real-IP"}, forwarded, "6.6.6.6"},
		{[]string{"TRUSTED_PROXIES=10.0.0.0/8", "TRUST_PROXY_HEADERS=true"}, forwarded[2:], "10.0.0.1"},
		{[]string{"TRUSTED_PROXIES=127.0.0.1", "TRUST_PROXY_HEADERS=true"}, forwarded, "10.0.0.1"},
	} {
		setenv(t, c.variables...)
		o := options()
		o.Proxies = serverside.Proxies{Trusted: serverside.Loopback(), Fields: []string{"Forwarded"}} // ignored
		cfg, err := profiles.ForjaFromEnv(o)
		require.NoError(t, err)
		r, err := http.NewRequest("GET", "/", nil)
		require.NoError(t, err)
		r.RemoteAddr = "10.0.0.1:1"
		for i := 0; i < len(c.fields); i += 2 {
			r.Header.Add(c.fields[i], c.fields[i+1])
		}
		assert.Equal(t, "ip:"+c.want, cfg.Key.Of(r), c.variables)
	}
}

func TestEveryInvalidVariableIsAnError(t *testing.T) {
	for set, want := range map[string]map[string]string{
		"TRUST_PROXY_HEADERS=true": {"TRUST_PROXY_HEADERS": "is true, but TRUSTED_PROXIES is empty: " +
			"set it to the proxies' addresses, such as 10.0.0.0/8,127.0.0.1"},
		"TRUST_PROXY_HEADERS=yes":        {"TRUST_PROXY_HEADERS": `is "yes": must be true or false`},
		"RATE_LIMIT_FAIL_MODE=Open ":     {"RATE_LIMIT_FAIL_MODE": `is "Open ": must be open, closed or local`},
		"RATE_LIMIT_FAIL_MODE=inherited": {"RATE_LIMIT_FAIL_MODE": `is "inherited": must be open, closed or local`},
		"TRUST_PROXY_HEADERS=true|TRUSTED_PROXIES=::1|PROXY_HEADER=X-Real-IP, X-Forwarded-For": {
			"PROXY_HEADER": `is "X-Real-IP, X-Forwarded-For": must be the name of one header field`},
		"RATE_LIMIT_FAIL_MODE=foo|TRUSTED_PROXIES=10.0.0.0/8,all|" +
			"APP__SECURITY__RATE_LIMIT_BURST=-1|APP__SECURITY__RATE_LIMIT_PER_SECOND=1e3": {
			"APP__SECURITY__RATE_LIMIT_PER_SECOND": `is "1e3": must be a whole number from 0 to 1000000000`,
			"APP__SECURITY__RATE_LIMIT_BURST":      `is "-1": must be a whole number from 0 to 1000000000`,
			"RATE_LIMIT_FAIL_MODE":                 `is "foo": must be open, closed or local`,
			"TRUSTED_PROXIES":                      `has "all": must be addresses and networks such as 10.0.0.0/8,127.0.0.1`,
		},
		"APP__SECURITY__RATE_LIMIT_PER_SECOND=0|APP__SECURITY__RATE_LIMIT_PER_MINUTE=0|APP__SECURITY__RATE_LIMIT_BURST=0": {
			"APP__SECURITY__RATE_LIMIT_PER_SECOND": "is 0, like the other limits: at least one must be more than 0"},
	} {
		setenv(t, strings.Split(set, "|")...)
		_, err := profiles.ForjaFromEnv(options())
		require.Error(t, err, set)
		var lines []string
		for name, reason := range want {
			lines = append(lines, "profiles: "+name+": "+reason)
		}
		assert.ElementsMatch(t, lines, strings.Split(err.Error(), "\n"))
		fault, ok := errors.AsType[*profiles.EnvError](err)
		require.True(t, ok)
		assert.Contains(t, slices.Collect(maps.Keys(want)), fault.Variable)
	}
}
