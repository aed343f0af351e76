// Package benchmarks measures heed beside other libraries, in the same run: a
// figure that was measured on another machine, or on another day, says nothing.
//
//	go run ./cmd/table
//
// runs everything and prints one table, medians and ratios, with heed's own
// targets beside them; it takes less than two minutes. The tests are what can be
// counted exactly: allocations, connections, requests.
//
// This is a module of its own, so that nobody who uses heed downloads its rivals.
package benchmarks
