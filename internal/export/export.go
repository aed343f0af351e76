// Package export says the rules of a rule file in the languages of others: of
// gateways, which guard a server against floods, of those who document APIs, and of
// those who watch servers.
//
// What a target cannot say is a Gap, and stands in a comment of what is made too.
// No text of the file gets out of its place: what is not plain is escaped.
package export

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heedhttp/heed/serverside/rulefile"
)

// Options change what is made. The zero Options leave it as the rules have it.
type Options struct {
	// Times is what the limits of gateways are multiplied by. If zero, 1.
	Times int64

	// Redis is where Kong counts, a host or host:port. If empty, each Kong counts in
	// its own memory.
	Redis string

	// Window is the time over which Prometheus takes rates, in whole seconds, and at
	// least four of its scrapes long. All other durations of alarms are in proportion
	// to it. If zero, five minutes.
	Window time.Duration
}

// withDefaults checks o.
func (o Options) withDefaults() (Options, error) {
	o.Times, o.Window = cmp.Or(o.Times, 1), cmp.Or(o.Window, window)
	if o.Times < 1 {
		return o, fmt.Errorf("export: times: is %d: must be at least 1", o.Times)
	}
	if o.Window < time.Second || o.Window > 24*time.Hour || o.Window%time.Second != 0 {
		return o, fmt.Errorf("export: window: is %v: must be whole seconds, and a day at most", o.Window)
	}
	return o, nil
}

// An Output is what is made of rules.
type Output struct {
	Text string
	Gaps []Gap // in the order of the file
}

// A Gap is something that the rules say and the output does not.
type Gap struct {
	File         string
	Line, Column int
	Of           string // such as `rule "api"`
	Reason       string
}

// String is g as compilers write their warnings.
func (g Gap) String() string {
	return fmt.Sprintf("%s:%d:%d: warning: %s: %s", g.File, g.Line, g.Column, g.Of, g.Reason)
}

// targets are what there is, in the order of the documentation.
var targets = []struct {
	name string
	make func(*exporter) string
}{
	{"nginx", nginx},
	{"kong", kong},
	{"openapi", openapi},
	{"prometheus", prometheus},
	{"grafana", grafana},
}

// Targets are the names of what rules can be exported to.
func Targets() (names []string) {
	for _, t := range targets {
		names = append(names, t.name)
	}
	return names
}

// Export says what l lists in the language of a target.
func Export(target string, l *rulefile.Listing, o Options) (Output, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Output{}, err
	}
	for _, t := range targets {
		if t.name == target {
			e := &exporter{Listing: l, Options: o}
			text := t.make(e)
			return Output{text, e.gaps}, nil
		}
	}
	return Output{}, fmt.Errorf("export: there is no target %q: there are %s", target, strings.Join(Targets(), ", "))
}

// An exporter makes one Output.
type exporter struct {
	*rulefile.Listing
	Options
	gaps []Gap
}

// gap says that something of r is not said.
func (e *exporter) gap(r *rulefile.Listed, format string, args ...any) {
	e.gapOf(fmt.Sprintf("rule %s", quoted(r.Rule.Name)), r.Line, r.Column, format, args...)
}

func (e *exporter) gapOf(of string, line, column int, format string, args ...any) {
	e.gaps = append(e.gaps, Gap{e.File, line, column, of, fmt.Sprintf(format, args...)})
}

// quoted is text on one line of ASCII, whatever it is.
func quoted(text string) string { return strconv.QuoteToASCII(text) }

// source is where the rules come from, for a comment.
func (e *exporter) source() string { return quoted(filepath.Base(e.File)) }

// comment is what is said of the output, without the signs of a comment. All gaps are
// known then.
func (e *exporter) comment(lines ...string) []string {
	slices.SortStableFunc(e.gaps, func(a, b Gap) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	if len(e.gaps) == 0 {
		return lines
	}
	lines = append(lines, "", "What the rules say, and this does not:")
	for _, g := range e.gaps {
		lines = append(lines, "- "+g.Of+": "+g.Reason)
	}
	return lines
}

// hashed are lines as a comment that begins with a hash.
func hashed(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	return b.String()
}
