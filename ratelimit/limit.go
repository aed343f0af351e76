package ratelimit

import "time"

// A Limit is the state of one policy at one moment, as the header fields tell
// it. Set writes negative numbers as 0, and those of more than 15 digits as
// 999999999999999, the largest Integer of RFC 9651.
type Limit struct {
	Name      string        // the policy's name; if empty, "default"
	Quota     int64         // units per window
	Window    time.Duration // 0 if unknown
	Remaining int64         // units left, at least 0
	Next      time.Duration // from At until one more unit than Remaining fits; 0 if the quota is whole
	Reset     time.Duration // from At until the quota is whole again
	At        time.Time     // the moment of the decision
}
