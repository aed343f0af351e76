package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

//go:embed lua/budget.lua
var budgetSource string

var budgetScript = newScript(budgetSource)

// An account is one budget, as one process sees it. What was earned goes to
// Redis, or, while that is lost, to share.
type account struct {
	budget *Budget
	key    string

	_        [64]byte     // every request writes earned, and reads what is above
	earned   atomic.Int64 // units to be sent
	_        [64]byte
	refunded atomic.Int64 // units of retries that were not sent, to be sent
	armed    atomic.Bool  // timer runs, or its function does
	timer    *time.Timer

	mu     sync.Mutex // guards what follows
	lost   bool       // the last call failed
	share  share      // what may be spent while lost
	heard  int64      // the tenth, on Redis' clock, in which this process was counted
	usedAt int64
}

func newAccount(b *Budget, key string) *account {
	a := &account{budget: b, key: key, heard: -1, usedAt: now()}
	a.timer = time.AfterFunc(time.Hour, a.tick)
	a.timer.Stop()
	return a
}

// deposit is on the path of every request.
func (a *account) deposit(units int64) {
	if a.earned.Add(units) == units {
		a.arm()
	}
}

func (a *account) refund() {
	a.refunded.Add(retry)
	a.arm()
}

func (a *account) withdraw(ctx context.Context, now int64) bool {
	if !a.isLost() {
		if answer, err := a.call(ctx, retry, now); err == nil {
			return answer.granted
		}
	}
	return a.withdrawAlone(now)
}

// withdrawAlone decides without Redis, and has it looked for.
func (a *account) withdrawAlone(now int64) bool {
	a.arm()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.usedAt = now
	a.keepLocked(now)
	return a.share.withdraw(now, a.index(now))
}

func (a *account) arm() {
	if a.armed.CompareAndSwap(false, true) {
		a.timer.Reset(a.budget.interval())
	}
}

// tick sends what is to be sent, or asks whether Redis is back.
func (a *account) tick() {
	if now := now(); a.pending(now) {
		a.call(context.Background(), 0, now)
	}
	a.armed.Store(false)
	if a.pending(now()) { // since, or still
		a.arm()
	}
}

// pending reports whether there is a reason to call Redis. If it is lost, there
// is one for as long as anything is known that it does not know.
func (a *account) pending(now int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.earned.Load() > 0 || a.refunded.Load() > 0 || a.share.owed > 0 && !a.lost ||
		a.lost && !a.unusedLocked(now)
}

// idle reports that a is worth as much as a new account.
func (a *account) idle(now int64) bool {
	if a.armed.Load() || a.pending(now) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unusedLocked(now)
}

func (a *account) unusedLocked(now int64) bool { return now-a.usedAt > 10*a.budget.tenth() }

func (a *account) isLost() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lost
}

func (a *account) index(now int64) int64 { return now / a.budget.tenth() }

// call asks Redis to pay price, and sends what is to be sent.
func (a *account) call(ctx context.Context, price, now int64) (answer, error) {
	o := a.order(price, now)
	reply, err := a.budget.send(ctx, a.key, o)
	if err != nil {
		a.lose(o, err)
		return answer{}, err
	}
	a.learn(reply, now)
	return reply, nil
}

// order gathers what is to be sent. A lost Redis is sent nothing, because what
// it does not answer is gone.
func (a *account) order(price, now int64) order {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := order{price: price, heard: a.heard}
	if a.lost {
		a.keepLocked(now)
		return o
	}
	a.usedAt = now
	o.earned, o.refunded = a.earned.Swap(0), a.refunded.Swap(0)
	o.owed, a.share.owed = a.share.owed, 0
	return o
}

// keepLocked moves to the share what cannot be sent.
func (a *account) keepLocked(now int64) {
	if units := a.earned.Swap(0) + a.refunded.Swap(0); units > 0 {
		a.usedAt = now
		a.share.earn(a.index(now), units)
	}
}

// lose takes note that o was not answered.
func (a *account) lose(o order, err error) {
	if unexecuted(err) {
		a.earned.Add(o.earned)
		a.refunded.Add(o.refunded)
	}
	a.mu.Lock()
	a.lost = true
	a.share.owed += o.owed
	a.mu.Unlock()
	if told := a.budget.Degraded; told != nil {
		told(err)
	}
}

// learn takes note of an answer.
func (a *account) learn(reply answer, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.share.advance(now)
	owed := a.share.owed
	if a.lost {
		a.lost = false
		a.earned.Add(a.share.alive(a.index(now)))
		a.arm()
	}
	a.share = newShare(a.budget, reply, now)
	a.share.owed, a.heard = owed, reply.begin
}

// An order is what the script is given, and an answer what it replies.
type (
	order  struct{ earned, refunded, owed, price, heard int64 }
	answer struct {
		granted   bool
		balance   int64
		begin     int64 // of the tenth, on Redis' clock
		processes int64
	}
)

func (b *Budget) send(ctx context.Context, key string, o order) (answer, error) {
	reply, err := b.calls.run(ctx, b.Client, b.timeout(), budgetScript, []string{b.hash(key)},
		o.earned, o.refunded, o.owed, o.price, b.rate(), b.most(), b.tenth(), o.heard)
	if err != nil {
		return answer{}, err
	}
	return parseAnswer(reply)
}

func parseAnswer(reply any) (answer, error) {
	var n [4]int64
	list, _ := reply.([]any)
	if len(list) != len(n) {
		return answer{}, fmt.Errorf("redisstore: the budget's script replied %.100q", fmt.Sprint(reply))
	}
	for i, v := range list {
		n[i], _ = v.(int64)
	}
	a := answer{granted: n[0] == 1, balance: n[1], begin: n[2], processes: n[3]}
	if a.balance < 0 || a.processes < 1 {
		return answer{}, fmt.Errorf("redisstore: the budget's script replied %v", n)
	}
	return a, nil
}
