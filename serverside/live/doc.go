// Package live shows what a limiter of package serverside does, while it does it: a
// page with its rules, requests and denials by the second, the keys that are denied
// most, what is left of their quotas, and whether the Store answers.
//
//	page := &live.Page{Hosts: []string{"admin.example.com"}}
//	limiter, err := serverside.New(page.Instrument(cfg))
//	…
//	admin.Handle("/limits/", page)
//
// Mount it behind authentication, or on a port that only operators reach. It tells no
// secrets, but who is limited how is nobody else's business. Exempt it from the limiter
// (Config.Exempt) if it is behind that.
//
// The page asks nobody but its own handler for anything, and runs no code but that of
// this package: its Content-Security-Policy sees to it. Keys are the hashes that Events
// have, and errors are not shown: they are in the log. The handler answers only for hosts
// that it knows (see Page.Hosts), so that a page from elsewhere, whose name was made to
// resolve to this server, reads nothing.
//
// Beside it, at explain, is a page that says what a Retry-After means, or a RateLimit, or
// the response of a vendor that is pasted there. What is pasted is sent to this handler,
// which answers with what package ratelimit makes of it, and keeps and logs nothing.
package live
