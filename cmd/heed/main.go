// Command heed checks rule files, shows and resets what a server counts, and explains the
// responses of servers.
//
//	heed rules check FILE...
//	heed rules explain [-from ADDRESS] [-H FIELD]... [-d BODY] [-key NAME=VALUE]... [-tier NAME=TIER]... FILE METHOD URL
//	heed rules export [-times N] [-redis HOST] [-window DURATION] TARGET FILE
//	heed rules key KEY < VALUE
//	heed explain [-status CODE] [VALUE] < HEADER
//	heed store list [-rules FILE] [-denied] [-n COUNT] [-prefix TEXT]
//	heed store show [-rules FILE] [-prefix TEXT] KEY
//	heed store reset [-prefix TEXT] KEY
//	heed limits show [-prefix TEXT] KEY
//	heed limits set [-prefix TEXT] KEY WINDOW=COUNT... | blocked=1
//	heed limits unset [-prefix TEXT] KEY
//	heed version
//
// Run heed help COMMAND for details. The exit code is 0 for success, 1 if the input is wrong or
// unknown, and 2 if the command is used wrongly.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/internal/spelling"
)

func main() {
	logging.Disable() // go-redis logs errors that a command prints anyway
	s := &session{in: os.Stdin, out: os.Stdout, err: os.Stderr, now: time.Now()}
	os.Exit(s.run(os.Args[1:]))
}

// Exit codes.
const (
	well    = 0
	wrong   = 1 // the input
	misused = 2 // the command line
)

// A session is one run of the command.
type session struct {
	in       io.Reader
	out, err io.Writer
	now      time.Time // in the user's time zone
}

// A command is a command of heed.
type command struct {
	name string // one word, or two
	args string // its arguments in the usage: [optional] and required
	does string // its description
	run  func(*session, []string) error
}

// commands returns all commands in the order of the usage.
func commands() []command {
	return []command{
		{"rules check", "FILE...",
			"Checks rule files. Prints the faults of each file like a compiler, or the number of its rules and " +
				"their hash. Functions that a file names are assumed to exist in the program.",
			(*session).check},
		{"rules explain", "[-from ADDRESS] [-H FIELD]... [-d BODY] [-key NAME=VALUE]... [-tier NAME=TIER]... " +
			"FILE METHOD URL",
			"Shows which rules of FILE apply to a request, in which order, whose quota they charge, and how much. " +
				"Functions of the program return nothing, except for values given by -key and -tier.",
			(*session).explainRules},
		{"rules export", "[-times N] [-redis HOST] [-window DURATION] TARGET FILE",
			"Prints the rules of FILE in the language of TARGET: " + strings.Join(export.Targets(), ", ") +
				". Rules that the target cannot express are listed in a comment and on standard error.",
			(*session).export},
		{"rules key", "KEY < VALUE",
			"Reads a secret from standard input and prints its hash, by which allow, Redis and limits of single " +
				"keys know it. KEY is header:NAME, cookie:NAME or form:NAME, as in a rule.",
			(*session).key},
		{"explain", "[-status CODE] [VALUE] < HEADER",
			"Explains a value of Retry-After, RateLimit or the like, or a response header such as curl -i prints " +
				"on standard input, and how to obey it.",
			(*session).explain},
		{"store list", "[-rules FILE] [-denied] [-n COUNT] [-prefix TEXT]",
			"Lists the keys in the Redis at REDIS_URL and what they have used. With -rules, it shows which keys are " +
				"denied and until when, the longest first.",
			(*session).list},
		{"store show", "[-rules FILE] [-prefix TEXT] KEY",
			"Shows what a key has used in the Redis at REDIS_URL. With -rules, it shows whether the key is denied and " +
				"until when. KEY is key: followed by the value of a rule's key, default: followed by the address that " +
				"replaces an empty key, or the address of a peer. heed rules explain prints it. The prefix may be left out.",
			(*session).show},
		{"store reset", "[-prefix TEXT] KEY",
			"Resets all counts of a key in the Redis at REDIS_URL.",
			(*session).reset},
		{"limits show", "[-prefix TEXT] KEY",
			"Shows the limits of a single key, which replace those of rules with limits. See redisstore.Limits.",
			(*session).showLimits},
		{"limits set", "[-prefix TEXT] KEY WINDOW=COUNT... | blocked=1",
			"Sets limits of a single key in all processes. WINDOW is per_second, per_minute, per_hour or per_day. A " +
				"COUNT of 0 means no limit. Other windows stay unchanged. blocked=1 blocks the key until blocked=0.",
			(*session).setLimits},
		{"limits unset", "[-prefix TEXT] KEY",
			"Removes the limits of a single key in all processes.",
			(*session).unsetLimits},
		{"version", "", "Prints the version of this program.", (*session).version},
		{"help", "[COMMAND]", "Describes a command, or lists all.", (*session).help},
	}
}

// errUsage says that the command line is wrong, which was printed.
var errUsage = errors.New("usage")

// errWrong says that the input is wrong, which was printed.
var errWrong = errors.New("wrong")

func (s *session) run(args []string) (code int) {
	if len(args) == 0 {
		s.overview(s.err)
		return misused
	}
	switch args[0] {
	case "-h", "-help", "--help":
		args = append([]string{"help"}, args[1:]...)
	case "-version", "--version":
		args = append([]string{"version"}, args[1:]...)
	}
	c, rest, err := s.find(args)
	if err == nil {
		err = c.run(s, rest)
	}
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return well
	case errors.Is(err, errUsage):
		return misused
	case !errors.Is(err, errWrong):
		fmt.Fprintln(s.err, err)
	}
	return wrong
}

// find returns the command at the start of args, and the other arguments.
func (s *session) find(args []string) (c command, rest []string, err error) {
	group := false // args[0] begins commands of two words
	for _, c := range commands() {
		first, second, two := strings.Cut(c.name, " ")
		switch {
		case args[0] != first:
		case !two:
			return c, args[1:], nil
		case len(args) > 1 && args[1] == second:
			return c, args[2:], nil
		default:
			group = true
		}
	}
	var known []string
	for _, c := range commands() {
		first, second, _ := strings.Cut(c.name, " ")
		if word := first; !group {
			known = append(known, word)
		} else if first == args[0] {
			known = append(known, second)
		}
	}
	switch {
	case group && len(args) > 1 && slices.Contains([]string{"-h", "-help", "--help", "help"}, args[1]):
		return command{run: (*session).help}, args[:1], nil
	case group && len(args) == 1:
		fmt.Fprintf(s.err, "heed: %s needs a command: %s\n", args[0], strings.Join(known, ", "))
	case group:
		s.unknown(args[1], known)
	default:
		s.unknown(args[0], slices.Compact(known))
	}
	return c, nil, errUsage
}

// unknown reports an unknown word, and suggests the nearest of known.
func (s *session) unknown(word string, known []string) {
	if nearest := spelling.Nearest(word, known); nearest != "" {
		fmt.Fprintf(s.err, "heed: unknown command %q: did you mean %q?\n", word, nearest)
		return
	}
	fmt.Fprintf(s.err, "heed: unknown command %q (commands: %s)\n", word, strings.Join(known, ", "))
}

// help describes a command or a group of commands, or lists all.
func (s *session) help(args []string) error {
	if len(args) == 0 {
		s.overview(s.out)
		return nil
	}
	of := strings.Join(args, " ")
	group := false
	for _, c := range commands() {
		if c.name == of {
			return c.run(s, []string{"-h"})
		}
		group = group || strings.HasPrefix(c.name, of+" ")
	}
	if !group {
		_, _, err := s.find(args)
		return err
	}
	for _, c := range commands() {
		if strings.HasPrefix(c.name, of+" ") {
			fmt.Fprintf(s.out, "%s\n%s\n\n", c.usage(), wrapped(c.does))
		}
	}
	return nil
}

// overview prints all commands.
func (s *session) overview(w io.Writer) {
	fmt.Fprint(w,
		"heed checks rule files, shows and resets what a server counts, and explains the responses of servers.\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "\t%s\n", c.usage())
	}
	fmt.Fprint(w, "\nRun heed help COMMAND for details. The exit code is 0 for success, 1 if the input is wrong or\n"+
		"unknown, and 2 if the command is used wrongly.\n")
}

func (c command) usage() string { return strings.TrimRight("heed "+c.name+" "+c.args, " ") }

// wrapped breaks text into lines.
func wrapped(text string) string {
	var b strings.Builder
	length := 0
	for _, word := range strings.Fields(text) {
		switch {
		case length == 0:
		case length+1+len(word) > 100:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
}

// version prints the version of this program and of Go.
func (s *session) version(args []string) error {
	if _, err := s.parse(s.flags("version"), args, 0, 0); err != nil {
		return err
	}
	version := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(info.Main.Version, version)
	}
	fmt.Fprintf(s.out, "heed %s, %s\n", version, runtime.Version())
	return nil
}

// flags returns an empty FlagSet for a command, for parse.
func (s *session) flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard) // parse reports errors
	return f
}

// parse parses the flags of the command that f is named after. It returns the arguments around them,
// which must be least to most.
func (s *session) parse(f *flag.FlagSet, args []string, least, most int) (found []string, err error) {
	i := slices.IndexFunc(commands(), func(c command) bool { return c.name == f.Name() })
	c := commands()[i]
	for len(args) > 0 {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, s.describe(c, f)
		} else if err != nil {
			return nil, s.misuse(c, err.Error())
		}
		if args = f.Args(); len(args) > 0 {
			found, args = append(found, args[0]), args[1:]
		}
	}
	switch {
	case len(found) < least:
		return nil, s.misuse(c, c.arguments()[len(found)]+" is missing")
	case len(found) > most:
		return nil, s.misuse(c, fmt.Sprintf("unexpected argument %q", found[most]))
	}
	return found, nil
}

// arguments returns the names of c's required arguments.
func (c command) arguments() []string {
	required := regexp.MustCompile(`\[[^]]*\](\.\.\.)?|<.*`).ReplaceAllString(c.args, "")
	return strings.Fields(strings.ReplaceAll(required, "...", ""))
}

// describe prints c's usage and description.
func (s *session) describe(c command, f *flag.FlagSet) error {
	fmt.Fprintf(s.out, "%s\n\n%s\n", c.usage(), wrapped(c.does))
	f.SetOutput(s.out)
	f.PrintDefaults()
	return flag.ErrHelp
}

// misuse reports that c was called wrongly.
func (s *session) misuse(c command, reason string) error {
	fmt.Fprintf(s.err, "heed %s: %s\nusage: %s\n", c.name, reason, c.usage())
	return errUsage
}

// maxInput bounds what is read from standard input.
const maxInput = 64 << 10

func (s *session) input() (string, error) {
	b, err := io.ReadAll(io.LimitReader(s.in, maxInput))
	if err != nil {
		return "", fmt.Errorf("heed: standard input: %w", err)
	}
	return string(b), nil
}
