package main

import "time"

// A group is measured and shown together.
type group struct {
	name    string
	title   string
	runs    []batch
	columns []metric
	figures []figure
}

// A batch has some benchmarks, and how long and how often they run.
type batch struct {
	benchmarks string // a regular expression
	rounds     int
	each       time.Duration
}

var groups = []group{client, middleware, throughWrk, memory, inRedis}

// The target of a success is for a machine on which the bare base takes 70 ns, and grows with it.
var client = group{
	name:    "client",
	title:   "What a client adds to a request",
	runs:    []batch{{"^Benchmark(Success|Body|Retry|Pacing)", 11, 50 * time.Millisecond}},
	columns: []metric{nanoseconds, bytes, allocations, connections},
	figures: []figure{
		{title: "success, serial", benchmark: "SuccessSerial", targets: []target{adds60, addsNone(allocations)}},
		{title: "success, parallel", benchmark: "SuccessParallel", targets: []target{adds60, addsNone(allocations)}},
		{title: "success, http.Client", benchmark: "SuccessClient", targets: []target{times(nanoseconds, 1.1, bare)}},
		{title: "body of 1 MiB", benchmark: "Body", targets: []target{times(nanoseconds, 1.05, bare), addsNone(bytes)}},
		{title: "a retry", benchmark: "RetryNoBody", less: "RetryNone", over: 3,
			targets: []target{atMost(nanoseconds, 200), atMost(allocations, 1)}},
		{title: "a retry, 16 KiB", benchmark: "RetryBody", less: "RetryNone", over: 3,
			targets: []target{atMost(allocations, 4)}},
		{title: "3 retries, TCP, 16 KiB", benchmark: "RetrySocket", targets: []target{none(connections)}},
		{title: "pacing", benchmark: "Pacing", targets: []target{times(nanoseconds, 1.3, bare), addsNone(allocations)}},
	},
}

var adds60 = target{"ns added: at most 60 to a bare 70", nanoseconds,
	func(rs rows) float64 { return nanoseconds.of(rs.of(bare)) * (70 + 60) / 70 }}

var middleware = group{
	name:    "middleware",
	title:   "What a limiter adds to a handler, in memory",
	runs:    []batch{{"^BenchmarkMiddleware", 31, 5 * time.Millisecond}},
	columns: []metric{nanoseconds, bytes, allocations},
	figures: []figure{
		{title: "one rule", benchmark: "Middleware", targets: []target{addsHalf(nanoseconds), addsHalf(allocations)}},
		{title: "one rule, two fields", benchmark: "MiddlewareTwoFields",
			targets: []target{atMost(nanoseconds, 140), atMost(allocations, 2)}},
		{title: "four rules, rivals one", benchmark: "MiddlewareFourRules", targets: []target{timesBest(nanoseconds, 1)}},
		{title: "a pattern", benchmark: "MiddlewarePattern", less: "Middleware",
			targets: []target{times(nanoseconds, 1, "ServeMux")}},
		{title: "a pattern, already found", benchmark: "MiddlewareRouted", less: "Middleware",
			targets: []target{times(nanoseconds, 0.5, "ServeMux"), none(allocations)}},
	},
}

// It is measured only by name, because it takes a minute and a half.
var throughWrk = group{
	name:    "wrk",
	title:   "Requests through wrk",
	runs:    []batch{{"^BenchmarkWrk", 7, time.Millisecond}},
	columns: []metric{perSecond, serverTime, wrong},
	figures: []figure{
		{title: "one rule", benchmark: "Wrk",
			targets: []target{times(perSecond, 0.90, bare), timesBest(perSecond, 1), none(wrong)}},
		{title: "beside five fields by hand", benchmark: "WrkByHand", targets: []target{times(perSecond, 0.95, bare)}},
		{title: "fields on denial only", benchmark: "WrkDenialOnly", targets: []target{times(perSecond, 0.98, bare)}},
	},
}

var memory = group{
	name:  "memory",
	title: "What a decision costs in memory",
	runs: []batch{
		{"^BenchmarkMemory(One|Thousand|Denial|Contention)", 9, 50 * time.Millisecond},
		{"^BenchmarkMemoryMillion", 3, 200 * time.Millisecond},
	},
	columns: []metric{nanoseconds, inParallel, bytes, allocations, bytesPerKey, collection, wrong},
	figures: []figure{
		{title: "1 key, serial", benchmark: "MemoryOneSerial",
			targets: []target{times(nanoseconds, 0.75, "x/time/rate"), none(allocations)}},
		{title: "1 key, parallel", benchmark: "MemoryOneParallel", targets: []target{none(allocations)}},
		{title: "1,000 keys, serial", benchmark: "MemoryThousandSerial", targets: []target{timesBest(nanoseconds, 0.8)}},
		{title: "1,000 keys, parallel", benchmark: "MemoryThousandParallel"},
		{title: "denial, 1,000 keys, parallel", benchmark: "MemoryDenial"},
		{title: "1,000,000 keys", benchmark: "MemoryMillion",
			drawn:   []metric{nanoseconds, inParallel, bytesPerKey, collection},
			targets: []target{timesBest(nanoseconds, 0.6), atMost(bytesPerKey, 40), atMost(collection, 5e6)}},
		{title: "64 goroutines, one limit", benchmark: "MemoryContention", drawn: []metric{wrong},
			targets: []target{none(wrong)}},
	},
}

var inRedis = group{
	name:  "redis",
	title: "What a decision costs in Redis, on the same machine, by a client with default options",
	runs: []batch{
		{"^BenchmarkRedis([0-9]|Hot|Rules|Denied|Leased|Cluster|Contention)", 5, 100 * time.Millisecond},
		{"^BenchmarkRedisLease(Cold|Warm)", 3, 200 * time.Millisecond},
		{"^BenchmarkRedisMemory", 1, time.Millisecond},
	},
	columns: []metric{perSecond, median, slowest, allocations, clientTime, redisTime, oneRule, fourRules, wrong},
	figures: []figure{
		{title: "1 goroutine", benchmark: "Redis1", targets: []target{times(perSecond, 0.95, redisRate)}},
		{title: "16 goroutines", benchmark: "Redis16", targets: []target{times(perSecond, 1, redisRate)}},
		{title: "64 goroutines", benchmark: "Redis64", drawn: []metric{perSecond, slowest, redisTime, clientTime},
			targets: []target{times(perSecond, 2.5, redisRate)}},
		{title: "256 goroutines", benchmark: "Redis256", targets: []target{times(perSecond, 2, redisRate)}},
		{title: "64 goroutines, one key", benchmark: "RedisHot", targets: []target{times(perSecond, 2.5, redisRate)}},
		{title: "four limits, 1 goroutine", benchmark: "RedisRules1"},
		{title: "four limits, 64 goroutines", benchmark: "RedisRules64",
			targets: []target{times(perSecond, 4, redisRate)}},
		{title: "Cluster, 64 goroutines", benchmark: "RedisCluster"},
		{title: "leased by 10, 1 goroutine", benchmark: "RedisLeased10"},
		{title: "leased by 100, 1 goroutine", benchmark: "RedisLeased100",
			targets: []target{times(perSecond, 8, redisRate)}},
		{title: "leased by 10, 64 goroutines", benchmark: "RedisLeased10By64"},
		{title: "leased by 100, 64 goroutines", benchmark: "RedisLeased100By64"},
		{title: "leased by 100, 4 goroutines, paced", benchmark: "RedisLeasedPaced", drawn: []metric{slowest}},
		{title: "leased, 64 goroutines, 1 key, cold", benchmark: "RedisLeaseCold1"},
		{title: "leased, 64 goroutines, 1 key, warm", benchmark: "RedisLeaseWarm1"},
		{title: "leased, 64 goroutines, 1,000 keys, cold", benchmark: "RedisLeaseCold1000"},
		{title: "leased, 64 goroutines, 1,000 keys, warm", benchmark: "RedisLeaseWarm1000",
			targets: []target{times(perSecond, 0.9, "store")}},
		{title: "leased, 64 goroutines, 100,000 keys, cold", benchmark: "RedisLeaseCold100000"},
		{title: "leased, 64 goroutines, 100,000 keys, warm", benchmark: "RedisLeaseWarm100000",
			targets: []target{times(perSecond, 0.9, "store")}},
		{title: "already denied, 1 goroutine", benchmark: "RedisDenied1"},
		{title: "already denied, 64 goroutines", benchmark: "RedisDenied64"},
		{title: "bytes in Redis", benchmark: "RedisMemory", drawn: []metric{oneRule, fourRules}},
		{title: "64 goroutines, one limit", benchmark: "RedisContention", drawn: []metric{wrong},
			targets: []target{none(wrong)}},
	},
}

const redisRate = "redis_rate"
