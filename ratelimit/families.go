package ratelimit

import "strings"

// A family is the fields whose names begin alike.
type family int

const (
	noFamily family = iota
	ageField
	stateField
	policyField
	draft06Fields
	xRateLimitFields
	xRateLimitHyphenFields
	dimensionFields // those of many quotas, told apart by a word in their names
)

// families is a set of them.
type families uint

func (f families) has(one family) bool { return f&(1<<one) != 0 }

// fields are those that a response has.
type fields struct {
	families         // of three fields each
	states, policies []string
}

// familyOf returns the family of a field. Nearly all names are of none, and it is
// asked of each that a response has: so their first letter decides.
func familyOf(name string) family {
	if name == "" {
		return noFamily
	}
	switch name[0] {
	case 'R':
		return draftFamily(name)
	case 'X':
		return xFamily(name)
	case 'A':
		if name == "Age" {
			return ageField
		}
		if strings.HasPrefix(name, anthropicPrefix) {
			return dimensionFields
		}
	}
	return noFamily
}

const (
	xPrefix         = "X-Ratelimit-"
	anthropicPrefix = "Anthropic-Ratelimit-"
)

func draftFamily(name string) family {
	switch name {
	case "Ratelimit":
		return stateField
	case "Ratelimit-Policy":
		return policyField
	case draft06.limit, draft06.remaining, draft06.reset, draft06.after:
		return draft06Fields
	}
	return noFamily
}

func xFamily(name string) family {
	switch name {
	case xRateLimit.limit, xRateLimit.remaining, xRateLimit.reset, xRateLimit.after:
		return xRateLimitFields
	case xRateLimitHyphen.limit, xRateLimitHyphen.remaining, xRateLimitHyphen.reset, xRateLimitHyphen.after:
		return xRateLimitHyphenFields
	}
	if strings.HasPrefix(name, xPrefix) {
		return dimensionFields
	}
	return noFamily
}

// undimensioned are the families of three fields that tell of one quota.
var undimensioned = [...]struct {
	family family
	names  *triple
}{
	{draft06Fields, &draft06},
	{xRateLimitFields, &xRateLimit},
	{xRateLimitHyphenFields, &xRateLimitHyphen},
}
