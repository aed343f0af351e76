package contract_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
)

var update = flag.Bool("update", false, "write docs/contract.md")

const page = "../docs/contract.md"

// docs/contract.md is generated from the clauses.
func TestDocsListEveryClause(t *testing.T) {
	want := markdown()
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run: go test ./contract -run TestDocs -update")
}

func markdown() string {
	var b strings.Builder
	b.WriteString(`# The contract

The rules that clients and servers follow when there are rate limits. Each rule is a clause of package
` + "`contract`" + `, which checks a log of exchanges against it; package ` + "`testserver`" + ` records such logs.
MUST and SHOULD have the meaning of RFC 2119.

This page is generated from the clauses: ` + "`go test ./contract -run TestDocs -update`" + `.
`)
	table(&b, "Clients", contract.Client())
	table(&b, "Servers", contract.Server())
	return b.String()
}

func table(b *strings.Builder, title string, clauses []contract.Clause) {
	fmt.Fprintf(b, "\n## %s\n\n| Clause | Level | Rule | Reference |\n|---|---|---|---|\n", title)
	for _, c := range clauses {
		fmt.Fprintf(b, "| `%s` | %v | %s | %s |\n", c.ID, c.Level, c.Text, c.Ref)
	}
}
