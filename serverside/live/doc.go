// Package live serves a web page that shows what a limiter of package serverside is doing: its
// rules, requests and denials per second, the keys that are denied most, what is left of their
// quotas, and whether the Store answers.
//
//	page := &live.Page{Hosts: []string{"admin.example.com"}}
//	limiter, err := serverside.New(page.Instrument(cfg))
//	…
//	admin.Handle("/limits/", page)
//
// Mount it behind authentication or on a port that only operators reach. It shows no secrets,
// but limits and denials are not for everybody. If it is behind the limiter, exempt it
// (Config.Exempt).
//
// The page's Content-Security-Policy allows only scripts of this package and requests to this
// handler. Keys are shown as hashes, as in Events. Errors are not shown, only logged. The
// handler answers only for known hosts (Page.Hosts), which prevents DNS rebinding.
//
// A second page, at explain, explains a Retry-After, a RateLimit or a whole response that an
// operator pastes. The text is sent to this handler only, which neither keeps nor logs it.
package live
