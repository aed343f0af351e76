// Package benchmarks measures heed beside other libraries, in the same run: a
// figure that was measured on another machine, or on another day, says nothing.
//
//	go run ./cmd/table
//
// runs everything and prints medians and ratios, and whether heed's own targets are
// met; it takes less than four minutes. Flags choose groups (-group memory,redis), and
// have pictures drawn (-svg ../docs). The group wrk takes another minute and a half,
// and is measured only if it is named. It needs redis-server and wrk, which it starts
// and stops.
// The tests are what can be counted exactly: allocations, connections, requests.
//
// This is a module of its own, so that nobody who uses heed downloads its rivals.
package benchmarks
