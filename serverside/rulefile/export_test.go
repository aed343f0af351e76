package rulefile

import (
	"fmt"
	"strings"
)

// ParsePolicy is exported for the tests of short forms.
var ParsePolicy = parsePolicy

// Tables are the tables of docs/rules.md, in Markdown, by what has the fields: a
// file, a rule, a policy, a penalty, a tier and an allowance.
func Tables() map[string]string {
	return map[string]string{
		"file":      table(fileFields),
		"rule":      table(ruleFields),
		"policy":    table(policyFields),
		"penalty":   table(penaltyFields),
		"tier":      table(tierFields),
		"allowance": table(allowFields),
	}
}

func table[T any](fields []field[T]) string {
	var b strings.Builder
	b.WriteString("| field | is | means |\n|---|---|---|\n")
	for _, f := range fields {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.name, f.form, f.says)
	}
	return b.String()
}

func goes[T any](fields []field[T]) map[string]bool {
	names := make(map[string]bool)
	for _, f := range fields {
		names[f.goes] = true
	}
	return names
}

// Goes are the fields that are read into serverside's and quota's types, by the
// names of the tables.
func Goes() map[string]map[string]bool {
	return map[string]map[string]bool{
		"file": goes(fileFields), "rule": goes(ruleFields), "policy": goes(policyFields),
		"penalty": goes(penaltyFields), "tier": goes(tierFields), "allowance": goes(allowFields),
	}
}
