package ratelimit

// The values of heed-algorithm: the ways in which a server counts, and so how units come
// back. No field of any draft tells it, though clients that pace themselves would be
// better for it; but policies may have parameters of implementations, which begin with
// their names and which others ignore. Set writes it as a Token:
//
//	RateLimit-Policy: "default";q=100;w=60;heed-algorithm=sliding-log
const (
	TokenBucket   = "token-bucket"   // units come back all the time, Quota in a Window
	LeakyBucket   = "leaky-bucket"   // they do, too; but what is admitted waits, and is answered so much later than it was counted
	FixedWindow   = "fixed-window"   // all come back at the end of the window
	SlidingWindow = "sliding-window" // those of one window come back evenly in the next
	SlidingLog    = "sliding-log"    // each comes back a Window after it was used
)

// An Algorithm is a value of heed-algorithm.
//
// Deprecated: it is a string.
type Algorithm = string

// algorithm returns the algorithm that a Token names, or "". Anything else is a
// comment, as what is another implementation's is.
func (b bareItem) algorithm() string {
	if b.kind != aToken {
		return ""
	}
	return algorithmOf(b.text)
}

// algorithmOf returns s if it is one of the above, or "".
func algorithmOf(s string) string {
	switch s {
	case TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog:
		return s
	}
	return ""
}

// appendAlgorithm appends the algorithm as a parameter of a policy, if it is known.
func appendAlgorithm(b []byte, algorithm string) []byte {
	if algorithm = algorithmOf(algorithm); algorithm == "" {
		return b
	}
	return append(append(b, ";heed-algorithm="...), algorithm...)
}
