package main

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/heedhttp/heed/internal/explain"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// quiet is the Env for files: without a program and without an Audit.
var quiet = rulefile.Env{Lenient: true, Config: serverside.Config{Audit: func(serverside.Event) {}}}

// check prints the faults of rule files.
func (s *session) check(args []string) error {
	names, err := s.parse(s.flags("rules check"), args, 1, math.MaxInt)
	if err != nil {
		return err
	}
	for _, name := range names {
		if fault := s.checkFile(name); fault != nil {
			fmt.Fprintln(s.err, fault)
			err = errWrong
		}
	}
	return err
}

func (s *session) checkFile(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("heed: %w", err)
	}
	listing, err := rulefile.List(name, data, quiet)
	if err != nil {
		return err
	}
	l, err := serverside.New(listing.Config)
	if err != nil {
		return err
	}
	for _, w := range listing.Warnings {
		fmt.Fprintf(s.out, "%v (warning)\n", w)
	}
	fmt.Fprintf(s.out, "%s: %s, hash %s\n", name, count(len(listing.Config.Rules), "rule"), l.Hash())
	return nil
}

// key prints the hash of a secret.
func (s *session) key(args []string) error {
	args, err := s.parse(s.flags("rules key"), args, 1, 1)
	if err != nil {
		return err
	}
	value, err := s.input()
	if err != nil {
		return err
	}
	value = strings.TrimRight(value, "\r\n")
	source, name, _ := strings.Cut(args[0], ":")
	hash := ""
	switch {
	case name == "":
	case source == "header":
		hash = serverside.HashKey(http.CanonicalHeaderKey(name), value)
	case source == "cookie":
		hash = serverside.HashKey("Cookie "+name, value)
	case source == "form":
		folded := strings.ToLower(strings.ToUpper(strings.TrimSpace(value))) // as serverside does
		hash = serverside.HashKey("Form "+name, folded)
	}
	if hash == "" {
		return keyFault(source, name, args[0])
	}
	fmt.Fprintln(s.out, hash)
	return nil
}

// keyFault returns why a key has no hash.
func keyFault(source, name, key string) error {
	switch {
	case !slices.Contains([]string{"header", "cookie", "form"}, source):
		return fmt.Errorf("heed rules key: KEY is %q: must be header:NAME, cookie:NAME or form:NAME", key)
	case name == "":
		return fmt.Errorf("heed rules key: KEY lacks a name: write %s:NAME", source)
	default:
		return fmt.Errorf("heed rules key: standard input is empty: pass the value of %s", key)
	}
}

// explainRules prints what a rule file does to a request.
func (s *session) explainRules(args []string) error {
	header := make(http.Header)
	f := s.flags("rules explain")
	from := f.String("from", "192.0.2.1", "the request's peer `address`")
	f.Func("H", "a header `field` of the request, as 'NAME: VALUE'", func(line string) error {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return fmt.Errorf("is %q: must be 'NAME: VALUE'", line)
		}
		header.Add(name, strings.TrimSpace(value))
		return nil
	})
	body := f.String("d", "", "the request's `body`: a form, unless -H has a Content-Type")
	env := quiet
	env.Keys, env.Tiers = map[string]serverside.Key{}, map[string]func(*http.Request) string{}
	f.Func("key", "the value of a key function, as `NAME=VALUE`: user=ann", func(text string) error {
		name, value, err := named(text)
		env.Keys[name] = serverside.KeyFunc(func(*http.Request) string { return value })
		return err
	})
	f.Func("tier", "the value of a tier function, as `NAME=TIER`", func(text string) error {
		name, value, err := named(text)
		env.Tiers[name] = func(*http.Request) string { return value }
		return err
	})
	args, err := s.parse(f, args, 3, 3)
	if err != nil {
		return err
	}
	req, err := request(args[1], args[2], *from, header)
	if err != nil {
		return err
	}
	if *body != "" {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(*body)), int64(len(*body))
		if header.Get("Content-Type") == "" {
			header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("heed: %w", err)
	}
	e, err := rulefile.Explain(args[0], data, env, req)
	if err != nil {
		return err
	}
	s.print(e, req.Method+" "+args[2])
	return nil
}

// named parses NAME=VALUE.
func named(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		err = fmt.Errorf("is %q: must be NAME=VALUE", text)
	}
	return name, value, err
}

// request returns the request to explain.
func request(method, target, from string, header http.Header) (*http.Request, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" && !strings.HasPrefix(u.Path, "/") {
		return nil, fmt.Errorf("heed: URL is %q: must be like /v1/users or https://api.example.com/v1/users", target)
	}
	addr, err := netip.ParseAddr(from)
	if err != nil {
		return nil, fmt.Errorf("heed: -from is %q: must be an address", from)
	}
	req, err := http.NewRequest(strings.ToUpper(method), target, nil)
	if err != nil {
		return nil, fmt.Errorf("heed: METHOD is %q: must be a method", method)
	}
	if req.Host == "" {
		req.Host = "example.com"
	}
	if req.URL.Path == "" {
		req.URL.Path = "/"
	}
	req.Header, req.RemoteAddr = header, net.JoinHostPort(addr.String(), "1")
	return req, nil
}

// print prints e.
func (s *session) print(e *rulefile.Explanation, request string) {
	switch {
	case e.Exempt:
		fmt.Fprintf(s.out, "%s is exempt: it is not limited.\n", request)
		return
	case len(e.Rules) == 0:
		fmt.Fprintf(s.out, "%s is not limited: no rule matches.\n", request)
		return
	case e.Rules[0].Allowed:
		fmt.Fprintf(s.out, "%s matches an entry of allow, and is charged to that only.\n", request)
	default:
		fmt.Fprintf(s.out, "%s is limited by %s, in this order:\n", request, count(len(e.Rules), "rule"))
	}
	for i, a := range e.Rules {
		fmt.Fprintf(s.out, "\n%d. %s\n", i+1, titleOf(a))
		for _, line := range linesOf(a) {
			fmt.Fprintf(s.out, "   %s\n", line)
		}
	}
	fmt.Fprintf(s.out, "\n%s\n", chargedTo(e.Rules))
}

// chargedTo returns what is charged if a rule denies a request.
func chargedTo(rules []rulefile.Applied) string {
	early := func(a rulefile.Applied) bool { return a.Rule.Stage == serverside.BeforeAuth && !a.Allowed }
	late := func(a rulefile.Applied) bool { return !early(a) }
	if !slices.ContainsFunc(rules, early) || !slices.ContainsFunc(rules, late) {
		return "If one denies the request, none is charged."
	}
	return "If one denies the request, none is charged. But with WrapEarly, charges of the rules before\n" +
		"authentication stay if a later rule denies it."
}

func titleOf(a rulefile.Applied) string {
	title := fmt.Sprintf("%q", a.Rule.Name)
	if a.Rule.Pattern != "" {
		title += ", for " + a.Rule.Pattern
	}
	title += [...]string{
		serverside.BeforeAuth: "", serverside.AfterAuth: ", after authentication",
		serverside.Overload: ", against overload",
	}[a.Rule.Stage]
	if a.Rule.DryRun {
		title += ", as a dry run"
	}
	return title
}

// linesOf returns a rule's key, functions and limits.
func linesOf(a rulefile.Applied) (lines []string) {
	lines = append(lines, fmt.Sprintf("key: %s, which is %s", a.Key, spell(a.Key, a.Value)))
	for _, f := range a.Functions {
		lines = append(lines, strings.Replace(f, " ", ": ", 1))
	}
	if a.Rule.MaxInFlight > 0 {
		lines = append(lines, fmt.Sprintf("at most %d in flight", a.Rule.MaxInFlight))
	}
	for _, c := range a.Charges {
		lines = append(lines, chargeOf(c))
	}
	if p := a.Rule.Penalty; p != nil {
		lines = append(lines, fmt.Sprintf("penalty: after %s within %s, blocked for %s or longer",
			count(int(p.After), "strike"), explain.Brief(p.Within), explain.Brief(p.First)))
	}
	return lines
}

// spell returns a key of the Store, which an expression of a rule file made, in readable form.
func spell(expression, value string) string {
	key, made := strings.CutPrefix(value, "key:")
	switch {
	case strings.HasPrefix(value, "hash:"): // a long key
		return value
	case !made:
		return strings.TrimPrefix(value, "default:") + ", the address, because the key is empty"
	case strings.HasPrefix(expression, "first("):
		_, key, _ = strings.Cut(key, ":") // the index of the key
	case strings.HasPrefix(expression, "join("):
		if parts := netstrings(key); parts != nil {
			return strings.Join(parts, " and ")
		}
	}
	return key
}

// netstrings returns the parts of a Join, or nil if it is not one. A part that begins with "-" is
// the peer's address in place of an empty key.
func netstrings(joined string) (parts []string) {
	for joined != "" {
		rest, missing := strings.CutPrefix(joined, "-")
		size, rest, _ := strings.Cut(rest, ":")
		n, err := strconv.Atoi(size)
		if err != nil || n < 0 || n > len(rest) {
			return nil
		}
		part := rest[:n]
		if missing {
			part += " (the address, because the key is empty)"
		}
		parts, joined = append(parts, part), rest[n:]
	}
	return parts
}

// chargeOf describes a charge.
func chargeOf(c rulefile.Charged) string {
	p := c.Policy
	window := p.Calendar.String()
	if p.Calendar == 0 {
		window = explain.Brief(p.Window)
	}
	text := fmt.Sprintf("%s: costs %d of %d per %s", p.Name, c.Cost, p.Quota, window)
	if p.Burst != p.Quota {
		text += fmt.Sprintf(", %d at once", p.Burst)
	}
	text += fmt.Sprintf(" (%v", p.Algorithm)
	if p.Location != nil {
		text += ", " + p.Location.String()
	}
	if text += ")"; c.Decision.Never {
		text += ": never admitted, because it costs more than fits at once"
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
