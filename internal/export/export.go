// Package export translates a rule file for other programs: gateways (nginx, Kong), which
// protect a server from floods; OpenAPI documents; and what watches servers (Prometheus,
// Grafana).
//
// What a target cannot express is a Gap, which the output also lists in a comment. Text of
// the rule file, such as a rule's name, is escaped, so that it cannot become a directive.
package export

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heedhttp/heed/internal/spelling"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// targets are the languages that rules are exported to, in alphabetical order.
var targets = []struct {
	name   string
	render func(*exporter) string
}{
	{"grafana", grafana},
	{"kong", kong},
	{"nginx", nginx},
	{"openapi", openapi},
	{"prometheus", prometheus},
}

// Targets returns the names of all targets in alphabetical order.
func Targets() (names []string) {
	for _, t := range targets {
		names = append(names, t.name)
	}
	return names
}

// CheckTarget returns an error if there is no target of that name. The error lists the targets, and
// suggests the nearest.
func CheckTarget(name string) error {
	if slices.Contains(Targets(), name) {
		return nil
	}
	meant := ""
	if nearest := spelling.Nearest(name, Targets()); nearest != "" {
		meant = fmt.Sprintf(": did you mean %q?", nearest)
	}
	return fmt.Errorf("unknown target %q%s (targets: %s)", name, meant, strings.Join(Targets(), ", "))
}

// Options change the output. The zero Options are ready to use.
type Options struct {
	// Times multiplies the limits of a gateway, by 1 to 1000. If zero, 1.
	Times int64

	// Redis is the host or host:port of the Redis in which Kong counts. If empty, each Kong counts in
	// its own memory.
	Redis string

	// Window is the range of Prometheus' rates, in whole seconds up to a day. It should be at least
	// four scrapes long. All other durations of the alerts are scaled with it. If zero, five minutes.
	Window time.Duration
}

// withDefaults returns o with its defaults, or an error if a value is out of range.
func (o Options) withDefaults() (Options, error) {
	o.Times, o.Window = cmp.Or(o.Times, 1), cmp.Or(o.Window, alertsWindow)
	if o.Times < 1 || o.Times > 1000 {
		return o, fmt.Errorf("export: times is %d: it must be 1 to 1000", o.Times)
	}
	if o.Window < time.Second || o.Window > 24*time.Hour || o.Window%time.Second != 0 {
		return o, fmt.Errorf("export: window is %v: it must be whole seconds, from 1s to 24h", o.Window)
	}
	return o, nil
}

// An Output is the translation of a rule file.
type Output struct {
	Text string
	Gaps []Gap // in the order of the file
}

// A Gap is a part of the rules that an Output cannot express.
type Gap struct {
	File         string
	Line, Column int
	Of           string // such as `rule "api"`
	Reason       string
}

// String returns g in the form of a compiler's warning.
func (g Gap) String() string {
	return fmt.Sprintf("%s:%d:%d: warning: %s: %s", g.File, g.Line, g.Column, g.Of, g.Reason)
}

// Export translates the rules that l lists for a target. The error is that of CheckTarget, or
// names an option that is out of range.
func Export(target string, l *rulefile.Listing, o Options) (Output, error) {
	if err := CheckTarget(target); err != nil {
		return Output{}, fmt.Errorf("export: %w", err)
	}
	o, err := o.withDefaults()
	if err != nil {
		return Output{}, err
	}
	e := &exporter{Listing: l, Options: o}
	render := targets[slices.Index(Targets(), target)].render
	return Output{render(e), e.gaps}, nil
}

// An exporter makes one Output.
type exporter struct {
	*rulefile.Listing
	Options
	gaps []Gap
}

// ruleGap adds a Gap of a rule.
func (e *exporter) ruleGap(r *rulefile.Listed, format string, args ...any) {
	e.gap("rule "+quoted(r.Rule.Name), r.Line, r.Column, fmt.Sprintf(format, args...))
}

// settingGap adds a Gap of a setting of the file, such as "exempt".
func (e *exporter) settingGap(name, format string, args ...any) {
	e.gap(name, 1, 1, fmt.Sprintf(format, args...))
}

// allowGaps adds a Gap of each entry of the allow-list, for the same reason.
func (e *exporter) allowGaps(reason string) {
	for i := range e.Allow {
		e.allowGap(&e.Allow[i], reason)
	}
}

func (e *exporter) allowGap(a *rulefile.Listed, reason string) {
	e.gap("allowance "+quoted(a.Rule.Name), a.Line, a.Column, reason)
}

func (e *exporter) gap(of string, line, column int, reason string) {
	e.gaps = append(e.gaps, Gap{e.File, line, column, of, reason})
}

// failsClosed reports whether a rule denies requests while they cannot be counted.
func (e *exporter) failsClosed(r *rulefile.Listed) bool {
	return cmp.Or(r.Rule.OnStoreError, e.Config.OnStoreError) == serverside.FailClosed
}

// comment returns lines and the gaps as lines that begin with "#". It is called last, when all gaps
// are known.
func (e *exporter) comment(lines ...string) string {
	slices.SortStableFunc(e.gaps, func(a, b Gap) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if len(e.gaps) > 0 {
		lines = append(lines, "", "Not expressed here:")
	}
	for _, g := range e.gaps {
		lines = append(lines, "- "+g.Of+": "+g.Reason)
	}
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	return b.String()
}

// source is the rule file's name, for a comment.
func (e *exporter) source() string { return quoted(filepath.Base(e.File)) }

// quoted returns text in quotes, as one line of ASCII.
func quoted(text string) string { return strconv.QuoteToASCII(text) }
