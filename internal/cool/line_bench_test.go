package cool

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

const later = 100 * time.Hour

func waiter(attempts int, called time.Duration) *Waiter {
	return &Waiter{Attempts: attempts, Called: called, Deadline: later, Patience: later, Wake: make(chan struct{}, 1)}
}

// downHost returns a host that is down, and those in its line, which were sent that often.
func downHost(b *testing.B, waiters, attempts int) (o *Outage, all []*Waiter, now time.Duration) {
	o, now = new(Outage), time.Hour
	for range 20 {
		now += 100 * time.Millisecond
		o.Failed(Route{}, Permit{}, true, 0, now)
	}
	for i := range waiters {
		w := waiter(attempts, now+time.Duration(i))
		if !o.Join(w, false, now) {
			b.Fatal("the host is up")
		}
		all = append(all, w)
	}
	return o, all, now
}

// How long a line of 10,000 keeps the processor busy. Each step but the last three has the lock once.
func BenchmarkLongLine(b *testing.B) {
	req, err := http.NewRequest("GET", "http://api.test/", nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, attempts := range []int{0, 1} {
		b.Run(fmt.Sprintf("attempts=%d", attempts), func(b *testing.B) {
			b.Run("the prober asks", func(b *testing.B) {
				o, all, now := downHost(b, LongestLine, attempts)
				w := all[len(all)-1]
				for b.Loop() {
					o.Ask(w, now)
				}
			})
			b.Run("the prober is sent, fails and joins", func(b *testing.B) {
				o, all, now := downHost(b, LongestLine, attempts)
				w := all[len(all)-1]
				for b.Loop() {
					now += 10 * time.Second
					turn := o.Ask(w, now)
					if !turn.Permit.Probe {
						b.Fatal("no probe")
					}
					o.Failed(Route{}, turn.Permit, true, 0, now)
					o.Join(w, false, now)
				}
			})
			b.Run("one joins and leaves", func(b *testing.B) {
				o, _, now := downHost(b, LongestLine-1, attempts)
				w := waiter(attempts, 2*time.Hour)
				for b.Loop() {
					o.Join(w, false, now)
					o.Leave(w)
				}
			})
			b.Run("all leave, the first one first", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					o, all, _ := downHost(b, LongestLine, attempts)
					b.StartTimer()
					for _, w := range all {
						o.Leave(w)
					}
				}
			})
			b.Run("all leave, the last one first", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					o, all, _ := downHost(b, LongestLine, attempts)
					b.StartTimer()
					for _, w := range slices.Backward(all) {
						o.Leave(w)
					}
				}
			})
			b.Run("all are released", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					o, all, now := downHost(b, LongestLine, attempts)
					o.Good(req, routeOf, Permit{}, now, now)
					b.StartTimer()
					for _, w := range all {
						now += 10 * time.Millisecond
						turn := o.Ask(w, now)
						if !turn.Permit.Given() {
							b.Fatal("not released")
						}
						o.Good(req, routeOf, turn.Permit, now, now)
					}
				}
			})
		})
	}
}

func routeOf(req *http.Request) Route { return Route{Method: req.Method} }
