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

// The text around the generated table.
const tableBegins, tableEnds = "-run TestDocs -update. -->\n\n", "\n<!-- The end of the table. -->\n"

const tableHead = "| vendor | name, hosts | sends | responses with a meaning of their own " +
	"| where it announces waits | which requests share a limit | what its client repeats | checked |\n" +
	"|---|---|---|---|---|---|---|---|\n"

// table renders the table of docs/fields.md.
func table() string {
	var b strings.Builder
	b.WriteString(tableHead)
	for _, p := range ratelimit.AllVendors() {
		checked := p.Checked + ", " + p.Source
		if p.Hearsay {
			checked += " †"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n",
			p.Title, cell(
				append([]string{"`" + p.Name + "`"}, p.Hosts...),
			), p.Sends, cell(signs(p)), cell(places(p)), cell(scope(&p.Scope)), cell(repeats(p)), checked)
	}
	return b.String()
}

// repeats renders what may be sent again.
func repeats(p ratelimit.Profile) (all []string) {
	for _, r := range p.Repeats {
		when := strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Status), " ", ", "), "[]")
		if r.From > 0 {
			when = strings.TrimPrefix(when+", ", ", ") + fmt.Sprintf("from %d on", r.From)
		}
		if r.Errors {
			when += ", errors"
		}
		if len(r.Unless) > 0 {
			when += ", unless the body has " + strings.Join(r.Unless, ", ")
		}
		all = append(all, "`"+strings.Join(r.Paths, "`, `")+"`: "+when+" ("+r.Source+")")
	}
	return all
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
		if s.Without != "" {
			shown = append(shown, "no `"+s.Without+"`")
		}
		what := s.Means.String()
		switch {
		case s.All:
			what += ", for all requests"
		case s.Own:
			what += ", for this request only"
		}
		if s.Until != (ratelimit.Delay{}) {
			is += ", until `" + s.Until.Header + s.Until.Body + "`"
			if s.Until.Form == ratelimit.Pacific {
				is = strings.TrimSuffix(is, "``") + s.Until.Form.String()
			}
		}
		all = append(all, what+": "+strings.Join(shown, ", ")+strings.ReplaceAll(is, "*", `\*`))
	}
	return append(all, events(p)...)
}

// events puts Events that differ in Body only into one line.
func events(p ratelimit.Profile) (all []string) {
	places := map[string]string{}
	for _, e := range p.Events {
		kind := fmt.Sprintf("%v: 200, first event %s|%s", e.Means, e.Name, strings.Join(e.Is, ", "))
		if e.Means != ratelimit.Unsaid && places[kind] == "" {
			all = append(all, kind)
		}
		places[kind] += " `" + e.Body + "`"
	}
	for i, kind := range all {
		all[i] = strings.ReplaceAll(strings.Replace(kind, "|", places[kind]+" ", 1), "  ", " ")
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
			all = append(
				all,
				"`"+q.In+"`: "+strings.Join(
					slices.DeleteFunc(
						[]string{q.Remaining, q.Used, q.Reset}, func(s string) bool { return s == "" },
					),
					", ",
				),
			)
		case q.Used != "":
			all = append(all, "`"+q.Used+"`")
		case q.Reset != "":
			all = append(all, "`"+q.Reset+"`, "+q.Form.String())
		default:
			all = append(all, "`"+q.Remaining+"`, without a time")
		}
	}
	if p.Cost != nil {
		all = append(all, "(`"+p.Cost.Requested+"` − `"+p.Cost.Available+"`) / `"+p.Cost.Rate+"`")
	}
	if p.Otherwise > 0 {
		all = append(all, "else "+p.Otherwise.String())
	}
	if p.Exact {
		all = append(all, "exact")
	}
	return all
}

func scope(s *ratelimit.Scope) (all []string) {
	for _, g := range s.Groups {
		of := ""
		if g.Member != "" {
			of = " by `" + g.Member + "` in the body"
		}
		all = append(all, "`"+g.Name+"`"+of+": `"+strings.Join(g.Paths, "`, `")+"`")
	}
	if s.Endpoints && s.Methods {
		all = append(all, "each endpoint and method")
	} else if s.Endpoints {
		all = append(all, "each endpoint")
	}
	for _, pattern := range s.Keep {
		all = append(all, "`"+pattern+"`")
	}
	if s.Header != "" {
		all = append(all, "named by `"+s.Header+"`")
	}
	return all
}

func TestDocsListEveryVendor(t *testing.T) {
	page, err := os.ReadFile(fieldsPage)
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(page), tableBegins)
	require.True(t, found, "docs/fields.md has no start of the table")
	_, tail, found := strings.Cut(rest, tableEnds)
	require.True(t, found, "docs/fields.md has no end of the table")
	want := head + tableBegins + table() + tableEnds + tail
	if *update {
		require.NoError(t, os.WriteFile(fieldsPage, []byte(want), 0o644))
		return
	}
	assert.True(t, want == string(page), "docs/fields.md is out of date: go test ./ratelimit -run TestDocs -update")
}

// A vendor that needs no rule belongs into the text of docs/fields.md, not into the table.
func TestEachVendorHasARule(t *testing.T) {
	for _, p := range ratelimit.AllVendors() {
		scoped := len(p.Scope.Groups) > 0 || p.Scope.Endpoints || p.Scope.Header != ""
		assert.True(t, scoped || p.Cost != nil || p.Otherwise > 0 || len(p.Signs)+len(p.Delays)+len(p.Quotas) > 0, p.Name)
	}
}

func TestVendorsAreFoundByHost(t *testing.T) {
	for host, want := range map[string]string{
		"api.github.com": "github", "uploads.github.com": "github", "files.stripe.com": "stripe",
		"shop.myshopify.com":  "shopify",
		"maps.googleapis.com": "gmaps", "sheets.googleapis.com": "google", "graph.facebook.com": "meta",
		"dynamodb.cn-north-1.amazonaws.com.cn": "aws", "ec2.eu-west-1.api.aws": "aws",
		"sts.us-east-1.amazonaws.com": "aws",
		"x.openai.azure.com":          "azure-openai", "x.cognitiveservices.azure.com": "azure-openai",
		"x.services.ai.azure.com:443": "azure-openai",
		"o1.ingest.sentry.io":         "sentry", "api.trello.com": "trello", "cdn.contentful.com": "contentful",
	} {
		p := ratelimit.For(host, ratelimit.Vendors())
		if assert.NotNil(t, p, host) {
			assert.Equal(t, want, p.Name, host)
		}
	}
	assert.Nil(t, ratelimit.For("gitlab.com", ratelimit.Vendors()), "gitlab needs no rule")
}

func TestVendorsAreSortedAndComplete(t *testing.T) {
	all := ratelimit.AllVendors()
	require.True(
		t,
		slices.IsSortedFunc(all, func(a, b ratelimit.Profile) int { return strings.Compare(a.Name, b.Name) }),
	)
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
			assertCanonical(t, p.Name, s.Without)
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
	assert.GreaterOrEqual(t, len(all), 35)
}

// assertCanonical checks that name is canonical, as the keys of an http.Header are.
func assertCanonical(t *testing.T, vendor, name string) {
	assert.Equal(t, http.CanonicalHeaderKey(name), name, vendor)
}
