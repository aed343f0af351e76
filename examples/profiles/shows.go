package main

import (
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
)

// A show is what there is to see of a profile.
type show struct {
	name   string
	config func(profiles.Options) (serverside.Config, error)
	limit  string // what the client will meet

	method, path, token string // of the client's requests
	requests            int    // how many it sends

	try []string // commands, with the server's address in place of HOST
}

var shows = map[string]show{
	"forge": {
		name: "Forge", config: sure(profiles.Forge), limit: "60 at once of a token, then 10 a second",
		method: "GET", path: "/api/items", token: "ann", requests: 80,
		try: []string{
			"for i in 1 2 3 4 5 6; do curl -si HOST/login -d user=ann -d password=guess$i | grep -iE '^(http|x-rate|retry)'; done",
			"curl -si HOST/api/items -H 'Authorization: Bearer bob'",
			"curl -si HOST/ -H 'X-Forwarded-For: 198.51.100.7'    # another address has its own",
			"curl -s -o /dev/null -w '%{http_code}\\n' 'HOST/webhooks/a?[1-105]' -X POST -H 'Authorization: Bearer hub' | sort | uniq -c    # 100 a minute of an endpoint",
			"curl -s -o /dev/null -w '%{http_code}\\n' 'HOST/x?[1-110]' -H 'Authorization: Bearer wrong' -H 'X-Forwarded-For: 198.51.100.8' | sort | uniq -c    # 100 wrong tokens",
		},
	},
	"forja": {
		name: "Forja", config: profiles.ForjaFromEnv, limit: "50 in a second of the clock of an address",
		method: "GET", path: "/x", requests: 120,
		try: []string{
			"curl -s -o /dev/null -w '%{http_code}\\n' 'HOST/x?[1-60]' | sort | uniq -c",
			"for i in 1 2 3 4 5 6; do curl -si HOST/x -H 'X-Api-Key: small' | grep -iE '^(http|x-rate|retry|[{])'; done    # 5 a minute of this key",
			"RATE_LIMIT_FAIL_MODE=closed REDIS_URL=redis://127.0.0.1:1 go run ./examples/profiles forja    # and without its store",
		},
	},
	"universal": {
		name: "Universal", config: sure(profiles.Universal), limit: "1,000 a minute of a user of the tier enterprise",
		method: "GET", path: "/api/data", token: "ann.enterprise", requests: 1020,
		try: []string{
			"for i in 1 2 3 4 5 6; do curl -si HOST/api/contact -d text=$i | grep -iE '^(http|x-rate|retry|[{])'; done    # 720 s, not an hour",
			"curl -s -o /dev/null -w '%{http_code}\\n' 'HOST/api/data?[1-11]' -H 'Authorization: Bearer bob.free' | sort | uniq -c",
			"curl -si --path-as-is HOST//API/auth/../auth/Login -d user=ann -d password=x    # one path, however it is written",
		},
	},
	"api": {
		name: "API", config: sure(profiles.API), limit: "30 writes at once of a user, then 5 a second",
		method: "PUT", path: "/api/items", token: "ann", requests: 40,
		try: []string{
			"for i in 1 2 3 4 5 6; do curl -si HOST/login -d user=ann -d password=guess$i | grep -iE '^(http|x-rate|retry|[{])'; done",
			"curl -s -o /dev/null -w '%{http_code}\\n' 'HOST/api/items?[1-105]' -H 'Authorization: Bearer bob' | sort | uniq -c",
			"curl -s -o /dev/null -w '%{http_code}\\n' 'HOST/login?[1-6]' -H 'Authorization: Bearer wrong' -H 'X-Forwarded-For: 198.51.100.7'    # before authentication",
		},
	},
	"patterns": {
		name: "Patterns", config: sure(profiles.Patterns), limit: "100 at once of a user of the tier pro, then 5,000 an hour",
		method: "GET", path: "/x", token: "ann.pro", requests: 103,
		try: []string{
			"curl -s -o /dev/null -w '%{http_code}\\n' 'HOST/search?[1-65]' | sort | uniq -c",
			"for i in $(seq 11); do curl -si HOST/x -H 'Authorization: Bearer bob.free' | grep -iE '^(http|rate|retry|[{])'; done",
			"curl -s -o /dev/null -w '%{http_code}\\n' 'HOST/x?[1-110]' -H 'Authorization: Bearer wrong' -H 'X-Forwarded-For: 198.51.100.7' | sort | uniq -c    # before authentication",
		},
	},
}

// sure is a profile whose function returns no error.
func sure(config func(profiles.Options) serverside.Config) func(profiles.Options) (serverside.Config, error) {
	return func(o profiles.Options) (serverside.Config, error) { return config(o), nil }
}

func (s show) introduce(w io.Writer, at net.Addr) {
	fmt.Fprintf(w, "%s at http://%v, its page at http://%v/limits/\n\n", s.name, at, at)
	fmt.Fprintf(w, "heed's client sends %d × %s %s, eight at a time. The limit is %s.\n\n", s.requests, s.method, s.path, s.limit)
}

func (s show) suggest(w io.Writer, at net.Addr) {
	fmt.Fprint(w, "\nTry the rest with curl:\n\n")
	for _, line := range s.try {
		fmt.Fprintf(w, "\t%s\n", strings.ReplaceAll(line, "HOST", "http://"+at.String()))
	}
	fmt.Fprint(w, "\ndocs/profiles.md has all its rules. Ctrl-C stops it.\n")
}
