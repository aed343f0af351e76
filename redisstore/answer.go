package redisstore

import (
	"fmt"
	"time"

	"github.com/heedhttp/heed/quota"
)

// answered is what the script take found.
type answered struct {
	now     int64 // µs since the Unix epoch
	corrupt int64
	allowed bool
	numbers []numbers // of each charge
}

// numbers are those of one charge.
type numbers struct {
	taken bool
	time  int64 // of the bucket
	found int64 // its level before the call
	met   int64 // and before the charge
}

// parse reads a reply to n charges. A server that says anything else is none
// that ran our script.
func parse(reply any, n int) (a answered, err error) {
	list, ok := reply.([]any)
	if !ok || len(list) != 3+4*n {
		return a, unexpected(reply)
	}
	integers := make([]int64, len(list))
	for i := range list {
		number, ok := list[i].(int64)
		if !ok || number < 0 || number >= 1<<53 {
			return a, unexpected(reply)
		}
		integers[i] = number
	}
	a = answered{now: integers[0], corrupt: integers[1], allowed: integers[2] == 1}
	a.numbers = make([]numbers, 0, n)
	for rest := integers[3:]; len(rest) > 0; rest = rest[4:] {
		a.numbers = append(a.numbers, numbers{rest[0] == 1, rest[1], rest[2], rest[3]})
	}
	return a, nil
}

func unexpected(reply any) error {
	return fmt.Errorf("redisstore: unexpected reply %.60q", fmt.Sprint(reply))
}

// decision is that on charges[i].
func (a *answered) decision(charges []quota.Charge, i int) quota.Decision {
	n, l := a.numbers[i], charges[i].Limit
	met := quota.Bucket{Time: n.time, Level: n.met, Unit: l.Unit()}
	left := quota.Bucket{Time: n.time, Level: n.found, Unit: l.Unit()}
	if n.taken {
		left = l.Charge(met, charges[i].Units())
	}
	d := quota.Judge(charges, i, met, left, a.now)
	d.At = time.UnixMicro(a.now)
	return d
}

// wait is the longest of those of charges that are no DryRun.
func (a *answered) wait(charges []quota.Charge) (longest time.Duration) {
	for i, n := range a.numbers {
		if c := &charges[i]; !c.DryRun {
			met := quota.Bucket{Time: n.time, Level: n.met, Unit: c.Limit.Unit()}
			longest = max(longest, c.Limit.Wait(met, c.Units(), a.now))
		}
	}
	return longest
}
