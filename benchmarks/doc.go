// Package benchmarks measures heed and other libraries in the same run, because figures from
// different machines or days cannot be compared.
//
//	go run ./cmd/table
//
// This runs everything in about ten minutes. It prints medians and ratios, and whether heed
// meets its own targets. Flags choose groups (-group memory,redis) and draw pictures
// (-svg ../docs). The group wrk takes another minute and a half, and is measured only if it is
// named. The program starts and stops redis-server and wrk, which must be installed.
//
// Some rows are not libraries. "bare" is the least that any library must do. "simple" is a
// plain limiter of this package: it counts as exactly as heed and does nothing else, so the
// difference is the price of heed's other features. "plain-script" sends Redis the same script
// once for each decision, and "auto-pipeline" does so through the pipelines of go-redis.
// "store" is the Store that a Lease is compared with.
//
// cmd/storms shows what clients lose while a server is in trouble, with rivals among the clients,
// and writes docs/storms.md.
//
// The tests count what can be counted exactly: allocations, connections and requests.
//
// This is a module of its own, so that users of heed do not download its rivals.
package benchmarks
