package ratelimit

// A Style selects the header fields that Set writes. Combine Styles with |. The zero
// Style is Draft11|XRateLimit.
type Style int

const (
	// Draft11 is RateLimit-Policy and RateLimit of
	// draft-ietf-httpapi-ratelimit-headers-11, with an item for each limit:
	//
	//	RateLimit-Policy: "default";q=100;w=60
	//	RateLimit: "default";r=42;t=17
	Draft11 Style = 1 << iota

	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset of the tightest limit. The
	// reset is a Unix time in seconds, as GitHub and most others send it.
	XRateLimit

	// XRateLimitDelta is the same with a reset in seconds from now, as Envoy and Reddit
	// send it. It has no effect together with XRateLimit.
	XRateLimitDelta

	// Draft07 is RateLimit-Policy and RateLimit in the syntax of draft-07. It has no
	// effect together with Draft11.
	//
	//	RateLimit-Policy: 100;w=60
	//	RateLimit: limit=100, remaining=42, reset=35
	Draft07

	// Draft06 is RateLimit-Limit, -Remaining and -Reset of the tightest limit, as
	// draft-03 to draft-06 have them. The reset is in seconds from now. It has no effect
	// together with Draft11.
	Draft06

	// None writes no fields, whatever it is combined with.
	None
)

// effective returns the styles that s amounts to. No two of them write the same field.
func (s Style) effective() Style {
	switch {
	case s == 0:
		return Draft11 | XRateLimit
	case s&None != 0:
		return 0
	}
	if s&Draft11 != 0 {
		s &^= Draft07 | Draft06
	}
	if s&XRateLimit != 0 {
		s &^= XRateLimitDelta
	}
	return s
}
