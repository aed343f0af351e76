package contract_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
)

var update = flag.Bool("update", false, "write docs/contract.md")

const page = "../docs/contract.md"

// docs/contract.md is generated from the clauses.
func TestDocsListEveryClause(t *testing.T) {
	want := markdown(t)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run: go test ./contract -run TestDocs -update")
}

func markdown(t *testing.T) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# The contract

The rules that clients and servers follow when there are rate limits. Each rule is a clause of package
¤contract¤, which checks a log of exchanges against it. Package ¤testserver¤ records such logs.
MUST and SHOULD have the meaning of RFC 2119.

This page is generated from the clauses: ¤go test ./contract -run TestDocs -update¤.

## Test a client

¤testserver.New¤ answers as you say, then with 200. Any client works whose ¤http.RoundTripper¤ you can set;
for others there is ¤testserver.NewTCP¤.

%s
## Test a server

¤testserver.NewLimited¤ takes middleware. Its ¤Check¤ judges the server by the clauses for servers.

%s
## Read the report

¤Check¤ fails the test if a clause is broken, a MUST or a SHOULD. For each broken clause the report has the rule,
its source and the first breach. Here a server refused the same request 30 times:

¤¤¤text
%s
¤¤¤

The log does not show whether these are 30 requests or one that was repeated. Give each request of your test its
own ¤X-Request-Id¤; a client sends it in every attempt.

## Choose the clauses

¤Check¤ takes filters. A clause is checked if every filter keeps it:

| Filter | Keeps |
|---|---|
| ¤contract.MustOnly¤ | every MUST |
| ¤contract.IETFOnly¤ | what comes from RFCs and Internet-Drafts alone |
| ¤contract.HeedOnly¤ | the rest: clauses whose reference names heed |
| ¤contract.Except("client/idempotent", …)¤ | all but these |

Leave out a clause that your program breaks on purpose. The transport for
[a server behind nginx](settings.md#a-server-behind-nginx), for example, repeats a POST after a 503:

%s
¤contract.Check¤, in the last lines, checks any log, also one that you made yourself. It takes clauses:
¤contract.Select¤ applies filters to them, and you can add
[your own](https://pkg.go.dev/github.com/heedhttp/heed/contract#Clause).

The levels are the contract's. The RFCs often ask for less: a 429 MAY have a Retry-After (RFC 6585), a client
"ought to" wait for it, and SHOULD NOT repeat a POST (RFC 9110).
`, source(t, "TestMyClient"), source(t, "TestMyServer"), sampleReport(t), source(t, "TestMyClientBehindNginx"))
	table(&b, "Clauses for clients", contract.Client())
	table(&b, "Clauses for servers", contract.Server())
	return strings.ReplaceAll(b.String(), "¤", "`")
}

// source returns a test of docs/contract_test.go as a block of Markdown.
func source(t *testing.T, name string) string {
	t.Helper()
	file, err := os.ReadFile("../docs/contract_test.go")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(file), "\nfunc "+name+"(")
	require.True(t, found, name)
	text, _, found = strings.Cut(text, "\n}\n")
	require.True(t, found, name)
	return "```go\nfunc " + name + "(" + text + "\n}\n```\n"
}

func sampleReport(t *testing.T) string {
	l := log(times(30, time.Second, entry{path: "/orders", status: 429})...)
	return contract.Check(l, clause(t, "client/attempts"), clause(t, "server/no-store")).Error()
}

func table(b *strings.Builder, title string, clauses []contract.Clause) {
	fmt.Fprintf(b, "\n## %s\n\n| Clause | Level | Rule | Reference |\n|---|---|---|---|\n", title)
	for _, c := range clauses {
		fmt.Fprintf(b, "| `%s` | %v | %s | %s |\n", c.ID, c.Level, c.Text, c.Ref)
	}
}
