package quota

import "fmt"

// An Algorithm is a way of counting. The zero Algorithm is TokenBucket.
type Algorithm int

// String returns the name of a's constant.
func (a Algorithm) String() string {
	names := [...]string{"TokenBucket", "LeakyBucket", "FixedWindow", "SlidingWindow", "SlidingLog"}
	if a < 0 || int(a) >= len(names) {
		return fmt.Sprintf("Algorithm(%d)", int(a))
	}
	return names[a]
}

// suffix ends the default name of a policy. It is short, because each response contains
// it.
func (a Algorithm) suffix() string {
	switch a {
	case LeakyBucket:
		return " leaky"
	case FixedWindow:
		return " fixed"
	case SlidingWindow:
		return " sliding"
	case SlidingLog:
		return " log"
	default:
		return ""
	}
}

// drains reports whether a uses a bucket.
func (a Algorithm) drains() bool { return a == TokenBucket || a == LeakyBucket }
