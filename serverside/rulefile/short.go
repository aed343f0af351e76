package rulefile

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
)

// The names of quota's constants. The short ones end a policy's short form.
var (
	algorithmNames = []string{"token-bucket", "leaky-bucket", "fixed-window", "sliding-window", "sliding-log"}
	algorithmShort = []string{"token", "leaky", "fixed", "sliding", "log"}
	algorithms     = []quota.Algorithm{quota.TokenBucket, quota.LeakyBucket, quota.FixedWindow, quota.SlidingWindow, quota.SlidingLog}

	calendarNames = []string{"day", "week", "month"}
	calendars     = []quota.Calendar{quota.Day, quota.Week, quota.Month}
)

// parsePolicy reads the short form of a policy, which is the name that quota gives
// a policy without one:
//
//	60/1m
//	60/1m burst 10
//	60/1m burst 10 leaky
//	1000/month Europe/Berlin
func parsePolicy(text string) (p quota.Policy, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return p, errors.New(`is empty: write as in "60/1m"`)
	}
	number, period, ok := strings.Cut(words[0], "/")
	if !ok {
		return p, fmt.Errorf(`is %s: write a quota, a slash and a window, as in "60/1m"`, quote(text))
	}
	if p.Quota, err = parseInteger(number); err != nil {
		return p, err
	}
	if i := slices.Index(calendarNames, period); i >= 0 {
		p.Calendar, p.Algorithm = calendars[i], quota.FixedWindow
	} else if p.Window, err = parseWindow(period); err != nil {
		return p, err
	}
	return p, readWords(&p, words[1:])
}

// readWords reads what follows the numbers.
func readWords(p *quota.Policy, words []string) (err error) {
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		algorithm := slices.Index(algorithmShort, word)
		switch {
		case word == "burst" && len(words) == 0:
			return errors.New(`"burst" needs a number after it`)
		case word == "burst":
			if p.Burst, err = parseInteger(words[0]); err != nil {
				return err
			}
			words = words[1:]
		case p.Calendar != 0:
			if p.Location, err = parseLocation(word); err != nil {
				return err
			}
		case algorithm >= 0:
			p.Algorithm = algorithms[algorithm]
		default:
			return fmt.Errorf("%s is neither \"burst\" nor one of %s%s", quote(word),
				strings.Join(algorithmShort, ", "), didYouMean(word, append(algorithmShort, "burst")))
		}
	}
	return nil
}

// parseInteger reads a decimal number, in which "_" may part groups of digits.
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

// parseWindow reads a duration: 90s, 1h30m, 7d, or a unit by itself, minute or m.
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
		return 0, fmt.Errorf("%s is no duration: write as in 500ms, 90s, 1m, 1h30m or 7d", quote(text))
	}
	return d, nil
}

// parseLocation reads the name of a time zone. That of the machine is none: rules
// mean the same on all machines.
func parseLocation(text string) (*time.Location, error) {
	if text == "Local" {
		return nil, errors.New(`"Local" is another one on other machines: name it, as in Europe/Berlin`)
	}
	l, err := time.LoadLocation(text)
	if err != nil {
		return nil, fmt.Errorf("there is no time zone %s: write as in Europe/Berlin", quote(text))
	}
	return l, nil
}
