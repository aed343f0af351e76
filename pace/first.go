package pace

import (
	"context"
	"math"
	"time"
)

// A first holds back the requests of a key that has answered none yet: nobody knows how
// many it admits.
type first struct {
	answered chan struct{} // closed by the first answer
	sent     int           // how many came before that and are not done
}

// enter returns how long the next request waits for the first answer. The first one goes
// at once, another one after a second, two after two, three after three: an answer that
// takes long holds up nobody for long, and of those that go, few are too many.
func (f *first) enter() time.Duration {
	if f.answered == nil {
		f.answered = make(chan struct{})
	}
	select {
	case <-f.answered:
		return 0
	default:
	}
	rows := (math.Sqrt(8*float64(f.sent)+1) - 1) / 2 // 1 + 2 + … + rows are ahead
	f.sent++
	return time.Duration(math.Ceil(rows)) * minAnswerWait
}

// leave takes back enter: the request was not sent, or not answered.
func (f *first) leave() {
	if f.sent > 0 {
		f.sent--
	}
}

// answer releases those that wait.
func (f *first) answer() {
	select {
	case <-f.answered:
	default:
		close(f.answered)
		f.sent = 0
	}
}

// wait blocks until there is an answer, or for the time that enter returned.
func (f *first) wait(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-f.answered:
	case <-timer.C:
	case <-ctx.Done():
		return ended(ctx)
	}
	return nil
}
