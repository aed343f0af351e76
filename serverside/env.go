package serverside

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/heedhttp/heed/quota"
)

// An EnvError is one fault of the environment. FromEnv joins all there are.
type EnvError struct {
	Variable string // its name
	Reason   string // what is wrong with it
}

func (e *EnvError) Error() string { return "serverside: " + e.Variable + ": " + e.Reason }

// FromEnv is a Config of one rule, for each client's address, with the numbers of
// the environment. A number of 0 is not enforced, but not all may be.
//
//	APP__SECURITY__RATE_LIMIT_PER_SECOND  requests per second; 50
//	APP__SECURITY__RATE_LIMIT_PER_MINUTE  requests per minute; 500
//	APP__SECURITY__RATE_LIMIT_BURST       requests in flight; 20
//	RATE_LIMIT_FAIL_MODE                  open, closed or local; open
//	TRUST_PROXY_HEADERS                   true or false; false
//	TRUSTED_PROXIES                       addresses and networks, with commas between
//
// TRUST_PROXY_HEADERS has the TRUSTED_PROXIES believed in X-Forwarded-For, or, in a
// request without it, X-Real-IP. Without TRUSTED_PROXIES it is an error: nobody is
// believed because everybody is.
//
// The error joins an *EnvError for each variable that is wrong. An empty one is as
// good as none.
func FromEnv() (Config, error) {
	var e environment
	perSecond := e.number("APP__SECURITY__RATE_LIMIT_PER_SECOND", 50)
	perMinute := e.number("APP__SECURITY__RATE_LIMIT_PER_MINUTE", 500)
	inFlight := e.number("APP__SECURITY__RATE_LIMIT_BURST", 20)
	if perSecond+perMinute+inFlight == 0 && len(e.faults) == 0 {
		e.fault("APP__SECURITY__RATE_LIMIT_PER_SECOND", "is 0, and so are the others: nothing would be limited")
	}
	rule := Rule{Name: "ip", MaxInFlight: inFlight}
	for _, p := range []quota.Policy{quota.PerSecond(perSecond), quota.PerMinute(perMinute)} {
		if p.Quota > 0 {
			rule.Policies = append(rule.Policies, p)
		}
	}
	cfg := Config{Rules: []Rule{rule}, OnStoreError: e.mode("RATE_LIMIT_FAIL_MODE"), Key: e.proxies().ClientIP()}
	return cfg, errors.Join(e.faults...)
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

func (e *environment) mode(variable string) FailureMode {
	switch text := os.Getenv(variable); text {
	case "", "open":
		return FailOpen
	case "closed":
		return FailClosed
	case "local":
		return FailLocal
	default:
		e.fault(variable, "is %q: must be open, closed or local", text)
		return FailOpen
	}
}

// proxies are those that are believed.
func (e *environment) proxies() Proxies {
	trusted := e.prefixes("TRUSTED_PROXIES")
	switch text := os.Getenv("TRUST_PROXY_HEADERS"); {
	case text == "", text == "false":
		return Proxies{}
	case text != "true":
		e.fault("TRUST_PROXY_HEADERS", "is %q: must be true or false", text)
	case os.Getenv("TRUSTED_PROXIES") == "":
		e.fault("TRUST_PROXY_HEADERS", "is true, but whom to trust is not said: set TRUSTED_PROXIES to the proxies' addresses, as in 10.0.0.0/8,127.0.0.1")
	}
	return Proxies{Trusted: trusted, Fields: []string{"X-Forwarded-For", "X-Real-IP"}}
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
