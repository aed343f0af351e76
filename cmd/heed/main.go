// Command heed looks at limits: at the rules of a server, at what it counts, and at what
// servers say.
//
//	heed rules check FILE...
//	heed rules explain [-from ADDRESS] [-H 'NAME: VALUE']... [-d BODY] [-key NAME=VALUE]... [-tier NAME=TIER]... FILE METHOD URL
//	heed rules export [-times N] [-redis HOST] [-window DURATION] TARGET FILE
//	heed rules key KEY < VALUE
//	heed explain [-status CODE] [VALUE] < HEADER
//	heed store list [-rules FILE] [-denied] [-n COUNT] [-prefix TEXT]
//	heed store show [-rules FILE] [-prefix TEXT] KEY
//	heed store reset [-prefix TEXT] KEY
//	heed limits show [-prefix TEXT] KEY
//	heed limits set [-prefix TEXT] KEY WINDOW=COUNT...
//	heed limits unset [-prefix TEXT] KEY
//	heed version
//
// heed help COMMAND says what each does. The exit code is 0 if all is well, 1 if what was
// looked at is wrong, unknown or means nothing, and 2 if the command is.
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
	logging.Disable() // go-redis says on standard error what a command says anyway
	s := &session{in: os.Stdin, out: os.Stdout, err: os.Stderr, now: time.Now()}
	os.Exit(s.run(os.Args[1:]))
}

// The exit codes.
const (
	well    = 0
	wrong   = 1 // what was looked at
	misused = 2 // the command
)

// A session is one call of the command.
type session struct {
	in       io.Reader
	out, err io.Writer
	now      time.Time // in the time zone of who reads
}

// A command is called with what follows its name.
type command struct {
	name string // one word, or two
	args string // what follows, as the usage has it: [what may] and what must be there
	does string // sentences
	run  func(*session, []string) error
}

// commands returns all of them, in the order of the usage.
func commands() []command {
	return []command{
		{"rules check", "FILE...",
			"Says what is wrong with rule files, as compilers do, or how many rules they have, and their hash. What only a " +
				"program knows, the functions that a file names, is taken to be there.",
			(*session).check},
		{"rules explain", "[-from ADDRESS] [-H 'NAME: VALUE']... [-d BODY] [-key NAME=VALUE]... [-tier NAME=TIER]... " +
			"FILE METHOD URL",
			"Says which rules of FILE apply to a request, in which order, whose quota it is charged to, and what it costs. " +
				"Functions that only a program has know nothing but what -key and -tier say.",
			(*session).explainRules},
		{"rules export", "[-times N] [-redis HOST] [-window DURATION] TARGET FILE",
			"Prints the rules of FILE in the language of TARGET: " + strings.Join(export.Targets(), ", ") +
				". What that cannot say is in a comment, and a warning on standard error.",
			(*session).export},
		{"rules key", "KEY < VALUE",
			"Prints the hash under which a secret, which is read from standard input, is known: " +
				"in allow-lists, in Redis and in " +
				"limits of single keys. KEY is header:NAME, cookie:NAME or form:NAME, as in a rule.",
			(*session).key},
		{"explain", "[-status CODE] [VALUE] < HEADER",
			"Says what a value of Retry-After, RateLimit or the like means, or a whole response " +
				"header, such as curl -i prints, " +
				"on standard input; and how to obey it.",
			(*session).explain},
		{"store list", "[-rules FILE] [-denied] [-n COUNT] [-prefix TEXT]",
			"Says who owes what in the Redis that REDIS_URL names; with the rules in force, also " +
				"who is denied, and until when: " +
				"those who are denied longest first.",
			(*session).list},
		{"store show", "[-rules FILE] [-prefix TEXT] KEY",
			"Says what a key owes in the Redis that REDIS_URL names; with the rules in force, also " +
				"whether it is denied, and until " +
				"when. KEY is key: and what a rule's key makes of a request, default: and an address " +
				"where it makes nothing, or the " +
				"address alone that requests come straight from: heed rules explain says it. It may be spelt without, too.",
			(*session).show},
		{"store reset", "[-prefix TEXT] KEY",
			"Has all that a key owes in the Redis that REDIS_URL names forgotten.",
			(*session).reset},
		{"limits show", "[-prefix TEXT] KEY",
			"Says which limits a key has of its own, in place of those of rules with limits: see redisstore.Limits.",
			(*session).showLimits},
		{"limits set", "[-prefix TEXT] KEY WINDOW=COUNT...",
			"Gives a key limits of its own, and tells all processes. WINDOW is per_second, " +
				"per_minute, per_hour or per_day; a COUNT " +
				"of 0 is no limit. Windows that are not named stay as they are.",
			(*session).setLimits},
		{"limits unset", "[-prefix TEXT] KEY",
			"Takes a key's own limits away, and tells all processes.",
			(*session).unsetLimits},
		{"version", "", "Prints the version of this program.", (*session).version},
		{"help", "[COMMAND]", "Says what a command does, or which there are.", (*session).help},
	}
}

// errUsage is a command that is wrong. What is, has been said.
var errUsage = errors.New("usage")

// errWrong is that what was looked at is wrong. What is, has been said.
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

// find returns the command that args begin with, and what follows.
func (s *session) find(args []string) (c command, rest []string, err error) {
	group := false // there are commands of two words that begin with the first
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
		fmt.Fprintf(s.err, "heed: %s what? There is %s\n", args[0], strings.Join(known, ", "))
	case group:
		s.unknown(args[1], known)
	default:
		s.unknown(args[0], slices.Compact(known))
	}
	return c, nil, errUsage
}

// unknown says that word is none of known, and which may be meant.
func (s *session) unknown(word string, known []string) {
	if nearest := spelling.Nearest(word, known); nearest != "" {
		fmt.Fprintf(s.err, "heed: unknown command %q: did you mean %q?\n", word, nearest)
		return
	}
	fmt.Fprintf(s.err, "heed: unknown command %q: there is %s\n", word, strings.Join(known, ", "))
}

// help prints what a command does, or which there are: all, or those that begin with a word.
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
	fmt.Fprint(w, "heed looks at limits: at the rules of a server, at what it counts, and at what servers say.\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "\t%s\n", c.usage())
	}
	fmt.Fprint(w, "\nheed help COMMAND says what each does. The exit code is 0 if all is well, 1 if what was looked at\n"+
		"is wrong, unknown or means nothing, and 2 if the command is.\n")
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

// version prints what this program was built of.
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

// flags returns an empty set of flags for the command of that name, to be parsed by parse.
func (s *session) flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard) // parse says what is wrong
	return f
}

// parse returns what follows the flags of the command that f is named after, or stands
// between them: least to most arguments.
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
		return nil, s.misuse(c, fmt.Sprintf("there is no use for %q", found[most]))
	}
	return found, nil
}

// arguments are the names of what must be there.
func (c command) arguments() []string {
	required := regexp.MustCompile(`\[[^]]*\](\.\.\.)?|<.*`).ReplaceAllString(c.args, "")
	return strings.Fields(strings.ReplaceAll(required, "...", ""))
}

// describe prints what c does.
func (s *session) describe(c command, f *flag.FlagSet) error {
	fmt.Fprintf(s.out, "%s\n\n%s\n", c.usage(), wrapped(c.does))
	f.SetOutput(s.out)
	f.PrintDefaults()
	return flag.ErrHelp
}

// misuse says what is wrong with how c was called.
func (s *session) misuse(c command, reason string) error {
	fmt.Fprintf(s.err, "heed %s: %s\nusage: %s\n", c.name, reason, c.usage())
	return errUsage
}

// mostInput bounds what is read from standard input.
const mostInput = 64 << 10

func (s *session) input() (string, error) {
	b, err := io.ReadAll(io.LimitReader(s.in, mostInput))
	if err != nil {
		return "", fmt.Errorf("heed: standard input: %w", err)
	}
	return string(b), nil
}
