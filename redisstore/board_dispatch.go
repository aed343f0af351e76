package redisstore

import (
	_ "embed"
	"errors"
	"time"
)

//go:embed lua/board.lua
var boardSource string

var boardScript = newScript(boardSource)

// A dispatch is what a process tells Redis in one call, and asks.
type dispatch struct {
	begun, upto  int64 // what it has heard
	instructions []instruction
	claims       []claim
	probes       []string      // the keys of which one is asked for
	apart        time.Duration // from one probe to the next
}

type (
	// An instruction is what Redis is told of one key.
	instruction struct {
		verb                 string
		key                  string
		until, every, posted time.Duration
		known, round         int64 // the last replacement, and the round
		version              uint64
	}
	claim struct {
		key   string
		round int64
	}
)

// The script has a function for each.
const (
	toPost    = "post"
	toReplace = "replace"
	toRestore = "restore"
)

// anyReplacement is no less than the number of any.
const anyReplacement = 1 << 53

// maxDispatch bounds the time that one call takes of Redis.
const maxDispatch = 256

func (d *dispatch) full() bool { return len(d.instructions)+len(d.claims)+len(d.probes) >= maxDispatch }

// args are those of the script, at now.
func (d *dispatch) args(now time.Duration) []any {
	args := []any{d.begun, d.upto}
	for i := range d.instructions {
		args = append(args, d.instructions[i].args(now)...)
	}
	for _, c := range d.claims {
		args = append(args, "claim", c.key, c.round)
	}
	for _, key := range d.probes {
		args = append(args, "probe", key, d.apart.Microseconds())
	}
	return args
}

func (o *instruction) args(now time.Duration) []any {
	args := []any{o.verb, o.key, roundedUp(max(0, o.until-now)), roundedUp(o.every)}
	switch o.verb {
	case toReplace:
		return append(args, o.known)
	case toRestore:
		return append(args, max(0, now-o.posted).Microseconds(), o.known, o.round)
	}
	return args
}

// roundedUp is d in µs.
func roundedUp(d time.Duration) int64 { return (d + time.Microsecond - 1).Microseconds() }

// news is what Redis replies.
type news struct {
	begun, last int64   // when it began to number changes, and the number of the last
	upto        int64   // that of the last in changes, if there are more
	refusal     string  // why nobody could be notified
	seats       []int64 // for each claim the seat, or none
	granted     []bool  // for each probe that was asked for
	changes     []change
}

// A change is a cool-down that was prolonged, replaced or probed, or in which a seat was
// given.
type change struct {
	key          string
	ends         int64 // by Redis' clock
	left, every  time.Duration
	round, seats int64
	ago          time.Duration // that it was posted, or last probed
	replaced     int64         // the number of the change that replaced it last, or 0
}

// maxSeats is how many the script gives in one round.
const maxSeats = 1 << 12

func (c *change) possible() bool {
	return c.left <= longestCoolDown && 0 <= c.every && c.every <= longestCoolDown &&
		c.ends > 0 && c.round > 0 && 0 <= c.seats && c.seats <= maxSeats && 0 <= c.ago && 0 <= c.replaced
}

// over reports that nobody can get a seat any more.
func (c *change) over() bool { return c.left+c.every*time.Duration(c.seats) <= 0 }

var errNoNews = errors.New("redisstore: the reply is not one of the Board's script")

// parseNews reads the reply to d.
func parseNews(reply any, d *dispatch) (news, error) {
	var r replyReader
	r.rest, _ = reply.([]any)
	n := news{begun: r.number(), last: r.number(), upto: r.number(), refusal: r.text()}
	for range d.claims {
		seat := r.number()
		r.failed = r.failed || seat < none || seat >= maxSeats
		n.seats = append(n.seats, seat)
	}
	for range d.probes {
		n.granted = append(n.granted, r.number() == 1)
	}
	for len(r.rest) > 0 && !r.failed {
		c := change{key: r.text(), ends: r.number(), left: r.span(), every: r.span(), round: r.number(), seats: r.number(),
			ago: r.span(), replaced: r.number()}
		r.failed = r.failed || !c.possible()
		n.changes = append(n.changes, c)
	}
	if r.failed {
		return news{}, errNoNews
	}
	return n, nil
}

// A replyReader takes a list apart.
type replyReader struct {
	rest   []any
	failed bool // something was missing, or of another type
}

func (r *replyReader) number() int64 { return next[int64](r) }
func (r *replyReader) text() string  { return next[string](r) }

// span is a number of µs, or more than is possible.
func (r *replyReader) span() time.Duration {
	const most = int64(2 * longestCoolDown / time.Microsecond)
	return time.Duration(min(max(r.number(), -most), most)) * time.Microsecond
}

func next[T any](r *replyReader) (v T) {
	if len(r.rest) == 0 {
		r.failed = true
		return v
	}
	v, ok := r.rest[0].(T)
	r.rest, r.failed = r.rest[1:], r.failed || !ok
	return v
}
