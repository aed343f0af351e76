package ratelimit

// A Style says which header fields Set writes. Styles may be combined with |.
// The zero Style is Draft11|XRateLimit.
type Style int

const (
	// Draft11 is RateLimit-Policy and RateLimit of
	// draft-ietf-httpapi-ratelimit-headers-11, an item for each limit:
	//
	//	RateLimit-Policy: "default";q=100;w=60
	//	RateLimit: "default";r=42;t=17
	Draft11 Style = 1 << iota

	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset of the tightest
	// limit, the last in Unix seconds, as GitHub and most others send it.
	XRateLimit

	// XRateLimitDelta is the same three, the last in seconds from now, as Envoy
	// and Reddit send it. It yields to XRateLimit.
	XRateLimitDelta

	// Draft07 is RateLimit-Policy and RateLimit of draft-07, which give the
	// same names another syntax: it yields to Draft11.
	//
	//	RateLimit-Policy: 100;w=60
	//	RateLimit: limit=100, remaining=42, reset=35
	Draft07

	// Draft06 is RateLimit-Limit, -Remaining and -Reset of the tightest limit,
	// the last in seconds from now: what draft-03 to draft-06 have in common.
	// It yields to Draft11.
	Draft06

	// None is no fields, whatever it is combined with.
	None
)

// effective returns the styles that s comes down to: no two of them write the
// same field.
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
