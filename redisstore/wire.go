package redisstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/heedhttp/heed/quota"
)

const (
	// exact is the largest integer up to which a Lua number holds every integer exactly.
	exact = 1<<53 - 1

	day = 86_400_000_000 // µs

	entryDigits = 21 // of an entry of a log in Redis: 16 of a time, 5 of units
)

// An encoder builds the KEYS and ARGV of store.lua, whose first comment describes them.
type encoder struct {
	prefix string
	now    int64 // the expected time of Redis, in µs since the Unix epoch
	keys   []string
	keyAt  map[string]int
	limits []limitOf
	text   []byte // the limits, then the ops
	ends   []int  // of each of them in text
}

// A limitOf is a limit as the script needs it: its name says whether it counts dry runs.
type limitOf struct {
	*quota.Limit
	dryRun bool
}

var encoders = sync.Pool{New: func() any { return &encoder{keyAt: make(map[string]int)} }}

// encode returns the KEYS and ARGV for ops.
func encode(prefix string, ops []*op, now int64) (keys []string, args []any) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.prefix, e.now = prefix, now
	e.keys, e.limits, e.text, e.ends = nil, e.limits[:0], e.text[:0], e.ends[:0]
	clear(e.keyAt)
	for _, o := range ops {
		e.addOp(o)
	}
	first := len(e.ends)
	for i := range e.limits {
		e.addLimit(&e.limits[i])
	}
	all := string(e.text)
	args = make([]any, 1, 1+len(e.ends))
	args[0] = len(e.limits)
	for i := range e.ends { // the limits first
		at := (i + first) % len(e.ends)
		start := 0
		if at > 0 {
			start = e.ends[at-1]
		}
		args = append(args, all[start:e.ends[at]])
	}
	clear(e.limits)
	return e.keys, args
}

// addOp adds "VERB[WITHIN] " and for each charge "KEY LIMIT UNITS[a][i] [AT ][SET LENGTH ID ]".
func (e *encoder) addOp(o *op) {
	e.text = append(e.text, byte(o.verb))
	if o.verb == reserve || o.verb == query {
		e.text = strconv.AppendInt(e.text, max(0, o.within).Microseconds(), 10)
	}
	e.text = append(e.text, ' ')
	for i := range o.charges {
		c := &o.charges[i]
		n, at := c.Units(), int64(0)
		if o.verb.settles() {
			n, at = c.N, chargedAt(c)
		}
		e.number(int64(e.key(e.prefix + c.Key)))
		e.number(int64(e.limit(limitOf{c.Limit, c.DryRun})))
		e.text = strconv.AppendInt(e.text, min(max(n, -exact), exact+1), 10) // exact+1 can never fit
		if at != 0 {
			e.text = append(e.text, 'a')
		}
		if c.ID != "" {
			e.text = append(e.text, 'i')
		}
		e.text = append(e.text, ' ')
		if at != 0 {
			e.number(min(at, exact))
		}
		if c.ID != "" {
			e.number(int64(e.key(idSetOf(e.prefix, c.Key))))
			e.number(int64(len(c.ID)))
			e.text = append(append(e.text, c.ID...), ' ')
		}
	}
	e.ends = append(e.ends, len(e.text))
}

func (e *encoder) number(n int64) { e.text = append(strconv.AppendInt(e.text, n, 10), ' ') }

// key returns the index of name in KEYS, counted from 1, after adding it if necessary.
func (e *encoder) key(name string) int {
	at, known := e.keyAt[name]
	if !known {
		e.keys = append(e.keys, name)
		at = len(e.keys)
		e.keyAt[name] = at
	}
	return at
}

// limit returns the index of l in the limits, counted from 1, after adding it if necessary.
func (e *encoder) limit(l limitOf) int {
	at := slices.Index(e.limits, l)
	if at < 0 {
		at = len(e.limits)
		e.limits = append(e.limits, l)
	}
	return at + 1
}

// addLimit adds "NAME\tSHAPE ALGORITHM CAPACITY DEBT WINDOW[ STARTS]".
func (e *encoder) addLimit(l *limitOf) {
	p := l.Policy()
	e.text = append(append(appendName(e.text, l.Name(), l.dryRun), '\t'), l.Shape()...)
	for _, n := range []int64{int64(p.Algorithm), l.Capacity(), l.MaxDebt(), max(1, p.Window.Microseconds())} {
		e.text = strconv.AppendInt(append(e.text, ' '), n, 10)
	}
	if p.Calendar != 0 {
		near := l.Starts(e.now)
		far := l.Starts(near[3])
		for _, start := range []int64{near[0], near[1], near[2], near[3], far[2], far[3]} {
			e.text = strconv.AppendInt(append(e.text, ' '), start, 10)
		}
	}
	e.ends = append(e.ends, len(e.text))
}

// appendName appends the name of a limit as Redis has it.
func appendName(text []byte, name string, dryRun bool) []byte {
	if dryRun {
		text = append(text, '\t')
	}
	return append(text, name...)
}

// An otherTime is an error: Redis' clock is so far off that the windows of a Calendar were encoded
// for another time. Nothing was done. Its value is Redis' time, for which to encode the ops again.
type otherTime int64

func (t otherTime) Error() string {
	return fmt.Sprintf("redisstore: the clock of Redis differs too much: it says %d µs since the Unix epoch", int64(t))
}

// decode sets the answers of ops from the reply of store.lua. It returns how many values in Redis were
// invalid, and how many counts were forgotten.
func decode(ops []*op, reply any) (corrupt, forgotten int64, err error) {
	text, ok := reply.(string)
	r := textReader{rest: text, failed: !ok}
	now := r.number()
	if r.rest == "" && !r.failed {
		return 0, 0, otherTime(now)
	}
	corrupt, forgotten = r.number(), r.number()
	for _, o := range ops {
		o.now, o.allowed = now, true
		for i := range o.charges {
			o.found = append(o.found[:i], r.found(o.charges[i].Limit))
			o.allowed = o.allowed && (o.found[i].fits || o.charges[i].DryRun)
		}
	}
	if r.failed || r.rest != "" {
		return 0, 0, fmt.Errorf("%w %.60q", errReply, fmt.Sprint(reply))
	}
	return corrupt, forgotten, nil
}

// A textReader reads the fields of a text, each with a space after it.
type textReader struct {
	rest   string
	failed bool // a field was missing or not a number
}

func (r *textReader) field() string {
	field, rest, ok := strings.Cut(r.rest, " ")
	r.rest, r.failed = rest, r.failed || !ok
	return field
}

// number reads a number from 0 to 2^53 - 1.
func (r *textReader) number() int64 {
	n, err := strconv.ParseUint(r.field(), 10, 53)
	r.failed = r.failed || err != nil
	return int64(n)
}

// found reads the answer to a charge of l.
func (r *textReader) found(l *quota.Limit) (f found) {
	outcome := r.number()
	f.fits, f.repeated, f.adopted = outcome%4 > 0, outcome%4 == 2, outcome >= 8
	f.bucket = quota.Bucket{Time: r.number(), Level: r.number(), Unit: l.Unit()}
	if outcome&4 != 0 {
		f.bucket.Prev, f.bucket.Ahead = r.number(), r.number()
		f.bucket.Log = r.log(r.field())
	}
	return f
}

// log returns the entries in digits as quota has them: 7 bytes of a time and 2 of units.
func (r *textReader) log(digits string) string {
	if digits == "" {
		return ""
	}
	log := make([]byte, 0, len(digits)/entryDigits*9)
	for ; len(digits) >= entryDigits; digits = digits[entryDigits:] {
		time, err := strconv.ParseUint(digits[:16], 10, 64)
		units, err2 := strconv.ParseUint(digits[16:entryDigits], 10, 64)
		r.failed = r.failed || err != nil || err2 != nil
		time, units = min(time, exact), min(units, 1<<16-1) // more only if the value was tampered with
		log = append(log, byte(time>>48), byte(time>>40), byte(time>>32), byte(time>>24), byte(time>>16),
			byte(time>>8), byte(time), byte(units>>8), byte(units))
	}
	r.failed = r.failed || digits != ""
	return string(log)
}

// decodeValue returns the states in the value of a Key, and how many of its lines are invalid.
func decodeValue(value string) (states []quota.State, corrupt int64) {
	for value != "" {
		var line string
		line, value, _ = strings.Cut(value, "\n")
		if s, ok := decodeLine(line); ok {
			states = append(states, s)
		} else {
			corrupt++
		}
	}
	return states, corrupt
}

// decodeLine returns the state in a line "NAME\tSHAPE FULL TIME LEVEL[ PREV AHEAD LOG]".
func decodeLine(line string) (s quota.State, ok bool) {
	line, s.DryRun = strings.CutPrefix(line, "\t")
	s.Name, line, ok = strings.Cut(line, "\t")
	r := textReader{rest: line + " ", failed: !ok}
	s.Shape = r.field()
	r.number() // when it is full
	s.Bucket = quota.Bucket{Time: r.number(), Level: r.number(), Unit: unitOf(s.Shape)}
	if r.rest != "" {
		s.Bucket.Prev, s.Bucket.Ahead = r.number(), r.number()
		s.Bucket.Log = r.log(r.field())
	}
	if strings.HasPrefix(s.Shape, "c") {
		s.Bucket.Prev = 0 // there it is the end of a Calendar's window
	}
	return s, !r.failed && r.rest == "" && s.Bucket.Unit > 0 && isWritten(&s.Bucket)
}

// isWritten reports whether a Store can have written b.
func isWritten(b *quota.Bucket) bool {
	if b.Log == "" {
		return b.Ahead <= day
	}
	newest := b.Log[len(b.Log)-9:]
	var time int64
	for _, c := range []byte(newest[:7]) {
		time = time<<8 | int64(c)
	}
	return b.Ahead <= day && b.Level < 1<<16 && time == b.Time
}

// unitOf returns the parts of a unit in a shape, or 0 if that is invalid: "b1,1,360000000" is a bucket's with its
// tick, rate and unit.
func unitOf(shape string) (unit int64) {
	switch {
	case strings.IndexAny(shape, "fcsl") == 0:
		return 1
	case !strings.HasPrefix(shape, "b"):
		return 0
	}
	for number := range strings.SplitSeq(shape[1:], ",") {
		n, err := strconv.ParseUint(number, 10, 53)
		if unit = int64(n); err != nil || n == 0 {
			return 0
		}
	}
	return unit
}
