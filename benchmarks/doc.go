// Package benchmarks measures heed beside other libraries, in the same run: a
// figure that was measured on another machine, or on another day, says nothing.
//
//	go run ./cmd/table
//
// runs everything and prints medians and ratios, and whether heed's own targets are
// met; it takes about ten minutes. Flags choose groups (-group memory,redis), and
// have pictures drawn (-svg ../docs). The group wrk takes another minute and a half,
// and is measured only if it is named. It needs redis-server and wrk, which it starts
// and stops.
//
// Some rows are no library. "bare" is what none can do without. "simple" is a plain limiter
// of this package, of a hundred lines, that counts as exactly as heed does, and does nothing
// else: what heed costs more than that, or less, is what the rest of its lines buy.
// "plain-script" sends Redis the same script once for each decision, and "auto-pipeline" does
// so by go-redis' own pipelines. "store" is the Store that a Lease is compared with.
//
// The tests are what can be counted exactly: allocations, connections, requests.
//
// This is a module of its own, so that nobody who uses heed downloads its rivals.
package benchmarks
