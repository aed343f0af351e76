package rulefile

// ParsePolicy is exported for the tests of short forms.
var ParsePolicy = parsePolicy

// Fields returns the fields of a file and of each object in it: their names, and their names in Go.
func Fields() map[string]map[string]string {
	return map[string]map[string]string{
		"file": names(fileFields), "rule": names(ruleFields), "policy": names(policyFields),
		"login": names(loginFields), "penalty": names(penaltyFields), "tier": names(tierFields),
		"allowance": names(allowFields),
	}
}

func names[T any](fields []field[T]) map[string]string {
	names := make(map[string]string)
	for _, f := range fields {
		names[f.name] = f.goes
	}
	return names
}

// Decode is exported to compare the nodes of JSON with what encoding/json reads.
var Decode = decode
