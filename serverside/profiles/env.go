package profiles

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// ForjaFromEnv is Forja with numbers, failure mode and proxies from the environment. It ignores
// Options.Proxies. Empty variables count as unset.
//
//	APP__SECURITY__RATE_LIMIT_PER_SECOND  requests of an address in a second
//	APP__SECURITY__RATE_LIMIT_PER_MINUTE  requests of an address in a minute
//	APP__SECURITY__RATE_LIMIT_BURST       requests of an address at the same time
//	RATE_LIMIT_FAIL_MODE                  open, closed or local; default open
//	TRUST_PROXY_HEADERS                   true or false; default false
//	TRUSTED_PROXIES                       addresses and networks, separated by commas
//	PROXY_HEADER                          the field that they write; default X-Forwarded-For
//
// The default numbers are those of forja.yaml. A limit of 0 is not enforced, but at least one
// of the three must be. If TRUST_PROXY_HEADERS is true, TRUSTED_PROXIES must be set, and the
// client's address is the one that these proxies write into PROXY_HEADER.
//
// The error joins an *EnvError for each invalid variable.
func ForjaFromEnv(o Options) (serverside.Config, error) {
	var env environment
	o.Proxies = env.proxies()
	cfg := Forja(o)
	cfg.OnStoreError = env.mode("RATE_LIMIT_FAIL_MODE", cfg.OnStoreError)
	address := &cfg.Rules[0]
	for i, variable := range []string{"APP__SECURITY__RATE_LIMIT_PER_SECOND", "APP__SECURITY__RATE_LIMIT_PER_MINUTE"} {
		address.Policies[i].Quota = env.number(variable, address.Policies[i].Quota)
	}
	address.Policies = slices.DeleteFunc(address.Policies, func(p quota.Policy) bool { return p.Quota == 0 })
	address.MaxInFlight = env.number("APP__SECURITY__RATE_LIMIT_BURST", address.MaxInFlight)
	if len(address.Policies) == 0 && address.MaxInFlight == 0 && len(env.faults) == 0 {
		env.fault("APP__SECURITY__RATE_LIMIT_PER_SECOND", "is 0, like the other limits: at least one must be more than 0")
	}
	if len(env.faults) > 0 {
		return serverside.Config{}, errors.Join(env.faults...)
	}
	return cfg, nil
}

// An EnvError is an invalid environment variable.
type EnvError struct {
	Variable string // its name
	Reason   string // what is wrong
}

// Error implements error.
func (e *EnvError) Error() string { return "profiles: " + e.Variable + ": " + e.Reason }

// An environment collects faults of variables.
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

func (e *environment) mode(variable string, otherwise serverside.FailureMode) serverside.FailureMode {
	text := os.Getenv(variable)
	for _, mode := range []serverside.FailureMode{serverside.FailOpen, serverside.FailClosed, serverside.FailLocal} {
		if text == mode.String() {
			return mode
		}
	}
	if text != "" {
		e.fault(variable, "is %q: must be open, closed or local", text)
	}
	return otherwise
}

// proxies reads the trusted proxies and the field that they write.
func (e *environment) proxies() serverside.Proxies {
	trusted := e.prefixes("TRUSTED_PROXIES")
	switch text := os.Getenv("TRUST_PROXY_HEADERS"); {
	case text == "", text == "false":
		return serverside.Proxies{}
	case text != "true":
		e.fault("TRUST_PROXY_HEADERS", "is %q: must be true or false", text)
	case os.Getenv("TRUSTED_PROXIES") == "":
		e.fault("TRUST_PROXY_HEADERS", "is true, but TRUSTED_PROXIES is empty: "+
			"set it to the proxies' addresses, such as 10.0.0.0/8,127.0.0.1")
	}
	return serverside.Proxies{Trusted: trusted, Fields: []string{e.field("PROXY_HEADER", "X-Forwarded-For")}}
}

// tokenChars are the characters in names of header fields (RFC 9110, section 5.6.2).
const tokenChars = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// field reads the name of one header field. It must be only one, because clients could write a
// field that the proxies do not.
func (e *environment) field(variable, otherwise string) string {
	name := cmp.Or(os.Getenv(variable), otherwise)
	if strings.Trim(name, tokenChars) != "" {
		e.fault(variable, "is %q: must be the name of one header field", name)
		return otherwise
	}
	return name
}

func (e *environment) prefixes(variable string) (all []netip.Prefix) {
	for text := range strings.FieldsFuncSeq(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' }) {
		prefix, err := netip.ParsePrefix(text)
		if addr, notOne := netip.ParseAddr(text); notOne == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			e.fault(variable, "has %q: must be addresses and networks such as 10.0.0.0/8,127.0.0.1", text)
			continue
		}
		all = append(all, prefix)
	}
	return all
}
