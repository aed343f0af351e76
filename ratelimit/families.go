package ratelimit

import "strings"

// A family is a group of fields whose names begin alike.
type family int

const (
	noFamily family = iota
	ageField
	stateField
	policyField
	draft06Fields
	xRateLimitFields
	xRateLimitHyphenFields
	dimensionFields // several quotas, told apart by a word in the names
)

// A triple is the names of a family's three fields. Some servers send after instead of
// reset.
type triple struct{ limit, remaining, reset, after string }

var (
	draft06    = triple{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "Ratelimit-Reset-After"}
	xRateLimit = triple{
		"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Reset-After",
	}
	xRateLimitHyphen = triple{
		"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", "X-Rate-Limit-Reset-After",
	}
)

// triples are in the order of reading.
var triples = [...]struct {
	family family
	names  *triple
}{
	{draft06Fields, &draft06}, {xRateLimitFields, &xRateLimit}, {xRateLimitHyphenFields, &xRateLimitHyphen},
}

func (t *triple) has(name string) bool {
	return name == t.limit || name == t.remaining || name == t.reset || name == t.after
}

const (
	xPrefix         = "X-Ratelimit-"
	anthropicPrefix = "Anthropic-Ratelimit-"
)

// familyOf returns the family of a field. It runs for every field of every response, and
// nearly all belong to none, so it decides by the first letter.
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

func draftFamily(name string) family {
	switch {
	case name == "Ratelimit":
		return stateField
	case name == "Ratelimit-Policy":
		return policyField
	case draft06.has(name):
		return draft06Fields
	}
	return noFamily
}

func xFamily(name string) family {
	switch {
	case !strings.HasPrefix(name, "X-Rate"):
		return noFamily
	case xRateLimit.has(name):
		return xRateLimitFields
	case xRateLimitHyphen.has(name):
		return xRateLimitHyphenFields
	case strings.HasPrefix(name, xPrefix):
		return dimensionFields
	}
	return noFamily
}
