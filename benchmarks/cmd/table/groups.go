package main

import "time"

// A group is what is measured and shown together.
type group struct {
	name    string
	title   string
	runs    []batch
	columns []metric
	figures []figure
}

// A batch is some benchmarks, and how long and how often they are run.
type batch struct {
	benchmarks string // a regular expression
	rounds     int
	each       time.Duration
}

var groups = []group{client, middleware, throughWrk, memory, inRedis}

// The target of a success is meant for a machine on which the bare base takes 70
// ns, and grows with that.
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
		{title: "a retry, 16 KiB", benchmark: "RetryBody", less: "RetryNone", over: 3, targets: []target{atMost(allocations, 4)}},
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
		{title: "one rule, two fields", benchmark: "MiddlewareTwoFields", targets: []target{atMost(nanoseconds, 140), atMost(allocations, 2)}},
		{title: "four rules, rivals one", benchmark: "MiddlewareFourRules", targets: []target{timesBest(nanoseconds, 1)}},
		{title: "a pattern", benchmark: "MiddlewarePattern", less: "Middleware", targets: []target{times(nanoseconds, 1, "ServeMux")}},
		{title: "a pattern, already found", benchmark: "MiddlewareRouted", less: "Middleware",
			targets: []target{times(nanoseconds, 0.5, "ServeMux"), none(allocations)}},
	},
}

// It is measured apart from the others, for it takes a minute and a half.
var throughWrk = group{
	name:    "wrk",
	title:   "Requests through wrk",
	runs:    []batch{{"^BenchmarkWrk", 7, time.Millisecond}},
	columns: []metric{perSecond, serverTime, wrong},
	figures: []figure{
		{title: "one rule", benchmark: "Wrk", targets: []target{times(perSecond, 0.90, bare), timesBest(perSecond, 1), none(wrong)}},
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
	columns: []metric{nanoseconds, bytes, allocations, bytesPerKey, collection, wrong},
	figures: []figure{
		{title: "1 key, serial", benchmark: "MemoryOneSerial",
			targets: []target{times(nanoseconds, 0.5, "x/time/rate"), none(allocations)}},
		{title: "1 key, parallel", benchmark: "MemoryOneParallel",
			targets: []target{times(nanoseconds, 0.6, "x/time/rate"), none(allocations)}},
		{title: "1,000 keys, serial", benchmark: "MemoryThousandSerial", targets: []target{times(nanoseconds, 0.55, "go-limiter")}},
		{title: "1,000 keys, parallel", benchmark: "MemoryThousandParallel", targets: []target{times(nanoseconds, 0.65, "x/time/rate")}},
		{title: "denial, 1,000 keys, parallel", benchmark: "MemoryDenial", targets: []target{times(nanoseconds, 0.3, "x/time/rate")}},
		{title: "1,000,000 keys", benchmark: "MemoryMillion", drawn: []metric{nanoseconds, bytesPerKey, collection},
			targets: []target{timesBest(nanoseconds, 0.4), atMost(bytesPerKey, 24), atMost(collection, 2.5e6)}},
		{title: "64 goroutines, one limit", benchmark: "MemoryContention", drawn: []metric{wrong}, targets: []target{none(wrong)}},
	},
}

var inRedis = group{
	name:  "redis",
	title: "What a decision costs in Redis, on the same machine",
	runs: []batch{
		{"^BenchmarkRedis([0-9]|Hot|Rules|Denied|Leased|Cluster|Contention)", 5, 100 * time.Millisecond},
		{"^BenchmarkRedisMemory", 1, time.Millisecond},
	},
	columns: []metric{perSecond, median, slowest, allocations, clientTime, redisTime, oneRule, fourRules, wrong},
	figures: []figure{
		{title: "1 goroutine", benchmark: "Redis1", targets: []target{times(perSecond, 1, redisRate)}},
		{title: "16 goroutines", benchmark: "Redis16", targets: []target{times(perSecond, 1.5, redisRate)}},
		{title: "64 goroutines", benchmark: "Redis64", drawn: []metric{perSecond, slowest, redisTime, clientTime},
			targets: []target{times(perSecond, 3, redisRate), times(slowest, 0.4, redisRate),
				times(redisTime, 0.35, redisRate), times(clientTime, 0.2, redisRate)}},
		{title: "256 goroutines", benchmark: "Redis256", targets: []target{times(perSecond, 5, redisRate)}},
		{title: "64 goroutines, one key", benchmark: "RedisHot", targets: []target{times(perSecond, 3, redisRate)}},
		{title: "four rules, 1 goroutine", benchmark: "RedisRules1"},
		{title: "four rules, 64 goroutines", benchmark: "RedisRules64", targets: []target{times(perSecond, 4, redisRate)}},
		{title: "Cluster, 64 goroutines", benchmark: "RedisCluster", targets: []target{times(perSecond, 1.5, redisRate)}},
		{title: "leased by 10, 1 goroutine", benchmark: "RedisLeased10", targets: []target{times(perSecond, 9, redisRate)}},
		{title: "leased by 100, 1 goroutine", benchmark: "RedisLeased100", targets: []target{times(perSecond, 55, redisRate)}},
		{title: "leased by 10, 64 goroutines", benchmark: "RedisLeased10By64"},
		{title: "leased by 100, 64 goroutines", benchmark: "RedisLeased100By64"},
		{title: "leased by 100, 4 goroutines, paced", benchmark: "RedisLeasedPaced", drawn: []metric{slowest},
			targets: []target{atMost(slowest, 20e3)}},
		{title: "already denied, 1 goroutine", benchmark: "RedisDenied1", targets: []target{times(perSecond, 100, redisRate)}},
		{title: "already denied, 64 goroutines", benchmark: "RedisDenied64", targets: []target{times(perSecond, 100, redisRate)}},
		{title: "bytes in Redis", benchmark: "RedisMemory", drawn: []metric{oneRule, fourRules},
			targets: []target{atMost(oneRule, 104), atMost(fourRules, 200)}},
		{title: "64 goroutines, one limit", benchmark: "RedisContention", drawn: []metric{wrong}, targets: []target{none(wrong)}},
	},
}

const redisRate = "redis_rate"
