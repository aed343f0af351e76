package cool_test

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/cool"
)

const (
	ms  = time.Millisecond
	sec = time.Second

	dawn = time.Hour // when each test begins: something may have happened before
)

// A world is virtual time, and what is planned in it. There are no goroutines: a waiter asks when its time has
// come or when it was woken, a little late if the world is slow.
type world struct {
	*rand.Rand
	t     *testing.T
	now   time.Duration
	slow  time.Duration // how late timers and wake-ups are at most
	plans plans
	count int
	steps int // at the same time
	ask   func(*caller)
	check func()    // after each step
	line  []*caller // those that wait
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), t: t, now: dawn}
	if seed%2 == 0 {
		w.slow = 3 * ms
	}
	return w
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.Int64N(int64(d) + 1)) }
func (w *world) oneIn(n int) bool                   { return w.IntN(n) == 0 }

// at plans what happens at a time.
func (w *world) at(at time.Duration, do func()) {
	w.count++
	heap.Push(&w.plans, plan{at, w.count, do})
}

// run does what is planned. After each step, those that were woken get their time, and now and then one that
// was not woken asks nevertheless: it could go only if it had been told.
func (w *world) run() {
	for len(w.plans) > 0 && !w.t.Failed() {
		p := heap.Pop(&w.plans).(plan)
		if w.steps++; p.at > w.now {
			w.steps = 0
		}
		if w.now = p.at; w.steps > 10_000 {
			w.errorf("a hot loop")
		}
		p.do()
		w.wake()
		if len(w.line) > 0 && w.oneIn(3) {
			c := w.line[w.IntN(len(w.line))]
			c.early = w.now < c.due
			w.ask(c)
			c.early = false
			w.wake()
		}
		if w.check != nil {
			w.check()
		}
	}
	if n := len(w.line); n > 0 && !w.t.Failed() {
		w.t.Errorf("%d waiters were forgotten", n)
	}
}

func (w *world) wake() {
	for _, c := range w.line {
		if len(c.Wake) > 0 {
			<-c.Wake
			w.wait(c, w.now)
		}
	}
}

// wait has c ask at a time.
func (w *world) wait(c *caller, due time.Duration) {
	if c.due <= due && c.due >= w.now && c.planned {
		return
	}
	c.due, c.planned = due, true
	w.at(due+w.upTo(w.slow), func() {
		if c.waits && c.due == due {
			c.planned = false
			w.ask(c)
		}
	})
}

func (w *world) join(c *caller) {
	c.waits, c.planned, c.due = true, false, 0
	w.line = append(w.line, c)
	w.ask(c)
}

func (w *world) leave(c *caller) {
	c.waits = false
	for i := range w.line {
		if w.line[i] == c {
			w.line = append(w.line[:i], w.line[i+1:]...)
			return
		}
	}
}

func (w *world) errorf(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("at %v: "+format, append([]any{w.now - dawn}, args...)...)
}

// A caller makes one call.
type caller struct {
	cool.Waiter
	number  int
	poor    bool // it cannot pay for a retry
	owes    bool // to be a probe costs it a retry
	broke   bool // which it could not pay
	waits   bool
	early   bool          // it asks although it was not told to
	planned bool          // it will ask at due
	due     time.Duration // when it must ask
	ended   bool
}

// A plan is something that happens at a time.
type plan struct {
	at     time.Duration
	number int
	do     func()
}

type plans []plan

func (p plans) Len() int { return len(p) }
func (p plans) Less(i, j int) bool {
	return p[i].at < p[j].at || p[i].at == p[j].at && p[i].number < p[j].number
}
func (p plans) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *plans) Push(x any)   { *p = append(*p, x.(plan)) }
func (p *plans) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	*p = (*p)[:last]
	return x
}
