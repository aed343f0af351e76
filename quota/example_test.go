package quota_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heedhttp/heed/quota"
)

func ExampleMemory_Take() {
	limit, err := quota.PerDay(2).Compile()
	if err != nil {
		panic(err)
	}
	var store quota.Memory
	for range 3 {
		ds, err := store.Take(context.Background(), nil, quota.Charge{Key: "alice", Limit: limit})
		if err != nil {
			panic(err)
		}
		fmt.Println(ds[0].Allowed, ds[0].Remaining, ds[0].RetryAfter.Round(time.Hour))
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 12h0m0s
}

// Without HTTP: a worker does five jobs from a queue at once, and then one as often as
// the limit allows.
func ExampleMemory_Take_worker() {
	limit, err := quota.Policy{Quota: 5, Window: time.Second}.Compile()
	if err != nil {
		panic(err)
	}
	var store quota.Memory
	for job := 1; job <= 6; {
		ds, err := store.Take(context.Background(), nil, quota.Charge{Key: "worker", Limit: limit})
		if err != nil {
			panic(err)
		}
		if !ds[0].Allowed {
			time.Sleep(ds[0].RetryAfter)
			continue
		}
		fmt.Println("does job", job)
		job++
	}
	// Output:
	// does job 1
	// does job 2
	// does job 3
	// does job 4
	// does job 5
	// does job 6
}

// Several limits are charged together: all of them or none.
func ExampleMemory_Take_several() {
	var store quota.Memory
	day, _ := quota.PerDay(1000).Compile()
	minute, _ := quota.PerMinute(1).Compile()
	for range 2 {
		ds, _ := store.Take(context.Background(), nil,
			quota.Charge{Key: "tenant", Limit: day},
			quota.Charge{Key: "alice", Limit: minute})
		fmt.Println(ds[0].Allowed && ds[1].Allowed, ds[0].Remaining, ds[1].Remaining)
	}
	// Output:
	// true 999 0
	// false 999 0
}

// A caller that can wait reserves instead of trying again.
func ExampleMemory_Reserve() {
	var store quota.Memory
	limit, _ := quota.Policy{Quota: 10, Window: time.Hour, Burst: 1}.Compile()
	for range 3 {
		wait, _, ok, _ := store.Reserve(context.Background(), 10*time.Minute, quota.Charge{Key: "api", Limit: limit})
		fmt.Println(ok, wait.Round(time.Minute))
	}
	// Output:
	// true 0s
	// true 6m0s
	// false 12m0s
}

// The true cost is often known only afterwards.
func ExampleMemory_Settle() {
	var store quota.Memory
	limit, _ := quota.PerDay(1000).Compile()
	estimate := quota.Charge{Key: "alice", Limit: limit, N: 100}
	ds, _ := store.Take(context.Background(), nil, estimate)
	fmt.Println(ds[0].Remaining)

	store.Settle(context.Background(), quota.Charge{Key: "alice", Limit: limit, N: 130 - 100, At: ds[0].At})
	ds, _ = store.Peek(context.Background(), nil, estimate)
	fmt.Println(ds[0].Remaining)
	// Output:
	// 900
	// 870
}

// A quota by the day, week or month of a calendar.
func ExamplePolicy_calendar() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	limit, err := quota.Policy{
		Quota: 10_000, Algorithm: quota.FixedWindow, Calendar: quota.Month, Location: berlin,
	}.Compile()
	if err != nil {
		panic(err)
	}
	march := time.Date(2026, time.March, 15, 12, 0, 0, 0, berlin)
	starts := limit.Starts(march.UnixMicro())
	fmt.Println(limit.Name())
	fmt.Println(time.UnixMicro(starts[1]).In(berlin))
	fmt.Println(time.UnixMicro(starts[2]).In(berlin))
	// Output:
	// 10000/month Europe/Berlin
	// 2026-03-01 00:00:00 +0100 CET
	// 2026-04-01 00:00:00 +0200 CEST
}

// A LeakyBucket admits requests with a delay.
func ExampleMemory_Take_leakyBucket() {
	var store quota.Memory
	limit, _ := quota.Policy{Quota: 10, Window: time.Hour, Burst: 2, Algorithm: quota.LeakyBucket}.Compile()
	for range 4 {
		ds, _ := store.Take(context.Background(), nil, quota.Charge{Key: "api", Limit: limit})
		fmt.Println(ds[0].Allowed, ds[0].Delay.Round(time.Minute))
	}
	// Output:
	// true 0s
	// true 6m0s
	// true 12m0s
	// false 0s
}

// The algorithms are pure functions: a count needs no Store.
func ExampleLimit_Try() {
	limit, _ := quota.Policy{Quota: 2, Window: time.Minute, Algorithm: quota.SlidingLog}.Compile()
	var bucket quota.Bucket
	start := time.Date(2026, time.March, 15, 12, 0, 0, 0, time.UTC)
	for _, s := range []int{0, 20, 40, 60, 70} {
		now := start.Add(time.Duration(s) * time.Second).UnixMicro()
		met := limit.Drain(bucket, now)
		after, fits := limit.Try(met, 1, now)
		fmt.Println(s, fits, limit.Wait(met, 1, now))
		bucket = after
	}
	// Output:
	// 0 true 0s
	// 20 true 0s
	// 40 false 20s
	// 60 true 0s
	// 70 false 10s
}

func ExamplePolicy_Compile() {
	_, err := quota.Policy{Name: "api", Quota: 0, Window: -time.Second}.Compile()
	fmt.Println(err)
	fault, _ := errors.AsType[*quota.PolicyError](err)
	fmt.Println(fault.Field)
	// Output:
	// quota: policy "api": Quota is 0: must be at least 1
	// quota: policy "api": Window is -1s: must be more than 0
	// Quota
}

// A pitfall: a charge above the burst is never admitted, however long the caller waits.
// Never says so, and RetryAfter is zero.
func ExampleDecision_never() {
	var store quota.Memory
	limit, _ := quota.PerSecond(5).Compile()
	ds, _ := store.Take(context.Background(), nil, quota.Charge{Key: "batch", Limit: limit, N: 6})
	fmt.Println(ds[0].Allowed, ds[0].Never, ds[0].RetryAfter)
	// Output:
	// false true 0s
}
