package rulefile

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/quota"
)

// policies reads policies, each in short form or as an object.
func (w *walk) policies(v value) (policies []quota.Policy) {
	for _, item := range w.items(v) {
		var p quota.Policy
		if item.Kind == yaml.ScalarNode {
			p = parsed(w, item, parsePolicy)
		} else {
			object(w, item, policyFields, &p)
		}
		policies = append(policies, p)
	}
	return policies
}

// shortAlgorithms are the names of algorithms in short forms.
var shortAlgorithms = map[string]quota.Algorithm{
	"token": quota.TokenBucket, "leaky": quota.LeakyBucket, "fixed": quota.FixedWindow,
	"sliding": quota.SlidingWindow, "log": quota.SlidingLog,
}

// parsePolicy reads the short form of a policy, the same as the name that quota gives to a
// policy without one:
//
//	60/1m
//	60/1m burst 10
//	60/1m burst 10 leaky
//	1000/month Europe/Berlin
func parsePolicy(text string) (p quota.Policy, err error) {
	words := strings.Fields(text)
	number, window, ok := strings.Cut(words[0], "/")
	if !ok {
		return p, fmt.Errorf(`is %s: write a quota, a slash and a window, as in "60/1m"`, quote(text))
	}
	if p.Quota, err = parseInteger(number); err != nil {
		return p, err
	}
	if p.Calendar, ok = calendars[window]; ok {
		p.Algorithm = quota.FixedWindow
	} else if p.Window, err = parseWindow(window); err != nil {
		return p, err
	}
	for words = words[1:]; len(words) > 0 && err == nil; {
		words, err = parseOption(&p, words)
	}
	return p, err
}

// parseOption reads one option after the window, and returns the remaining words.
func parseOption(p *quota.Policy, words []string) (rest []string, err error) {
	word, rest := words[0], words[1:]
	algorithm, ok := shortAlgorithms[word]
	switch {
	case word == "burst" && len(rest) == 0:
		return nil, errors.New(`"burst" needs a number after it`)
	case word == "burst":
		p.Burst, err = parseInteger(rest[0])
		return rest[1:], err
	case p.Calendar != 0:
		p.Location, err = parseLocation(word)
	case ok:
		p.Algorithm = algorithm
	default:
		options := append(slices.Sorted(maps.Keys(shortAlgorithms)), "burst")
		_, hint := nearest(word, options)
		err = fmt.Errorf("%s is not one of %s%s", quote(word), strings.Join(options, ", "), hint)
	}
	return rest, err
}

func (w *walk) integer(v value) int64          { return parsed(w, v, parseInteger) }
func (w *walk) duration(v value) time.Duration { return parsed(w, v, parseWindow) }

// parseInteger reads a decimal number. It may contain "_" between digits.
func parseInteger(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("is %s: too large", quote(text))
	}
	if err != nil {
		return 0, fmt.Errorf("is %s: must be a whole number", quote(text))
	}
	return n, nil
}

var units = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
	"second": time.Second, "minute": time.Minute, "hour": time.Hour,
}

// parseWindow reads a duration, such as 90s, 1h30m or 7d, or a unit alone, such as minute or m.
func parseWindow(text string) (time.Duration, error) {
	if d, ok := units[text]; ok {
		return d, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 64); err == nil && 0 <= n && n <= math.MaxInt64/int64(24*time.Hour) {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("is %s: must be a duration such as 500ms, 90s, 1m, 1h30m or 7d", quote(text))
	}
	return d, nil
}

// parseLocation reads the name of a time zone. It refuses "Local", so that rules mean the same
// on all machines.
func parseLocation(text string) (*time.Location, error) {
	if text == "Local" {
		return nil, errors.New(`is "Local", which differs between machines: must be a time zone such as Europe/Berlin`)
	}
	l, err := time.LoadLocation(text)
	if err != nil {
		return nil, fmt.Errorf("is %s: must be a time zone such as Europe/Berlin", quote(text))
	}
	return l, nil
}
