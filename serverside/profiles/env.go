package profiles

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// An EnvError is one fault of the environment. FromEnv joins all there are.
type EnvError struct {
	Variable string // its name
	Reason   string // what is wrong with it
}

func (e *EnvError) Error() string { return "profiles: " + e.Variable + ": " + e.Reason }

// forjaEnv is what the environment says about Forja.
type forjaEnv struct {
	policies []quota.Policy // of an address
	inFlight int64
	mode     serverside.FailureMode
	ip       serverside.Key
}

// readForjaEnv reads the variables of ForjaFromEnv.
func readForjaEnv() (forjaEnv, error) {
	var e environment
	perSecond := e.number("APP__SECURITY__RATE_LIMIT_PER_SECOND", 50)
	perMinute := e.number("APP__SECURITY__RATE_LIMIT_PER_MINUTE", 500)
	inFlight := e.number("APP__SECURITY__RATE_LIMIT_BURST", 20)
	if perSecond+perMinute+inFlight == 0 && len(e.faults) == 0 {
		e.fault("APP__SECURITY__RATE_LIMIT_PER_SECOND", "is 0, and so are the others: nothing would be limited")
	}
	env := forjaEnv{inFlight: inFlight, mode: e.mode("RATE_LIMIT_FAIL_MODE"), ip: e.proxies().ClientIP()}
	for _, p := range []quota.Policy{quota.PerSecond(perSecond), quota.PerMinute(perMinute)} {
		if p.Quota > 0 {
			env.policies = append(env.policies, p)
		}
	}
	return env, errors.Join(e.faults...)
}

// An environment collects what is wrong with variables.
type environment struct{ faults []error }

func (e *environment) fault(variable, format string, args ...any) {
	e.faults = append(e.faults, &EnvError{variable, fmt.Sprintf(format, args...)})
}

func (e *environment) number(variable string, otherwise int64) int64 {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1_000_000_000 {
		e.fault(variable, "is %q: must be a whole number from 0 to 1000000000", text)
		return 0
	}
	return n
}

func (e *environment) mode(variable string) serverside.FailureMode {
	switch text := os.Getenv(variable); text {
	case "", "open":
		return serverside.FailOpen
	case "closed":
		return serverside.FailClosed
	case "local":
		return serverside.FailLocal
	default:
		e.fault(variable, "is %q: must be open, closed or local", text)
		return serverside.FailOpen
	}
}

// proxies are those that are believed.
func (e *environment) proxies() serverside.Proxies {
	trusted := e.prefixes("TRUSTED_PROXIES")
	switch text := os.Getenv("TRUST_PROXY_HEADERS"); {
	case text == "", text == "false":
		return serverside.Proxies{}
	case text != "true":
		e.fault("TRUST_PROXY_HEADERS", "is %q: must be true or false", text)
	case os.Getenv("TRUSTED_PROXIES") == "":
		e.fault("TRUST_PROXY_HEADERS", "is true, but whom to trust is not said: set TRUSTED_PROXIES to the proxies' addresses, as in 10.0.0.0/8,127.0.0.1")
	}
	field := cmp.Or(os.Getenv("PROXY_HEADER"), "X-Forwarded-For")
	return serverside.Proxies{Trusted: trusted, Fields: []string{field}}
}

func (e *environment) prefixes(variable string) (all []netip.Prefix) {
	for text := range strings.FieldsFuncSeq(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' }) {
		prefix, err := netip.ParsePrefix(text)
		if addr, notOne := netip.ParseAddr(text); notOne == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			e.fault(variable, "%q is neither an address nor a network: write as in 10.0.0.0/8,127.0.0.1", text)
			continue
		}
		all = append(all, prefix)
	}
	return all
}
