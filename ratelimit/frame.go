package ratelimit

import "net/http"

// A frame is what never changes from one Set to the next.
type frame struct {
	style    Style  // the effective one
	lines    int    // how many style writes
	policies string // what RateLimit-Policy says; may be empty in Draft07
	items    []item // of the policies; none if there is to be one Set only
}

func frameOf(style Style, policies []Limit) frame {
	style = style.effective()
	f := frame{style: style, lines: style.lines()}
	var space [128]byte
	switch {
	case style&Draft11 != 0:
		f.policies = string(appendPolicies11(space[:0], policies))
	case style&Draft07 != 0:
		f.policies = string(appendPolicies07(space[:0], policies))
	}
	return f
}

func (f *frame) set(h http.Header, limits []Limit) {
	if len(limits) == 0 || f.style == 0 {
		return
	}
	var space [128]byte // enough for one or two limits; more go to the heap
	var x text
	b := x.render(space[:0], f, limits)
	f.write(h, &x, string(b))
}

// write puts the lines into h. Their values share one array, but each has a place
// of its own and a capacity of one, so that whoever changes one or appends to it
// leaves the others alone.
func (f *frame) write(h http.Header, x *text, s string) {
	room := make([]string, f.lines)
	if f.style&(Draft11|Draft07) != 0 {
		room = f.writeState(h, room, x.state.of(s))
	}
	limit, remaining := x.quota.of(s), x.remaining.of(s)
	if x.item != nil {
		limit = x.item.limit
	}
	if f.style&Draft06 != 0 {
		room = draft06.set(h, room, limit, remaining, x.deltaReset.of(s))
	}
	if f.style&XRateLimit != 0 {
		xRateLimit.set(h, room, limit, remaining, x.unixReset.of(s))
	}
	if f.style&XRateLimitDelta != 0 {
		xRateLimit.set(h, room, limit, remaining, x.deltaReset.of(s))
	}
}

// writeState puts RateLimit-Policy and RateLimit into h. It takes two places of
// room for their values, and returns the rest.
func (f *frame) writeState(h http.Header, room []string, state string) []string {
	room[0], room[1] = f.policies, state
	policies, states := room[0:1:1], room[1:2:2]
	if len(h) > 0 { // it is empty nearly always, and to look takes as long as to write
		policies = following(h["Ratelimit-Policy"], policies)
		if f.style&Draft11 != 0 { // in Draft07 it is a Dictionary, not a List
			states = following(h["Ratelimit"], states)
		}
	}
	if f.policies != "" {
		h["Ratelimit-Policy"] = policies
	}
	h["Ratelimit"] = states
	return room[2:]
}

// following returns line, which is one, after those that there are.
func following(lines, line []string) []string {
	if len(lines) == 0 {
		return line
	}
	return append(lines, line[0])
}
