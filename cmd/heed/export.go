package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// export prints a rule file in the language of a target, and warns of what that cannot express.
func (s *session) export(args []string) error {
	var o export.Options
	f := s.flags("rules export")
	f.Int64Var(&o.Times, "times", 1, "factor for the limits of a gateway")
	f.StringVar(&o.Redis, "redis", "", "the `host` of the Redis in which Kong counts")
	f.DurationVar(&o.Window, "window", 5*time.Minute, "the window of Prometheus' rates")
	args, err := s.parse(f, args, 2, 2)
	if err != nil {
		return err
	}
	target, name := args[0], args[1]
	if err := export.CheckTarget(target); err != nil {
		fmt.Fprintln(s.err, "heed:", err)
		return errUsage
	}
	if err := s.checkFlags(f, target); err != nil {
		return err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("heed: %w", err)
	}
	l, err := rulefile.List(name, data, quiet)
	if err != nil {
		return err
	}
	out, err := export.Export(target, l, o)
	if err != nil {
		return fmt.Errorf("heed: %w", err)
	}
	for _, gap := range out.Gaps {
		fmt.Fprintln(s.err, gap)
	}
	_, err = fmt.Fprint(s.out, out.Text)
	return err
}

// flagTargets are the targets that a flag applies to.
var flagTargets = map[string][]string{"times": {"kong", "nginx"}, "redis": {"kong"}, "window": {"prometheus"}}

// checkFlags returns an error if a flag was set that does not apply to the target.
func (s *session) checkFlags(f *flag.FlagSet, target string) (err error) {
	f.Visit(func(set *flag.Flag) {
		if targets := flagTargets[set.Name]; !slices.Contains(targets, target) {
			of := strings.Join(targets, " and ")
			fmt.Fprintf(s.err, "heed: -%s does not apply to %s, only to %s\n", set.Name, target, of)
			err = errUsage
		}
	})
	return err
}
