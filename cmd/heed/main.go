// Command heed looks at limits: at the rules of a server, at what it counts, and at what
// servers say.
//
//	heed rules check FILE...
//	heed rules explain [-from ADDRESS] [-H 'NAME: VALUE']... FILE METHOD URL
//	heed rules export [-times N] [-redis HOST] [-window DURATION] TARGET FILE
//	heed rules key KEY < VALUE
//	heed explain [-status CODE] [VALUE] < HEADER
//	heed store show|reset [-prefix TEXT] SUBJECT
//
// rules check says what is wrong with rule files, as compilers do, or how many rules
// they have, and their hash. What only a program knows, the functions that a file
// names, is taken to be there.
//
// rules explain says which rules apply to a request, in which order, whose quota it
// is charged to, and what it costs. Functions that only a program has are taken to
// know nothing.
//
// rules export prints what the rules are in the language of a TARGET: nginx,
// haproxy, kong, caddy, openapi, prometheus or grafana. What that cannot say is in a
// comment, and a warning on standard error.
//
// rules key says what a rule file has in its allow-list for a secret, which is read
// from standard input: header:NAME, cookie:NAME or form:NAME is its KEY.
//
// explain says what a value of Retry-After, RateLimit or the like means, or a whole
// response header, such as curl -i prints, on standard input; and how to obey it.
//
// store show says what a subject owes in the Redis that REDIS_URL names, as of when
// it was last charged; store reset has it forgotten. A SUBJECT is whose quota it is: an
// address that requests come straight from, or key: and what a key of a rule makes of a
// request, which rules explain says.
//
// The exit code is 0 if all is well, 1 if what was looked at is wrong or means
// nothing, and 2 if the command is.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	s := &session{in: os.Stdin, out: os.Stdout, err: os.Stderr, now: time.Now()}
	os.Exit(s.run(os.Args[1:]))
}

const usage = `heed looks at limits: at the rules of a server, at what it counts, and at what servers say.

	heed rules check FILE...
	heed rules explain [-from ADDRESS] [-H 'NAME: VALUE']... FILE METHOD URL
	heed rules export [-times N] [-redis HOST] [-window DURATION] TARGET FILE
	heed rules key KEY < VALUE
	heed explain [-status CODE] [VALUE] < HEADER
	heed store show|reset [-prefix TEXT] SUBJECT

The exit code is 0 if all is well, 1 if what was looked at is wrong or means nothing,
and 2 if the command is.
`

// The exit codes.
const (
	well  = 0
	wrong = 1 // what was looked at
	help  = 2 // the command
)

// A session is one call of the command.
type session struct {
	in       io.Reader
	out, err io.Writer
	now      time.Time // in the time zone of who reads
}

// commands are called with what follows their names.
var commands = map[string]func(*session, []string) error{
	"rules check":   (*session).check,
	"rules explain": (*session).explainRules,
	"rules export":  (*session).export,
	"rules key":     (*session).key,
	"explain":       (*session).explain,
	"store show":    (*session).show,
	"store reset":   (*session).reset,
}

// errUsage is a command that is wrong. What is, has been said.
var errUsage = errors.New("usage")

// errWrong is that what was looked at is wrong. What is, has been said.
var errWrong = errors.New("wrong")

func (s *session) run(args []string) (code int) {
	for words := min(2, len(args)); words > 0; words-- {
		command := commands[strings.Join(args[:words], " ")]
		if command == nil {
			continue
		}
		switch err := command(s, args[words:]); {
		case err == nil:
			return well
		case errors.Is(err, errUsage):
			return help
		case !errors.Is(err, errWrong):
			fmt.Fprintln(s.err, err)
		}
		return wrong
	}
	fmt.Fprint(s.err, usage)
	return help
}

// flags returns an empty set of flags, to be parsed by parse.
func (s *session) flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet("heed "+name, flag.ContinueOnError)
	f.SetOutput(s.err)
	f.Usage = func() { fmt.Fprint(s.err, usage) }
	return f
}

// parse returns what follows the flags: least to most arguments.
func (s *session) parse(f *flag.FlagSet, args []string, least, most int) ([]string, error) {
	if f.Parse(args) != nil {
		return nil, errUsage
	}
	if f.NArg() < least || f.NArg() > most {
		fmt.Fprint(s.err, usage)
		return nil, errUsage
	}
	return f.Args(), nil
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
