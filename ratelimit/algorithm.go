package ratelimit

import "strconv"

// An Algorithm is the way in which a server counts, and so how units come back. No
// field of any draft tells it, though clients that pace themselves would be better
// for it; but policies may have parameters of implementations, which begin with
// their names and which others ignore. Set writes it as heed-algorithm, a Token:
//
//	RateLimit-Policy: "default";q=100;w=60;heed-algorithm=sliding-log
type Algorithm int

const (
	// TokenBucket: units come back all the time, Quota in a Window.
	TokenBucket Algorithm = 1 + iota
	// LeakyBucket: they do, too; but what is admitted waits for its turn, and is
	// answered so much later than it was counted.
	LeakyBucket
	// FixedWindow: all come back at the end of the window.
	FixedWindow
	// SlidingWindow: those of one window come back evenly in the next.
	SlidingWindow
	// SlidingLog: each comes back a Window after it was used.
	SlidingLog
)

var algorithms = [...]string{
	TokenBucket: "token-bucket", LeakyBucket: "leaky-bucket",
	FixedWindow: "fixed-window", SlidingWindow: "sliding-window", SlidingLog: "sliding-log",
}

// known reports whether a is one of the above.
func (a Algorithm) known() bool { return 0 < a && int(a) < len(algorithms) }

// String is the value of heed-algorithm.
func (a Algorithm) String() string {
	if !a.known() {
		return "Algorithm(" + strconv.Itoa(int(a)) + ")"
	}
	return algorithms[a]
}

// algorithm returns the Algorithm that a Token names, or 0. Anything else is a
// comment, as what is another implementation's is.
func (b bareItem) algorithm() Algorithm {
	if b.kind != aToken {
		return 0
	}
	for a := TokenBucket; a.known(); a++ {
		if algorithms[a] == b.text {
			return a
		}
	}
	return 0
}

// appendAlgorithm appends a as a parameter of a policy, if it is known.
func appendAlgorithm(b []byte, a Algorithm) []byte {
	if !a.known() {
		return b
	}
	return append(append(b, ";heed-algorithm="...), algorithms[a]...)
}
