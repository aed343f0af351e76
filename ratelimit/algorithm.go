package ratelimit

// The values of heed-algorithm. They name the way a server counts, and so how units come
// back. No draft has a field for this, but a policy may carry parameters of an
// implementation, which other clients ignore. Set writes it as a Token:
//
//	RateLimit-Policy: "default";q=100;w=60;heed-algorithm=sliding-log
const (
	TokenBucket   = "token-bucket"   // units come back continuously, Quota in a Window
	LeakyBucket   = "leaky-bucket"   // the same, but the server delays admitted requests
	FixedWindow   = "fixed-window"   // all units come back at the end of the window
	SlidingWindow = "sliding-window" // the units of one window come back evenly during the next
	SlidingLog    = "sliding-log"    // each unit comes back a Window after its use
)

// An Algorithm is a value of heed-algorithm.
//
// Deprecated: use string.
type Algorithm = string

// algorithm returns the algorithm named by a Token, or "" if it is unknown.
func (b bareItem) algorithm() string {
	if b.kind != aToken {
		return ""
	}
	return algorithmOf(b.text)
}

// algorithmOf returns s if it is a known algorithm, or "".
func algorithmOf(s string) string {
	switch s {
	case TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog:
		return s
	}
	return ""
}

// appendAlgorithm appends the heed-algorithm parameter of a policy, if algorithm is
// known.
func appendAlgorithm(b []byte, algorithm string) []byte {
	if algorithm = algorithmOf(algorithm); algorithm == "" {
		return b
	}
	return append(append(b, ";heed-algorithm="...), algorithm...)
}
