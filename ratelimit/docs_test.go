package ratelimit_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/ratelimit"
)

var update = flag.Bool("update", false, "write docs/fields.md")

const fieldsPage = "../docs/fields.md"

const fieldsHead = `# What servers send

This page is made of the table in [` + "`ratelimit/vendors.go`" + `](../ratelimit/vendors.go), by ` + "`go test ./ratelimit -run TestDocs -update`" + `.

## Without a profile

` + "`ratelimit.Wait`" + ` reads these, the first that is there; ` + "`ratelimit.Parse`" + ` reads the last row of any response.

| | fields | unit |
|---|---|---|
| the standard's delay | ` + "`Retry-After`" + ` | seconds, fractions too; a date in the three forms of RFC 9110 or that of RFC 3339 |
| finer ones, which refine it | ` + "`Retry-After-Ms`, `X-Ms-Retry-After-Ms`, `X-Amz-Retry-After`" + ` | milliseconds |
| | ` + "`X-Retry-In`" + ` | a duration: ` + "`1m30s`" + ` |
| if there is none of these | ` + "`X-Retry-After`, `X-RateLimit-Retry-After`" + ` | seconds below 10⁹, else Unix time in s, ms, µs or ns by its magnitude; a duration; a date |
| if there is none of these either: quotas that are used up | ` + "`RateLimit`" + ` of draft-08 to draft-11, of the draft after it (` + "`a`, `w`" + ` and ` + "`c`" + `), or of draft-07 | seconds |
| | ` + "`RateLimit-Reset`, `X-RateLimit-Reset`, `X-Rate-Limit-Reset`" + ` beside a ` + "`…-Remaining`" + ` below 1 | as above |
| | ` + "`X-RateLimit-Reset-<word>`, `X-RateLimit-<word>-Reset`, `Anthropic-RateLimit-<word>-Reset`" + ` beside theirs | as above |
| | ` + "`RateLimit-Reset-After`, `X-RateLimit-Reset-After`, `X-Rate-Limit-Reset-After`" + `, which are preferred | seconds |

Only a 429, 420 or 430 lets a reset count of which it is not told what is left. A quota with something left never does.
There, too, a ` + "`Retry-After`" + ` of whole seconds gives way to the reset of a quota that is used up, if that is at most two seconds
later: it was rounded down. Nothing is read of 1xx and 2xx, and of 3xx only what is a delay by its name. What is malformed is absent; what is too large
is 2³¹ s; a date counts from the response's own ` + "`Date`" + ` and ` + "`Age`" + `.

## What this module's servers add

A policy in ` + "`RateLimit-Policy`" + ` may have the parameter ` + "`heed-algorithm`" + `, a Token, which says how units come back:
` + "`token-bucket`, `leaky-bucket`, `fixed-window`, `sliding-window` or `sliding-log`" + `. ` + "`ratelimit.Set`" + ` writes it in both syntaxes of that field,
` + "`ratelimit.Parse`" + ` reads it, and ` + "`pace.Advertised`" + ` follows it; others ignore it. What it does not know counts as absent.

## Vendors

` + "`ratelimit.Vendor(name)`" + ` has what else a vendor's responses mean, ` + "`RetryPolicy.Profiles`" + ` obeys it, and ` + "`ratelimit.Vendors()`" + ` are
those with hosts: the others are programs and installations, for which ` + "`On`" + ` names the hosts. All was so when it was last checked;
vendors change it without notice. A † says that only notes of others on the source were looked at.

| vendor | name, hosts | sends | besides 429, what it means | besides the fields above, where the wait is told | checked |
|---|---|---|---|---|---|
`

// fields renders docs/fields.md.
func fields() string {
	var b strings.Builder
	b.WriteString(fieldsHead)
	for _, p := range ratelimit.AllVendors() {
		checked := p.Checked + ", " + p.Source
		if p.Hearsay {
			checked += " †"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", p.Title, cell(append([]string{"`" + p.Name + "`"}, p.Hosts...)), p.Sends, cell(signs(p)), cell(places(p)), checked)
	}
	return b.String()
}

func cell(s []string) string { return strings.ReplaceAll(strings.Join(s, "<br>"), "|", `\|`) }

func signs(p ratelimit.Profile) (all []string) {
	for _, s := range p.Signs {
		var shown []string
		if len(s.Status) > 0 {
			shown = append(shown, strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Status), " ", ", "), "[]"))
		}
		if s.Spent {
			shown = append(shown, "a quota used up")
		}
		for _, place := range []string{s.Header, s.Body} {
			if place != "" {
				shown = append(shown, "`"+place+"`")
			}
		}
		is := ""
		switch {
		case len(s.Is) > 4:
			is = fmt.Sprintf(" %s and %d more", s.Is[0], len(s.Is)-1)
		case len(s.Is) > 0:
			is = " " + strings.Join(s.Is, ", ")
		}
		all = append(all, s.Means.String()+": "+strings.Join(shown, ", ")+strings.ReplaceAll(is, "*", `\*`))
	}
	return all
}

func places(p ratelimit.Profile) (all []string) {
	for _, d := range p.Delays {
		all = append(all, "`"+d.Header+d.Body+"`, "+d.Form.String())
	}
	for _, q := range p.Quotas {
		switch {
		case q.In != "":
			all = append(all, "`"+q.In+"`: "+strings.Join(slices.DeleteFunc([]string{q.Remaining, q.Used, q.Reset}, func(s string) bool { return s == "" }), ", "))
		case q.Used != "":
			all = append(all, "`"+q.Used+"`")
		case q.Reset != "":
			all = append(all, "`"+q.Reset+"`, "+q.Form.String())
		default:
			all = append(all, "`"+q.Remaining+"`, no time")
		}
	}
	if p.Cost != nil {
		all = append(all, "(`"+p.Cost.Requested+"` − `"+p.Cost.Available+"`) / `"+p.Cost.Rate+"`")
	}
	if p.Otherwise > 0 {
		all = append(all, "else "+p.Otherwise.String())
	}
	return all
}

func TestDocsListEveryVendor(t *testing.T) {
	want := fields()
	if *update {
		require.NoError(t, os.WriteFile(fieldsPage, []byte(want), 0o644))
	}
	page, err := os.ReadFile(fieldsPage)
	require.NoError(t, err)
	assert.True(t, want == string(page), "docs/fields.md is out of date: go test ./ratelimit -run TestDocs -update")
}

func TestVendorsAreInOrderAndDated(t *testing.T) {
	all := ratelimit.AllVendors()
	require.True(t, slices.IsSortedFunc(all, func(a, b ratelimit.Profile) int { return strings.Compare(a.Name, b.Name) }))
	names, hosts := map[string]bool{}, map[string]bool{}
	for _, p := range all {
		assert.False(t, names[p.Name], p.Name)
		names[p.Name] = true
		assert.Regexp(t, regexp.MustCompile(`^20\d\d-(0[1-9]|1[0-2])$`), p.Checked, p.Name)
		assert.NotEmpty(t, p.Title, p.Name)
		assert.NotEmpty(t, p.Source, p.Name)
		assert.NotEmpty(t, p.Sends, p.Name)
		for _, host := range p.Hosts {
			assert.False(t, hosts[host], "%s: two vendors have the host %s", p.Name, host)
			hosts[host] = true
			assert.Equal(t, strings.ToLower(host), host)
		}
		for _, s := range p.Signs {
			assert.NotEqual(t, ratelimit.Unsaid, s.Means, p.Name)
			assertCanonical(t, p.Name, s.Header)
		}
		for _, d := range p.Delays {
			assertCanonical(t, p.Name, d.Header)
		}
		for _, q := range p.Quotas {
			if assertCanonical(t, p.Name, q.In); q.In == "" {
				for _, name := range []string{q.Limit, q.Remaining, q.Used, q.Reset, q.Window} {
					assertCanonical(t, p.Name, name)
				}
			}
		}
	}
	assert.GreaterOrEqual(t, len(all), 50)
}

// assertCanonical checks the name of a field: an http.Header has no other.
func assertCanonical(t *testing.T, vendor, name string) {
	assert.Equal(t, http.CanonicalHeaderKey(name), name, vendor)
}
