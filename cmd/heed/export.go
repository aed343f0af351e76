package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// export prints what a rule file is in the language of a target.
func (s *session) export(args []string) error {
	var o export.Options
	f := s.flags("rules export")
	f.Int64Var(&o.Times, "times", 1, "what the limits of a gateway are multiplied by")
	f.StringVar(&o.Redis, "redis", "", "the `host` of the Redis in which Kong counts")
	f.DurationVar(&o.Window, "window", 5*time.Minute, "the time over which Prometheus takes rates")
	args, err := s.parse(f, args, 2, 2)
	if err != nil {
		return err
	}
	target, name := args[0], args[1]
	if !slices.Contains(export.Targets(), target) {
		fmt.Fprintf(s.err, "heed: there is no target %q: there are %s\n", target, strings.Join(export.Targets(), ", "))
		return errUsage
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
